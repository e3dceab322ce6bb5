//! Finished calls, handed to a foreign event loop in batches: one wake-up, many results.
//!
//! An event loop of another language cannot poll futures, and waking it takes longer than a decision. So the calls that it
//! starts are kept here. When some of them can progress, the loop is woken once. It then polls those calls on its own
//! thread and takes their results.

mod deferred;
mod pending_call;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;

use crate::limiter::Limiter;
use crate::limiter::call::{Answer, Call};
use crate::limiter::completion::deferred::{DeferredCalls, Finished};
use crate::limiter::completion::pending_call::{CallResult, Claim, PendingCall, StartedCall, start};
use crate::limiter::owned_call::OwnedCall;
use crate::store::Store;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_runtime::atomic::{AtomicU8, Ordering};
use polylimit_runtime::fork::{self, ProcessGeneration};

/// The calls that one event loop waits for, each with a tag by which the loop identifies it.
///
/// A program calls [`Raw::try_call`](crate::raw::Raw::try_call) first and submits only calls that have to wait:
///
/// ```
/// use std::sync::mpsc::channel;
/// use polylimit::raw::{Answer, Call, Completions};
/// use polylimit::Limiter;
///
/// # fn example() -> Result<(), polylimit::Error> {
/// let limiter = Limiter::builder().store("redis://localhost").build()?;
/// let (wake, woken) = channel();
/// let completions = Completions::new(move || _ = wake.send(()));
/// let check = Call::Check(polylimit::Request::new("user:42").policy("100/minute"));
/// let answer = limiter.raw().try_call(&check).or_else(|| completions.submit(&limiter, &check, "first"));
/// if answer.is_none() {
///     while completions.pending() > 0 && woken.recv().is_ok() {
///         completions.drain(|tag, answer| println!("{tag}: {answer:?}"));
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Completions<T> {
    /// `None` only while this is dropped in a forked child.
    parts: Option<Parts<T>>,
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
    /// How many of them were cancelled and not polled since.
    cancelled: usize,
    /// Calls that finished while another call was started.
    finished: Vec<Undelivered<T>>,
    started: u64,
}

/// A finished call that the loop has not taken yet.
struct Undelivered<T> {
    finished: Finished<T>,
    claim: Option<Arc<Claim>>,
}

struct Running<T> {
    number: u64,
    /// `None` once the call has finished or was cancelled.
    call: Option<(T, PendingCall)>,
    claim: Option<Arc<Claim>>,
    /// Causes the call to be polled again.
    waker: Option<Waker>,
}

impl<T: Unpin> Future for Running<T> {
    /// The number of the call, its tag and its answer; `None` for a call that was cancelled.
    type Output = Option<(u64, Undelivered<T>)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((_, pending)) = &mut self.call else { return Poll::Ready(None) };
        let Poll::Ready(answer) = pending.as_mut().poll(context) else {
            if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                self.waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        };
        let (number, claim) = (self.number, self.claim.take());
        Poll::Ready(self.call.take().map(|(tag, _)| (number, Undelivered { finished: (tag, answer), claim })))
    }
}

/// How often calls that are woken while being polled are polled again before the loop continues.
const MAX_POLLS: usize = 3;

impl<T: Unpin> Calls<T> {
    /// Keeps a call until it is polled; returns its number.
    fn add(&mut self, tag: T, StartedCall { pending, claim }: StartedCall) -> u64 {
        let number = self.started;
        self.started += 1;
        self.running.push(Running { number, call: Some((tag, pending)), claim, waker: None });
        number
    }

    /// Polls the calls that can progress and keeps the answers for the loop. Returns the answer to the call `added`, if it
    /// has finished.
    fn poll(
        &mut self,
        waker: &Waker,
        polling: &Polling<'_>,
        added: Option<u64>,
    ) -> Option<Result<Answer, Error>> {
        let mut known = None;
        let mut context = Context::from_waker(waker);
        for _ in 0..MAX_POLLS {
            // `FuturesUnordered` yields to other tasks after it has polled every future once. There are none here, so
            // polling continues.
            while let Poll::Ready(Some(finished)) = self.running.poll_next_unpin(&mut context) {
                match finished {
                    Some((number, call)) if Some(number) == added => known = Some(call.finished.1),
                    Some((_, call)) => self.finished.push(call),
                    None => self.cancelled -= 1,
                }
            }
            if !polling.again() {
                return known;
            }
        }
        // Polling continues when the loop runs again.
        waker.wake_by_ref();
        known
    }
}

impl<T: PartialEq> Calls<T> {
    /// Takes the answer of an acquire or a reserve that has finished, for a caller that no longer wants it.
    fn take_unused(&mut self, tag: &T) -> Option<(CallResult, Arc<Claim>)> {
        let found = self.finished.iter().position(|call| call.claim.is_some() && call.finished.0 == *tag)?;
        let Undelivered { finished: (_, answer), claim } = self.finished.remove(found);
        claim.map(|claim| (answer, claim))
    }
}

