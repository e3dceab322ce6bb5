//! Finished calls, handed to a foreign event loop in batches: one wake-up, many results.
//!
//! An event loop of another language cannot poll futures, and waking it takes longer than a decision. So what it started
//! is kept here. When something of it can go on, the loop is woken, once, however much there is; when it comes, it polls
//! what can go on, on its own thread, and takes the results along.

mod answering;
pub(crate) mod deferred;
mod owned_call;
mod waiting;
mod wake_once;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;

use self::answering::answering;
use self::owned_call::OwnedCall;
use self::waiting::Answering;
use self::wake_once::{Polling, WakeOnce};
use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::limiter::call::{Answer, Call};
use crate::limiter::completion::deferred::{DeferredCalls, Finished};
use crate::runtime::fork::ProcessGeneration;

/// The calls that one event loop waits for, each with a tag that says to the loop which one it is.
///
/// ```
/// use std::sync::mpsc::channel;
/// use polylimit::{Answer, Call, Completions, Limiter};
///
/// # fn example() -> Result<(), polylimit::Error> {
/// let limiter = Limiter::builder().store("redis://localhost").build()?;
/// let (wake, woken) = channel();
/// let completions = Completions::new(move || _ = wake.send(()));
/// let check = Call::Check(polylimit::Request::new("user:42").policy("100/minute"));
/// if completions.submit(&limiter, &check, "first").is_none() {
///     while completions.pending() > 0 && woken.recv().is_ok() {
///         completions.drain(|tag, answer| println!("{tag}: {answer:?}"));
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Completions<T> {
    /// Always there; taken when it is dropped in a process that is not its own.
    calls: Option<Parts<T>>,
    wake: Arc<WakeOnce>,
    waker: Waker,
    generation: ProcessGeneration,
}

struct Parts<T> {
    submitted: Mutex<Calls<T>>,
    deferred: DeferredCalls<T>,
}

struct Calls<T> {
    running: FuturesUnordered<Running<T>>,
    /// Finished while another call was started.
    finished: Vec<Finished<T>>,
    started: u64,
}

/// A call under way.
struct Running<T> {
    number: u64,
    /// Not there any more once it is over.
    rest: Option<(T, Answering)>,
    /// Has it polled again.
    waker: Option<Waker>,
}

struct Over<T> {
    number: u64,
    tag: T,
    answer: Result<Answer, Error>,
}

impl<T: Unpin> Future for Running<T> {
    /// Nothing for a call that was cancelled.
    type Output = Option<Over<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((_, answering)) = &mut self.rest else { return Poll::Ready(None) };
        let Poll::Ready(answer) = answering.as_mut().poll(context) else {
            if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                self.waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        };
        let number = self.number;
        Poll::Ready(self.rest.take().map(|(tag, _)| Over { number, tag, answer }))
    }
}

/// So many times is polled what wakes while it is polled, before the loop has its turn.
const MAX_POLLS: usize = 3;

impl<T: Unpin> Calls<T> {
    /// Keeps a call until it is polled; gives its number.
    fn add(&mut self, tag: T, answering: Answering) -> u64 {
        let number = self.started;
        self.started += 1;
        self.running.push(Running { number, rest: Some((tag, answering)), waker: None });
        number
    }

    /// Polls what can go on.
    fn poll(&mut self, waker: &Waker, polling: &Polling<'_>, mut each: impl FnMut(Over<T>)) {
        let mut context = Context::from_waker(waker);
        for _ in 0..MAX_POLLS {
            // Having polled every future once, it wakes and waits, so that others have a turn: here there are none.
            while let Poll::Ready(Some(finished)) = self.running.poll_next_unpin(&mut context) {
                if let Some(finished) = finished {
                    each(finished);
                }
            }
            if !polling.again() {
                return;
            }
        }
        // It goes on when the loop comes.
        waker.wake_by_ref();
    }
}

