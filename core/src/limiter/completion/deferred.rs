//! Calls that are deferred until their loop has no more of them, and then started together, on the thread that drives the
//! connections; one alone is started by its loop.
//!
//! Waking that thread takes longer than a decision, and what waits together goes together: so it is woken once for all, and
//! finds all of them. It hands their answers back in the same way.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::limiter::call::Answer;
use crate::limiter::completion::answering::panicked;
use crate::limiter::completion::owned_call::OwnedCall;
use crate::limiter::completion::wake_once::WakeOnce;
use crate::runtime::close_signal::{CloseSignal, closed};

/// The tag of a call and what it came to.
pub(crate) type Finished<T> = (T, Result<Answer, Error>);

/// So many are started without waiting for more: the server then works on them while their loop goes on asking.
const MAX_DEFERRED: usize = 16;

pub(crate) struct DeferredCalls<T> {
    waiting: Mutex<Vec<(Limiter, DeferredCall<T>)>>,
    home: Arc<Home<T>>,
    /// How many were deferred and not handed out yet.
    pending: AtomicUsize,
}

/// Where answers are handed out.
struct Home<T> {
    finished: Mutex<Vec<Finished<T>>>,
    wake: Arc<WakeOnce>,
    /// Closed when the loop is gone.
    left: CloseSignal,
}

impl<T> Home<T> {
    fn take_in(&self, finished: impl IntoIterator<Item = Finished<T>>) {
        self.finished.lock().extend(finished);
        self.wake.wake_once();
    }
}

impl<T: Send + 'static> DeferredCalls<T> {
    pub(crate) fn new(wake: Arc<WakeOnce>) -> Self {
        let home = Arc::new(Home { finished: Mutex::default(), wake, left: CloseSignal::default() });
        Self { waiting: Mutex::default(), home, pending: AtomicUsize::new(0) }
    }

    pub(crate) fn defer(&self, limiter: &Limiter, call: OwnedCall, tag: T) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let owed = DeferredCall { call: Some((tag, call)), home: Arc::clone(&self.home) };
        let deferred = {
            let mut waiting = self.waiting.lock();
            waiting.push((limiter.clone(), owed));
            waiting.len()
        };
        if deferred >= MAX_DEFERRED {
            self.start();
        }
    }

    /// The only one that is deferred, if no other was started that has not been handed out either.
    pub(crate) fn take_single(&self) -> Option<(Limiter, T, OwnedCall)> {
        if self.pending() != 1 {
            return None;
        }
        let (limiter, mut owed) = self.waiting.lock().pop()?;
        let (tag, call) = owed.call.take()?;
        self.pending.fetch_sub(1, Ordering::Relaxed);
        Some((limiter, tag, call))
    }

    /// Starts them, those of one limiter in the order in which they were deferred.
    pub(crate) fn start(&self) {
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        while let Some((limiter, _)) = waiting.first() {
            let limiter = limiter.clone();
            let is_its = |(other, _): &(Limiter, _)| std::ptr::eq(other.shared(), limiter.shared());
            let (its, others): (Vec<_>, _) = waiting.into_iter().partition(is_its);
            start(&limiter, its.into_iter().map(|(_, owed)| owed).collect(), &self.home);
            waiting = others;
        }
    }

    pub(crate) fn has_finished(&self) -> bool {
        !self.home.finished.lock().is_empty()
    }

    pub(crate) fn take_finished(&self, into: &mut Vec<Finished<T>>) {
        let mut finished = self.home.finished.lock();
        self.pending.fetch_sub(finished.len(), Ordering::Relaxed);
        into.append(&mut finished);
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }
}

impl<T> Drop for DeferredCalls<T> {
    fn drop(&mut self) {
        self.home.left.close();
    }
}

/// A call that is owed an answer: it has one even if it is dropped.
struct DeferredCall<T> {
    /// Not there any more once it is answered.
    call: Option<(T, OwnedCall)>,
    home: Arc<Home<T>>,
}

impl<T> DeferredCall<T> {
    /// Does what is asked.
    async fn run(mut self, limiter: &Limiter) -> Option<Finished<T>> {
        let (_, call) = self.call.as_ref()?;
        let answer = call.run(limiter).await;
        self.call.take().map(|(tag, _)| (tag, answer))
    }
}

impl<T> Drop for DeferredCall<T> {
    fn drop(&mut self) {
        if let Some((tag, _)) = self.call.take() {
            let error = if std::thread::panicking() { panicked() } else { closed() };
            self.home.take_in([(tag, Err(error))]);
        }
    }
}

fn start<T: Send + 'static>(limiter: &Limiter, calls: Vec<DeferredCall<T>>, home: &Arc<Home<T>>) {
    match limiter.shared().driver() {
        // Where it does not run, the calls are dropped, which answers them.
        Ok(driver) => driver.spawn(run(limiter.clone(), calls, Arc::clone(home))),
        Err(error) => start_without_thread(limiter, calls, home, &error),
    }
}

/// Where the system gives no thread to work on them, the outage policy answers at once what waits for the store alone.
#[cold]
fn start_without_thread<T: Send + 'static>(
    limiter: &Limiter,
    calls: Vec<DeferredCall<T>>,
    home: &Arc<Home<T>>,
    error: &Error,
) {
    let is_refused = |owed: &DeferredCall<T>| {
        let needs_timer = owed.call.as_ref().is_some_and(|(_, call)| call.needs_timer());
        error.kind() != ErrorKind::StoreUnavailable || needs_timer
    };
    let (refused, calls): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_refused);
    let told = |mut owed: DeferredCall<T>| Some((owed.call.take()?.0, Err(error.clone())));
    home.take_in(refused.into_iter().filter_map(told));
    let mut running = Box::pin(run(limiter.clone(), calls, Arc::clone(home)));
    if running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
        && let Ok(driver) = limiter.shared().driver()
    {
        // There is one by now, and the store was asked.
        driver.spawn(running);
    }
}

/// Does all of them, and hands over together what is answered at the same time.
async fn run<T: Send + 'static>(limiter: Limiter, calls: Vec<DeferredCall<T>>, home: Arc<Home<T>>) {
    let mut left = pin!(home.left.closed());
    let mut running: FuturesUnordered<_> = calls.into_iter().map(|owed| owed.run(&limiter)).collect();
    poll_fn(|cx| {
        let mut finished = Vec::new();
        let over = loop {
            match running.poll_next_unpin(cx) {
                Poll::Ready(Some(one)) => finished.extend(one),
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        if !finished.is_empty() {
            home.take_in(finished);
        }
        // What has no loop to hear of it is dropped.
        if over { Poll::Ready(()) } else { left.as_mut().poll(cx) }
    })
    .await;
}
