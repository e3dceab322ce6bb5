//! Refunds the units of an `acquire` whose caller stops waiting.
//!
//! A caller stops waiting when it drops the future of `acquire`: by a timeout of its own, a cancelled task or an
//! interrupted thread. At that time the store may be processing the check, or may have admitted it to a leaky bucket
//! whose delay the caller waits out. The caller then never uses the admission, so its units are refunded once:
//!
//! - A check that was sent to the store is awaited in the background. If the store answers that it spent the units, they
//!   are refunded. If no answer comes before the deadline, they stay spent: it is unknown whether the store spent them.
//! - The units of a caller that waits out its delay are refunded.
//! - An admission by an outage policy is not refunded: the store has not spent it.
//!
//! A store of this process or host answers at once, so the refund is applied when the future is dropped. A refund to
//! Redis runs in the background, on the thread that drives the limiter's own runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Error;
use crate::limiter::{CHECK, Limiter, Shared};
use crate::rules::decision::Decision;
use crate::rules::transition::Operation;
use crate::runtime::fork::{self, ProcessGeneration};
use crate::store::request::{Action, Answer, PolicyId, StoreRequest};

const REFUND: Action = Action::Apply(Operation::Refund);

type Asking = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// A request to the store that owns its key and so can outlive the caller.
struct OwnedStoreRequest {
    id: PolicyId,
    key: Box<[u8]>,
    action: Action,
    cost: u64,
}

impl OwnedStoreRequest {
    fn of(request: StoreRequest<'_>) -> Self {
        let StoreRequest { id, key, action, cost } = request;
        Self { id, key: key.into(), action, cost }
    }

    fn request(&self) -> StoreRequest<'_> {
        StoreRequest { id: self.id, key: &self.key, action: self.action, cost: self.cost }
    }
}

/// Sends a check or a refund of an `acquire` to the store. When the caller drops the future, the operation still runs to
/// its end, and an admitted check is refunded.
pub(super) async fn ask_to_the_end(limiter: &Limiter, request: StoreRequest<'_>) -> Result<Answer, Error> {
    let shared = limiter.shared();
    if shared.store.is_here() {
        return shared.ask_store(request).await;
    }
    let (owned, asked_by) = (OwnedStoreRequest::of(request), limiter.clone());
    let asking = Box::pin(async move { asked_by.shared().ask_store(owned.request()).await });
    let generation = ProcessGeneration::here();
    InFlight { limiter, request, asking: Some(asking), is_started: false, generation }.await
}

/// An operation that may have been sent to Redis.
struct InFlight<'a> {
    limiter: &'a Limiter,
    request: StoreRequest<'a>,
    /// `None` once it has been answered.
    asking: Option<Asking>,
    is_started: bool,
    generation: ProcessGeneration,
}

impl Future for InFlight<'_> {
    type Output = Result<Answer, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.is_started = true;
        let Some(asking) = &mut self.asking else { return Poll::Pending };
        let answer = asking.as_mut().poll(cx);
        if answer.is_ready() {
            self.asking = None;
        }
        answer
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Some(asking) = self.asking.take() else { return };
        if !self.generation.is_here() {
            // The parent process awaits the answer with its own copy.
            return fork::leave(asking);
        }
        if !self.is_started {
            return;
        }
        let (limiter, owned) = (self.limiter.clone(), OwnedStoreRequest::of(self.request));
        in_background(self.limiter.shared(), async move {
            if let Ok((decision, _)) = asking.await
                && owned.action == CHECK
                && is_spent(&decision)
            {
                refund(&limiter, owned.request()).await;
            }
        });
    }
}

/// Units that the store has spent for a caller that waits out its delay.
pub(super) struct Admission<'a> {
    limiter: &'a Limiter,
    request: StoreRequest<'a>,
    is_spent: bool,
    generation: ProcessGeneration,
}

impl<'a> Admission<'a> {
    pub(super) fn new(limiter: &'a Limiter, request: StoreRequest<'a>, decision: &Decision) -> Self {
        Self { limiter, request, is_spent: is_spent(decision), generation: ProcessGeneration::here() }
    }

    /// The delay is over, and the caller uses the units.
    pub(super) fn keep(mut self) {
        self.is_spent = false;
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        // In a forked child this is a copy, and the units belong to the parent.
        if !self.is_spent || !self.generation.is_here() {
            return;
        }
        let shared = self.limiter.shared();
        if shared.is_closed() {
            return;
        }
        if shared.store.is_here() {
            let refund = StoreRequest { action: REFUND, ..self.request };
            // If the store cannot refund, the units stay spent.
            if shared.store.ask_blocking(refund).is_ok() {
                shared.answered(refund);
            }
            return;
        }
        let (limiter, owned) = (self.limiter.clone(), OwnedStoreRequest::of(self.request));
        in_background(shared, async move { refund(&limiter, owned.request()).await });
    }
}

fn is_spent(decision: &Decision) -> bool {
    decision.allowed && !decision.source().is_outage()
}

async fn refund(limiter: &Limiter, request: StoreRequest<'_>) {
    let (shared, refund) = (limiter.shared(), StoreRequest { action: REFUND, ..request });
    if shared.ask_store(refund).await.is_ok() {
        shared.answered(refund);
    }
}

/// Runs a task on the limiter's own thread; a closed limiter drops it.
fn in_background(shared: &Shared, task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(driver) = shared.driver() {
        driver.spawn(task);
    }
}
