//! Gives back the units of an `acquire`, and the reservation of a `reserve`, whose caller stops waiting.
//!
//! The caller drops the future: by a timeout of its own, a cancelled task or an interrupted thread. At that time the
//! store may be processing the check, or the caller may wait out the delay of a leaky bucket. A check that was sent is
//! awaited in the background; if its answer does not come before the deadline, it is unknown whether the units were spent,
//! and they stay so. An admission by an outage policy is not refunded: the store has not spent it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Error;
use crate::limiter::call::Call;
use crate::limiter::{CHECK, KeyCall, Limiter, RESERVE};
use crate::rules::decision::{Decision, Source};
use crate::rules::transition::Operation;
use crate::runtime::fork::{self, ProcessGeneration};
use crate::store::request::{Action, Answer, OwnedStoreRequest, StoreRequest};

impl Limiter {
    /// Sends a check or a refund of an `acquire`, or a reserve, to the store; the caller counts the decision. When the caller drops the future, the operation
    /// still runs to its end, an admitted check is refunded, and a reservation is cancelled.
    pub(super) async fn ask_uncancelled(&self, request: StoreRequest<'_>) -> Result<Answer, Error> {
        let shared = self.shared();
        if shared.store.is_here() {
            return shared.ask_store(request).await;
        }
        let (answer, generation) = (Box::pin(self.ask_owned(request)), ProcessGeneration::here());
        InFlight { limiter: self, request, answer: Some(answer), generation }.await
    }

    /// Sends an operation on one key to the store, and counts it. A reserve whose caller stops waiting leaves no reservation behind.
    pub(super) async fn ask_kept(&self, request: StoreRequest<'_>) -> Result<Answer, Error> {
        let answer = if request.action == RESERVE {
            self.ask_uncancelled(request).await?
        } else {
            self.shared().ask_store(request).await?
        };
        self.shared().count_decision(&request, &answer);
        Ok(answer)
    }

    /// Gives back what its caller does not use: refunds an admission, or cancels a reservation. If the store cannot, the units
    /// stay spent, or set aside until the reservation ends.
    pub(super) fn give_back_unused(&self, request: StoreRequest<'_>, decision: &Decision) {
        let shared = self.shared();
        // What an outage policy admits the store has not spent; a reservation of the fallback is ended in this process.
        let is_local = request.hold.is_some() && decision.source() == Source::Fallback;
        let is_outage = decision.source().is_outage() && !is_local;
        if !decision.allowed || is_outage || shared.closing.is_closed() {
            return;
        }
        let ending = if request.hold.is_some() { Operation::Cancel } else { Operation::Refund };
        let refund = StoreRequest { action: Action::Apply(ending), ..request };
        if shared.store.is_here() {
            let _ = shared.try_store(refund);
        } else {
            let refunded = self.ask_owned(refund);
            self.in_background(async move { drop(refunded.await) });
        }
    }

    /// The store's answer, as a future that owns the request and so can outlive the caller.
    fn ask_owned(
        &self,
        request: StoreRequest<'_>,
    ) -> impl Future<Output = Result<Answer, Error>> + Send + 'static + use<> {
        let (limiter, request) = (self.clone(), OwnedStoreRequest::of(request));
        async move { limiter.shared().ask_store(request.borrowed()).await }
    }

    /// Ends a reservation whose handle is dropped: at once in a store of this process or host, in the background with Redis.
    /// Where that fails, the reservation ends by its ttl.
    pub(super) fn end_in_background(&self, call: &KeyCall<'_>) {
        let shared = self.shared();
        let Ok(request) = shared.key_request(call) else { return };
        if shared.store.is_here() {
            let _ = shared.try_store(request);
        } else if !shared.closing.is_closed() {
            let ended = self.ask_owned(request);
            self.in_background(async move { drop(ended.await) });
        }
    }

    /// Makes a call on one key whose answer does not matter, as [`end_in_background`](Self::end_in_background) does.
    pub(crate) fn call_in_background(&self, call: &Call<'_>) {
        if let Some(call) = call.on_key() {
            self.end_in_background(&call);
        }
    }

    /// Runs a task on the limiter's own thread; a closed limiter drops it.
    pub(crate) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(driver) = self.shared().driver() {
            driver.spawn(task);
        }
    }
}

type PendingAnswer = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// An operation that may have been sent to Redis.
struct InFlight<'a> {
    limiter: &'a Limiter,
    request: StoreRequest<'a>,
    /// `None` once the store has answered.
    answer: Option<PendingAnswer>,
    generation: ProcessGeneration,
}

impl Future for InFlight<'_> {
    type Output = Result<Answer, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(pending) = &mut self.answer else { return Poll::Pending };
        let answer = pending.as_mut().poll(cx);
        if answer.is_ready() {
            self.answer = None;
        }
        answer
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        if !self.generation.is_here() {
            // The parent process awaits the answer with its own copy.
            return fork::leave(answer);
        }
        let (limiter, request) = (self.limiter.clone(), OwnedStoreRequest::of(self.request));
        self.limiter.in_background(async move {
            if let Ok((decision, _)) = answer.await
                && (request.action == CHECK || request.action == RESERVE)
            {
                limiter.give_back_unused(request.borrowed(), &decision);
            }
        });
    }
}

/// An admission that is refunded unless the caller keeps it: the caller waits out its delay.
pub(super) struct Admission<'a> {
    limiter: &'a Limiter,
    request: StoreRequest<'a>,
    /// `None` once the caller keeps it.
    decision: Option<&'a Decision>,
    generation: ProcessGeneration,
}

impl<'a> Admission<'a> {
    pub(super) fn new(limiter: &'a Limiter, request: StoreRequest<'a>, decision: &'a Decision) -> Self {
        Self { limiter, request, decision: Some(decision), generation: ProcessGeneration::here() }
    }

    /// The delay is over, and the caller uses the units.
    pub(super) fn keep(mut self) {
        self.decision = None;
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        // In a forked child this is a copy, and the units belong to the parent.
        if let Some(decision) = self.decision.filter(|_| self.generation.is_here()) {
            self.limiter.give_back_unused(self.request, decision);
        }
    }
}
