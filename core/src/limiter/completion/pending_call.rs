//! A started call, as a future that any thread and any executor can poll.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::{Either, FutureExt};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, Receiver, Sender};

use crate::limiter::call::{Answer, Call};
use crate::limiter::owned_call::{OwnedCall, OwnedRequest};
use crate::limiter::together::Together;
use crate::limiter::{CHECK, KeyCall, Limiter, RESERVE};
use polylimit_rules::decision::Decision;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::request::Request;
use polylimit_rules::reservation::list::Hold;
use polylimit_runtime::close_signal::closed;

pub(crate) type CallResult = Result<Answer, Error>;
pub(crate) type PendingCall = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// A call that was started.
pub(crate) struct StartedCall {
    pub(crate) pending: PendingCall,
    /// For a call that may leave units with its caller.
    pub(crate) claim: Option<Arc<Claim>>,
}

/// Starts a call that [`Raw::try_call`](crate::raw::Raw::try_call) did not answer.
pub(crate) fn start(limiter: &Limiter, call: OwnedCall) -> Result<StartedCall, Error> {
    let (shared, needs_timer) = (limiter.shared(), call.needs_timer(limiter.shared().store()));
    let runtime = if shared.store().is_here() && !needs_timer {
        None
    } else {
        match shared.driver().and_then(|driver| driver.running()) {
            Ok(running) => Some(running.handle().clone()),
            // The outage policy answers.
            Err(error) if error.kind() == ErrorKind::StoreUnavailable && !needs_timer => None,
            Err(error) => return Err(error),
        }
    };
    let waits_in_line = matches!(call, OwnedCall::Acquire(..) | OwnedCall::ReserveInLine(..));
    let claim = Claim::of(limiter, &call).map(Arc::new);
    let owner = limiter.clone();
    let pending: PendingCall = Box::pin(async move {
        let is_closed = || owner.shared().closing.is_closed();
        let mut answer = pin!(AssertUnwindSafe(call.run(&owner)).catch_unwind());
        poll_fn(|cx| {
            if is_closed() {
                // The runtime may have ended, and its timers are no longer usable.
                return Poll::Ready(Err(closed()));
            }
            let _entered = runtime.as_ref().map(Handle::enter);
            let answer = answer.as_mut().poll(cx);
            answer
                .map(|answer| answer.unwrap_or_else(|_| Err(if is_closed() { closed() } else { panicked() })))
        })
        .await
    });
    let pending = match &claim {
        Some(claim) if waits_in_line => {
            let state = QueuedState { claim: Arc::clone(claim), pending: Mutex::new(Some(pending)) };
            Box::pin(QueuedCall { state: Arc::new(state), answer: None })
        }
        _ => pending,
    };
    Ok(StartedCall { pending, claim })
}

/// The units that a call may get for its caller.
pub(crate) struct Claim {
    limiter: Limiter,
    claimed: Claimed,
}

enum Claimed {
    /// Those of an acquire, or of a reserve with its reservation.
    One(OwnedRequest, Option<Hold>),
    /// Those of requests that are reserved together.
    Together(Vec<OwnedRequest>, Hold),
    /// The reservations of a request by its attributes.
    Decided,
}

impl Claim {
    fn of(limiter: &Limiter, call: &OwnedCall) -> Option<Self> {
        let claimed = match call {
            OwnedCall::Acquire(request, _) => Claimed::One(request.clone(), None),
            OwnedCall::ReserveInLine(request, terms) => Claimed::One(request.clone(), Some(terms.hold())),
            OwnedCall::OneKey(request, action, hold) if *action == RESERVE => {
                Claimed::One(request.clone(), *hold)
            }
            OwnedCall::Many(requests, Some(Together::Reserve(terms))) => {
                Claimed::Together(requests.clone(), terms.hold())
            }
            OwnedCall::Decide(..) => Claimed::Decided,
            _ => return None,
        };
        Some(Self { limiter: limiter.clone(), claimed })
    }

