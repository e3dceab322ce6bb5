//! Gives back the units of an `acquire`, and the reservation of a `reserve`, whose caller stops waiting.
//!
//! The caller drops the future: by a timeout of its own, a cancelled task or an interrupted thread. At that time the
//! store may be processing the check, or the caller may be waiting out the delay of a leaky bucket. A check that was
//! sent is awaited in the background; if its answer does not arrive before the deadline, it is unknown whether the
//! units were spent, and they are not refunded. Neither is an admission by an outage policy: the store has not spent
//! it.
//!
//! A refund and the end of a reservation always run to completion. An operation that the store of this host has not
//! performed, because a part of it was locked, needs no refund.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Error;
use crate::limiter::call::Call;
use crate::limiter::{CHECK, KeyCall, Limiter, RESERVE};
use crate::rules::decision::{Decision, Source};
use crate::rules::transition::Operation;
use crate::runtime::fork::{self, ProcessGeneration};
use crate::store::request::{
    Action, Answer, OwnedCharge, OwnedStoreRequest, RequestCharge, StoreRequest, is_admitted,
};

impl Limiter {
    /// Sends a check of an `acquire`, a reserve, a refund or the end of a reservation to the store; the caller counts
    /// the decision. When the caller drops the future, an operation that was sent still completes: an admitted check is
    /// then refunded, and a reservation is cancelled. A refund and the end of a reservation are performed even if they
    /// were not sent yet.
    pub(super) async fn ask_uncancelled(&self, request: StoreRequest<'_>) -> Result<Answer, Error> {
        let shared = self.shared();
        if let Some(answer) = shared.store.answer_here(request).transpose()? {
            shared.answered(request, &answer);
            return Ok(answer);
        }
        let (answer, generation) = (Box::pin(self.ask_owned(request)), ProcessGeneration::here());
        let charges = [RequestCharge { request, decides: true, uses_caches: true }];
        InFlight { limiter: self, charges: &charges, answer: Some(answer), generation }.await
    }