impl<T: Send + Unpin + 'static> Completions<T> {
    /// `wake` wakes the event loop. It may be called on any thread, at most once until the loop calls
    /// [`drain`](Self::drain), and must not call these completions.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let wake = Arc::new(WakeOnce { state: AtomicU8::new(0), wake: Box::new(wake) });
        let calls =
            Calls { running: FuturesUnordered::new(), cancelled: 0, finished: Vec::new(), started: 0 };
        let waker = Waker::from(Arc::clone(&wake));
        let parts = Parts { submitted: Mutex::new(calls), deferred: DeferredCalls::new(waker.clone()) };
        Self { parts: Some(parts), wake, waker, generation: ProcessGeneration::here() }
    }

    /// Starts a call that [`Raw::try_call`](crate::raw::Raw::try_call) did not answer. Returns the answer if the call finishes
    /// without waiting; otherwise [`drain`](Self::drain) hands it out. When the limiter is closed meanwhile, the call fails with
    /// [`Closed`](ErrorKind::Closed).
    pub fn submit(&self, limiter: &Limiter, call: &Call<'_>, tag: T) -> Option<Result<Answer, Error>> {
        let started = self.parts().and_then(|parts| Ok((parts, start(limiter, OwnedCall::of(call))?)));
        let (parts, started) = match started {
            Ok(started) => started,
            Err(error) => return Some(Err(error)),
        };
        let mut calls = parts.submitted.lock();
        let added = calls.add(tag, started);
        self.poll_added(parts, &mut calls, Some(added))
    }

    /// Polls after a call was added, so that it is sent. Other calls that finish meanwhile wait for the loop.
    fn poll_added(
        &self,
        parts: &Parts<T>,
        calls: &mut Calls<T>,
        added: Option<u64>,
    ) -> Option<Result<Answer, Error>> {
        let polling = self.wake.polling(false);
        let known = calls.poll(&self.waker, &polling, added);
        // A wake-up for a finished call may have been mistaken for one of a call that was polled.
        if !calls.finished.is_empty() || parts.deferred.has_finished() {
            self.waker.wake_by_ref();
        }
        known
    }

    /// As [`submit`](Self::submit), but [`flush`](Self::flush) starts the call, together with all others that are
    /// deferred: for loops that know when they have no more calls for the moment. Once many calls are deferred, they
    /// are started without it. Several calls run on the thread that drives the limiter's connections, which is woken
    /// once for all of them, and cannot be cancelled. An acquire is better submitted: most of them need no waiting,
    /// which is known only once they are started. With the local store, which has no connections, the call is
    /// submitted.
    ///
    /// Returns an error if the call cannot be deferred.
    pub fn defer(&self, limiter: &Limiter, call: &Call<'_>, tag: T) -> Option<Result<Answer, Error>> {
        if matches!(limiter.shared().store(), Store::Local(_)) {
            return self.submit(limiter, call, tag);
        }
        match self.parts() {
            Ok(parts) => parts.deferred.defer(limiter, OwnedCall::of(call), tag),
            Err(error) => return Some(Err(error)),
        }
        None
    }

    /// Starts the deferred calls.
    pub fn flush(&self) {
        let Ok(parts) = self.parts() else { return };
        // Under the lock, so that the call counts as pending throughout.
        let mut calls = parts.submitted.lock();
        let Some((limiter, tag, call)) = parts.deferred.take_single() else {
            drop(calls);
            return parts.deferred.start();
        };
        // Waking another thread takes longer than starting a single call here.
        match start(&limiter, call) {
            Ok(started) => _ = calls.add(tag, started),
            Err(error) => {
                calls.finished.push(Undelivered { finished: (tag, Err(error)), claim: None });
            }
        }
        self.poll_added(parts, &mut calls, None);
    }

    /// Hands out the answers to finished calls, each with its tag.
    pub fn drain(&self, mut each: impl FnMut(T, Result<Answer, Error>)) {
        let Ok(parts) = self.parts() else { return };
        let mut finished: Vec<_>;
        {
            let mut calls = parts.submitted.lock();
            // A call that finishes from now on wakes the loop again.
            let polling = self.wake.polling(true);
            calls.poll(&self.waker, &polling, None);
            finished = calls.finished.drain(..).map(|call| call.finished).collect();
            parts.deferred.take_finished(&mut finished);
        }
        for (tag, answer) in finished {
            each(tag, answer);
        }
    }

    /// Cancels the call with this tag; of several calls with one tag, any one of them. An [`acquire`](Limiter::acquire) leaves the
    /// queue, and units that the store has spent for it are refunded; a reservation is cancelled; another operation may have been
    /// applied. An acquire and a reserve can be cancelled until [`drain`](Self::drain) hands out their answers, any other call until
    /// it has finished. Returns whether there was such a call.
    pub fn cancel(&self, tag: &T) -> bool
    where
        T: PartialEq,
    {
        let Ok(parts) = self.parts() else { return false };
        let mut calls = parts.submitted.lock();
        let cancelled = calls
            .running
            .iter_mut()
            .find(|running| running.call.as_ref().is_some_and(|(other, _)| other == tag))
            .and_then(|running| running.call.take().map(|call| (call, running.waker.take())));
        calls.cancelled += usize::from(cancelled.is_some());
        let unused = if cancelled.is_none() { calls.take_unused(tag) } else { None };
        // None of them is dropped or called under the lock, because all may wake the loop.
        drop(calls);
        if let Some((answer, claim)) = unused {
            claim.give_back(&answer);
            return true;
        }
        let Some((call, waker)) = cancelled else { return false };
        drop(call);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// The number of calls that were started and neither handed out nor cancelled yet.
    pub fn pending(&self) -> usize {
        self.parts().map_or(0, |Parts { submitted, deferred }| {
            let calls = submitted.lock();
            calls.running.len() - calls.cancelled + calls.finished.len() + deferred.pending()
        })
    }

    /// Whether this process created these completions: a forked child has to create its own.
    pub fn is_here(&self) -> bool {
        self.generation.is_here()
    }

    fn parts(&self) -> Result<&Parts<T>, Error> {
        self.parts.as_ref().filter(|_| self.is_here()).ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "these completions belong to the parent process: create others in a forked child",
            )
        })
    }
}