    /// Gives back an admission that the caller does not receive.
    pub(crate) fn give_back(&self, answer: &CallResult) {
        match (&self.claimed, answer) {
            (Claimed::One(request, hold), Ok(Answer::Decision(decision))) => {
                let action = if hold.is_some() { RESERVE } else { CHECK };
                self.give_back_one(&KeyCall { action, request: request.request(), hold: *hold }, decision);
            }
            (Claimed::Together(requests, hold), Ok(Answer::Decisions(decisions))) => {
                let decisions: Vec<_> = decisions.iter().flatten().collect();
                if decisions.iter().any(|decision| !decision.allowed) {
                    return;
                }
                for (request, decision) in requests.iter().zip(decisions) {
                    if !decision.shadowed
                        && !decision.elastic
                        && let Ok(call) = self.limiter.reserving_call(request.request(), *hold)
                    {
                        self.give_back_one(&call, decision);
                    }
                }
            }
            (Claimed::Decided, Ok(Answer::Request(decided))) => {
                for made in &decided.decisions {
                    if let Some(id) = made.reservation {
                        let request = Request::new(&made.key).policy(&made.policy);
                        self.limiter.call_in_background(&Call::Cancel(request, id));
                    }
                }
            }
            _ => {}
        }
    }

    fn give_back_one(&self, call: &KeyCall<'_>, decision: &Decision) {
        if let Ok(request) = self.limiter.shared().key_request(call) {
            self.limiter.give_back_unused(request, decision);
        }
    }
}

pub(crate) fn panicked() -> Error {
    Error::new(ErrorKind::Internal, "polylimit panicked: this is a defect in it")
}

impl Limiter {
    /// The call as a future that any executor can poll, inside or outside of a tokio runtime, and that owns its arguments. A
    /// call that needs no waiting is answered before this returns. A dropped future leaves the queue, as with
    /// [`acquire`](Self::acquire). When the limiter is closed meanwhile, the call fails with [`Closed`](ErrorKind::Closed).
    pub fn start(
        &self,
        call: &Call<'_>,
    ) -> impl Future<Output = Result<Answer, Error>> + Send + Unpin + 'static + use<> {
        match self.raw().try_call(call).map_or_else(|| start(self, OwnedCall::of(call)).map_err(Err), Err) {
            Ok(started) => Either::Left(started.pending),
            Err(answer) => Either::Right(std::future::ready(answer)),
        }
    }
}

/// An acquire, or a reserve that waits in line. It may hold the turn for which the callers behind it wait, so it waits
/// on the thread that drives the limiter, and its caller only receives the answer: an event loop that is blocked or
/// stopped delays no other caller.
struct QueuedCall {
    state: Arc<QueuedState>,
    /// Receives the answer; `None` before the first poll, because most acquires need no waiting.
    answer: Option<Receiver<CallResult>>,
}

struct QueuedState {
    claim: Arc<Claim>,
    /// `None` once the call has finished or was cancelled.
    pending: Mutex<Option<PendingCall>>,
}

impl Future for QueuedCall {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        let Self { state, answer } = &mut *self;
        let receiver = if let Some(receiver) = answer {
            receiver
        } else {
            // The limiter's thread starts by polling the call again, so no wake-up is lost.
            if let Poll::Ready(answer) = state.poll(&mut Context::from_waker(Waker::noop())) {
                state.leave();
                return Poll::Ready(answer);
            }
            let (sender, receiver) = oneshot::channel();
            state.claim.limiter.shared().driver()?.spawn(Arc::clone(state).wait(sender));
            answer.insert(receiver)
        };
        Pin::new(receiver).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(closed())))
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        // The place in the queue is free at once. The task ends when it finds the channel closed.
        self.state.leave();
        if let Some(receiver) = &mut self.answer {
            receiver.close();
            if let Ok(unused) = receiver.try_recv() {
                self.state.claim.give_back(&unused);
            }
        }
    }
}

impl QueuedState {
    async fn wait(self: Arc<Self>, mut sender: Sender<CallResult>) {
        let answer = tokio::select! {
            biased;
            () = sender.closed() => return,
            answer = poll_fn(|cx| self.poll(cx)) => answer,
        };
        self.leave();
        if let Err(unused) = sender.send(answer) {
            self.claim.give_back(&unused);
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<CallResult> {
        match &mut *self.pending.lock() {
            Some(pending) => pending.as_mut().poll(cx),
            None => Poll::Ready(Err(closed())),
        }
    }

    fn leave(&self) {
        let pending = self.pending.lock().take();
        // Dropped after the lock is released: the next caller in the queue may be woken here.
        drop(pending);
    }
}