    /// Starts the charges of a request together. When the caller drops the future of a request that reserves, charges
    /// that were sent still complete, and those admitted are given back. The caller counts the decisions.
    pub(super) async fn ask_together_kept(
        &self,
        charges: &[RequestCharge<'_>],
    ) -> Result<Vec<Answer>, Error> {
        let store = self.shared().store();
        if charges.iter().all(|charge| charge.request.action != RESERVE) {
            return store.ask_together(charges).await;
        }
        let (limiter, owned) = (self.clone(), charges.iter().map(OwnedCharge::of).collect::<Vec<_>>());
        let answer = async move {
            let charges: Vec<_> = owned.iter().map(OwnedCharge::borrowed).collect();
            limiter.shared().store().ask_together(&charges).await
        };
        let answer: Option<Pending<Vec<Answer>>> = Some(Box::pin(answer));
        InFlight { limiter: self, charges, answer, generation: ProcessGeneration::here() }.await
    }

    /// Sends an operation on one key to the store, and counts it. A reserve whose caller stops waiting leaves no
    /// reservation behind, and a refund, commit or cancel is performed even if its caller stops waiting.
    pub(super) async fn ask_kept(&self, request: StoreRequest<'_>) -> Result<Answer, Error> {
        let answer = if request.action == RESERVE || gives_back(request.action) {
            self.ask_uncancelled(request).await?
        } else {
            self.shared().ask_store(request).await?
        };
        self.shared().count_decision(&request, &answer);
        Ok(answer)
    }

    /// Sends operations on several keys to the store, in order. When the caller drops the future between two of them,
    /// units that a store of this host has admitted are given back.
    pub(super) async fn ask_many_kept(&self, requests: &[StoreRequest<'_>]) -> Result<Vec<Answer>, Error> {
        let store = self.shared().store();
        if !store.is_here() {
            return store.ask_many(requests).await;
        }
        let answers = Vec::with_capacity(requests.len());
        let mut admitted =
            Admitted { limiter: self, requests, answers, generation: ProcessGeneration::here() };
        let mut failed = Ok(());
        for request in requests {
            match store.ask(*request).await {
                Ok(answer) => admitted.answers.push(answer),
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        let answers = std::mem::take(&mut admitted.answers);
        failed.map(|()| answers)
    }

    /// Gives back units that the caller does not use: refunds an admission, or cancels a reservation. If the store
    /// cannot, the units stay spent, or set aside until the reservation ends.
    pub(super) fn give_back_unused(&self, request: StoreRequest<'_>, decision: &Decision) {
        let shared = self.shared();
        // The store has not spent units that an outage policy admits; a reservation of the fallback is ended in this process.
        let is_local = request.hold.is_some() && decision.source() == Source::Fallback;
        let is_outage = decision.source().is_outage() && !is_local;
        if !decision.allowed || is_outage || shared.closing.is_closed() {
            return;
        }
        let ending = if request.hold.is_some() { Operation::Cancel } else { Operation::Refund };
        self.ask_in_background(StoreRequest { action: Action::Apply(ending), ..request });
    }

    /// Performs an operation whose answer is not needed: at once if it need not wait, otherwise on the limiter's own
    /// thread. A closed limiter drops it.
    fn ask_in_background(&self, request: StoreRequest<'_>) {
        let shared = self.shared();
        if let Ok(None) = shared.try_store(request)
            && !shared.closing.is_closed()
        {
            let asked = self.ask_owned(request);
            self.in_background(async move { drop(asked.await) });
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

    /// Ends a reservation whose handle is dropped: at once in a store of this process or host, unless a part of it is
    /// locked, and in the background otherwise. If that fails, the reservation ends by its ttl.
    pub(super) fn end_in_background(&self, call: &KeyCall<'_>) {
        if let Ok(request) = self.shared().key_request(call) {
            self.ask_in_background(request);
        }
    }

    /// Performs a call on one key whose answer is not needed, as [`end_in_background`](Self::end_in_background) does.
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

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// The answers to the requests of one call to the store.
trait Answers: Send + 'static {
    fn each(&self) -> &[Answer];
}

impl Answers for Answer {
    fn each(&self) -> &[Answer] {
        std::slice::from_ref(self)
    }
}

impl Answers for Vec<Answer> {
    fn each(&self) -> &[Answer] {
        self
    }
}

/// Whether an operation gives back units or a reservation of its caller.
pub(super) fn gives_back(action: Action) -> bool {
    matches!(action, Action::Apply(Operation::Refund | Operation::Commit | Operation::Cancel))
}

/// A call that may have been sent to Redis, or that waits for a lock on a part of the store of this host.
struct InFlight<'a, T: Answers> {
    limiter: &'a Limiter,
    charges: &'a [RequestCharge<'a>],
    /// `None` once the store has answered.
    answer: Option<Pending<T>>,
    generation: ProcessGeneration,
}

impl<T: Answers> Future for InFlight<'_, T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(pending) = &mut self.answer else { return Poll::Pending };
        let answer = pending.as_mut().poll(cx);
        if answer.is_ready() {
            self.answer = None;
        }
        answer
    }
}

impl<T: Answers> Drop for InFlight<'_, T> {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        if !self.generation.is_here() {
            // The parent process awaits the answer with its own copy.
            return fork::leave(answer);
        }
        let is_done_anyway = |charge: &RequestCharge<'_>| gives_back(charge.request.action);
        if self.limiter.shared().store.is_here() && !self.charges.iter().any(is_done_anyway) {
            // Nothing was done.
            return;
        }
        let (limiter, owned) =
            (self.limiter.clone(), self.charges.iter().map(OwnedCharge::of).collect::<Vec<_>>());
        self.limiter.in_background(async move {
            let Ok(answers) = answer.await else { return };
            let charges: Vec<_> = owned.iter().map(OwnedCharge::borrowed).collect();
            if !is_admitted(&charges, answers.each()) {
                return;
            }
            for (RequestCharge { request, .. }, (decision, _)) in charges.iter().zip(answers.each()) {
                if request.action == CHECK || request.action == RESERVE {
                    limiter.give_back_unused(*request, decision);
                }
            }
        });
    }
}

/// The answers of a call in progress: admitted units are given back unless the caller takes the answers.
struct Admitted<'a> {
    limiter: &'a Limiter,
    requests: &'a [StoreRequest<'a>],
    answers: Vec<Answer>,
    generation: ProcessGeneration,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        // In a forked child this is a copy, and the units belong to the parent.
        if !self.generation.is_here() {
            return;
        }
        for (request, (decision, _)) in self.requests.iter().zip(&self.answers) {
            if request.action == CHECK || request.action == RESERVE {
                self.limiter.give_back_unused(*request, decision);
            }
        }
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

    /// Called once the delay is over: the caller uses the units.
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