impl<T: Send + Unpin + 'static> Completions<T> {
    /// For a loop that `wake` wakes. It is called on any thread, and once until the loop has called
    /// [`drain`](Self::drain); it must not call anything here.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let wake = Arc::new(WakeOnce::new(wake));
        let calls = Calls { running: FuturesUnordered::new(), finished: Vec::new(), started: 0 };
        let waker = Waker::from(Arc::clone(&wake));
        let parts = Parts { submitted: Mutex::new(calls), deferred: DeferredCalls::new(Arc::clone(&wake)) };
        Self { calls: Some(parts), wake, waker, generation: ProcessGeneration::here() }
    }

    /// Starts a call. If its answer is known at once, that is returned; otherwise a [`drain`](Self::drain) hands it out.
    /// When the limiter is closed meanwhile, it fails with [`Closed`](ErrorKind::Closed).
    pub fn submit(&self, limiter: &Limiter, call: &Call<'_>, tag: T) -> Option<Result<Answer, Error>> {
        if let Some(answer) = limiter.try_call(call) {
            return Some(answer);
        }
        let Parts { submitted, deferred } = match self.parts() {
            Ok(parts) => parts,
            Err(error) => return Some(Err(error)),
        };
        let answering = match answering(limiter, OwnedCall::of(call)) {
            Ok(answering) => answering,
            Err(error) => return Some(Err(error)),
        };
        let mut calls = submitted.lock();
        let number = calls.add(tag, answering);
        let mut known = None;
        self.poll_started(&mut calls, deferred, |over| {
            if over.number == number {
                known = Some(over.answer);
                None
            } else {
                Some((over.tag, over.answer))
            }
        });
        known
    }

    /// Polls after a call was added, so that it is on its way. Those that have finished wait for the loop, as far as `each`
    /// leaves them.
    fn poll_started(
        &self,
        calls: &mut Calls<T>,
        deferred: &DeferredCalls<T>,
        mut each: impl FnMut(Over<T>) -> Option<Finished<T>>,
    ) {
        let mut finished = Vec::new();
        let polling = self.wake.polling(false);
        calls.poll(&self.waker, &polling, |over| finished.extend(each(over)));
        calls.finished.append(&mut finished);
        // A wake-up for one of these may have been taken for one of what is polled.
        if !calls.finished.is_empty() || deferred.has_finished() {
            self.waker.wake_by_ref();
        }
    }

    /// As [`submit`](Self::submit), but a call that has to wait is started by [`flush`](Self::flush), together
    /// with all others that are deferred: for loops that know when they have no more for the moment. Many are started without
    /// that. Several run on the thread that drives the limiter's connections, which is woken once for all of them, and
    /// cannot be cancelled. An acquire is better submitted: mostly it needs no waiting, which is seen only when it is started.
    pub fn defer(&self, limiter: &Limiter, call: &Call<'_>, tag: T) -> Option<Result<Answer, Error>> {
        if let Some(answer) = limiter.try_call(call) {
            return Some(answer);
        }
        match self.parts() {
            Ok(parts) => parts.deferred.defer(limiter, OwnedCall::of(call), tag),
            Err(error) => return Some(Err(error)),
        }
        None
    }

    /// Starts what is deferred.
    pub fn flush(&self) {
        let Ok(Parts { submitted, deferred }) = self.parts() else { return };
        // Under the lock it is pending all the time.
        let mut calls = submitted.lock();
        let Some((limiter, tag, call)) = deferred.take_single() else {
            drop(calls);
            return deferred.start();
        };
        // Nothing goes along with it, and waking another thread takes longer than starting it here.
        match answering(&limiter, call) {
            Ok(answering) => _ = calls.add(tag, answering),
            Err(error) => calls.finished.push((tag, Err(error))),
        }
        self.poll_started(&mut calls, deferred, |Over { tag, answer, .. }| Some((tag, answer)));
    }

    /// Hands out what has finished, each with its tag.
    pub fn drain(&self, mut each: impl FnMut(T, Result<Answer, Error>)) {
        let Ok(parts) = self.parts() else { return };
        let mut finished;
        {
            let mut calls = parts.submitted.lock();
            // What finishes from here on wakes again.
            let polling = self.wake.polling(true);
            finished = std::mem::take(&mut calls.finished);
            calls.poll(&self.waker, &polling, |Over { tag, answer, .. }| finished.push((tag, answer)));
            parts.deferred.take_finished(&mut finished);
        }
        for (tag, answer) in finished {
            each(tag, answer);
        }
    }

    /// Forgets the call with this tag, if it has not finished. A caller that waited in [`acquire`](Limiter::acquire) gives up
    /// its place, and units that the store has spent for it are refunded; another operation may have been applied. Says
    /// whether there was such a call.
    pub fn cancel(&self, tag: &T) -> bool
    where
        T: PartialEq,
    {
        let Ok(parts) = self.parts() else { return false };
        let mut calls = parts.submitted.lock();
        let cancelled = calls
            .running
            .iter_mut()
            .find(|running| running.rest.as_ref().is_some_and(|(other, _)| other == tag))
            .and_then(|running| running.rest.take().map(|rest| (rest, running.waker.take())));
        // Neither may be dropped or called under the lock: others wake the loop from there.
        drop(calls);
        let Some((rest, waker)) = cancelled else { return false };
        drop(rest);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// How many calls were started and not handed out yet.
    pub fn pending(&self) -> usize {
        self.parts().map_or(0, |Parts { submitted, deferred }| {
            let calls = submitted.lock();
            calls.running.len() + calls.finished.len() + deferred.pending()
        })
    }

    /// Whether this is the process that they were made in: one that was forked from it has to make others.
    pub fn is_here(&self) -> bool {
        self.generation.is_here()
    }

    fn parts(&self) -> Result<&Parts<T>, Error> {
        self.calls.as_ref().filter(|_| self.is_here()).ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "these completions belong to the process that this one was forked from: make others",
            )
        })
    }
}

impl<T> Drop for Completions<T> {
    fn drop(&mut self) {
        if !self.generation.is_here() {
            // What they wait for is in another process; a thread that is not here may hold a lock.
            crate::runtime::fork::leave(self.calls.take());
        }
    }
}

impl<T> std::fmt::Debug for Completions<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completions").finish_non_exhaustive()
    }
}