impl<T> Drop for Completions<T> {
    fn drop(&mut self) {
        if !self.generation.is_here() {
            // A thread that does not exist in this process may hold a lock.
            fork::leave(self.parts.take());
        }
    }
}

impl<T> std::fmt::Debug for Completions<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completions").finish_non_exhaustive()
    }
}

/// Wakes the loop only once until it drains.
struct WakeOnce {
    /// [`WOKEN`], [`POLLING`] or both.
    state: AtomicU8,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The loop was woken and has not drained yet. Together with [`POLLING`]: a call has to be polled again.
const WOKEN: u8 = 1;
/// A thread polls the calls. A wake-up meanwhile sets [`WOKEN`] and does not wake the loop.
const POLLING: u8 = 2;

impl Wake for WakeOnce {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) == 0 {
            (self.wake)();
        }
    }
}

impl WakeOnce {
    /// With `is_loop`, it is the event loop that polls, and it takes all results for which it was woken.
    fn polling(&self, is_loop: bool) -> Polling<'_> {
        let before = self.state.swap(POLLING, Ordering::AcqRel);
        Polling { wake: self, was_woken: !is_loop && before & WOKEN != 0 }
    }
}

/// Exists while calls are polled.
struct Polling<'a> {
    wake: &'a WakeOnce,
    /// Whether the loop was already woken and will drain anyway.
    was_woken: bool,
}

impl Polling<'_> {
    /// Whether a call was woken since the last call of this method.
    fn again(&self) -> bool {
        self.wake.state.swap(POLLING, Ordering::AcqRel) & WOKEN != 0
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let end = if self.was_woken { WOKEN } else { 0 };
        if self.wake.state.compare_exchange(POLLING, end, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.wake.state.store(WOKEN, Ordering::Release);
            if !self.was_woken {
                (self.wake.wake)();
            }
        }
    }
}

#[cfg(all(test, polylimit_loom))]
mod loom_tests {
    use loom::thread;

    use super::*;

    /// An answer that the loop has not taken wakes the loop again, in any order of events.
    #[test]
    fn no_wake_up_is_lost() {
        let mut model = loom::model::Builder::new();
        // The bound on interruptions of threads in one run: without it the runs take minutes.
        model.preemption_bound = Some(3);
        model.check(|| {
            let answers = loom::sync::Arc::new(AtomicU8::new(0));
            let woken = loom::sync::Arc::new(AtomicU8::new(0));
            let wake = Arc::new(WakeOnce {
                state: AtomicU8::new(0),
                wake: {
                    let woken = loom::sync::Arc::clone(&woken);
                    Box::new(move || woken.store(1, Ordering::Release))
                },
            });
            let drivers = [(); 2].map(|()| {
                let (answers, wake) = (loom::sync::Arc::clone(&answers), Arc::clone(&wake));
                thread::spawn(move || {
                    answers.fetch_add(1, Ordering::Release);
                    Wake::wake_by_ref(&wake);
                })
            });
            // The loop reads its wake-up, polls, and takes the results.
            woken.swap(0, Ordering::AcqRel);
            let polling = wake.polling(true);
            loop {
                answers.swap(0, Ordering::AcqRel);
                if !polling.again() {
                    break;
                }
            }
            drop(polling);
            for driver in drivers {
                driver.join().unwrap();
            }
            let is_woken = woken.load(Ordering::Acquire) == 1;
            assert!(is_woken || answers.load(Ordering::Acquire) == 0);
        });
    }
}
