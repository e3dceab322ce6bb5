//! Calls that are deferred until their event loop has no more of them, and are then started together, on the thread that
//! drives the connections. The loop itself starts a single one.
//!
//! Waking that thread takes longer than a decision, and calls that are started together share a batch. So the thread is
//! woken once for all of them, and hands their answers back in the same way.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;

use crate::limiter::Limiter;
use crate::limiter::completion::pending_call::{CallResult, panicked};
use crate::limiter::owned_call::OwnedCall;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_runtime::close_signal::{CloseSignal, closed};

/// The tag of a call and its answer.
pub(crate) type Finished<T> = (T, CallResult);

/// The number of calls that are started without waiting for more: the server works on them while the loop makes other calls.
const MAX_DEFERRED: usize = 16;

pub(crate) struct DeferredCalls<T> {
    waiting: Mutex<Vec<(Limiter, DeferredCall<T>)>>,
    results: Arc<Results<T>>,
    /// How many calls were deferred and not handed out yet.
    pending: AtomicUsize,
}

/// The answers for the loop.
struct Results<T> {
    finished: Mutex<Vec<Finished<T>>>,
    waker: Waker,
    /// Closed when the loop has ended.
    left: CloseSignal,
}

impl<T> Results<T> {
    fn add(&self, finished: impl IntoIterator<Item = Finished<T>>) {
        self.finished.lock().extend(finished);
        self.waker.wake_by_ref();
    }
}

impl<T: Send + 'static> DeferredCalls<T> {
    /// `waker` wakes the loop.
    pub(crate) fn new(waker: Waker) -> Self {
        let results = Arc::new(Results { finished: Mutex::default(), waker, left: CloseSignal::default() });
        Self { waiting: Mutex::default(), results, pending: AtomicUsize::new(0) }
    }

    pub(crate) fn defer(&self, limiter: &Limiter, call: OwnedCall, tag: T) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let deferred = DeferredCall { call: Some((tag, call)), results: Arc::clone(&self.results) };
        let count = {
            let mut waiting = self.waiting.lock();
            waiting.push((limiter.clone(), deferred));
            waiting.len()
        };
        if count >= MAX_DEFERRED {
            self.start();
        }
    }

    /// The deferred call, if it is the only one that has not been handed out yet.
    pub(crate) fn take_single(&self) -> Option<(Limiter, T, OwnedCall)> {
        if self.pending() != 1 {
            return None;
        }
        let (limiter, mut deferred) = self.waiting.lock().pop()?;
        let (tag, call) = deferred.call.take()?;
        self.pending.fetch_sub(1, Ordering::Relaxed);
        Some((limiter, tag, call))
    }

    /// Starts the calls, those of one limiter in the order in which they were deferred.
    pub(crate) fn start(&self) {
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        while let Some((limiter, _)) = waiting.first() {
            let limiter = limiter.clone();
            let is_its = |(other, _): &(Limiter, _)| std::ptr::eq(other.shared(), limiter.shared());
            let (its, others): (Vec<_>, _) = waiting.into_iter().partition(is_its);
            let calls = its.into_iter().map(|(_, deferred)| deferred).collect();
            match limiter.shared().driver() {
                // A closed driver drops the calls, which answers them.
                Ok(driver) => driver.spawn(run(limiter, calls, Arc::clone(&self.results))),
                Err(error) => start_without_thread(&limiter, calls, &self.results, &error),
            }
            waiting = others;
        }
    }

    pub(crate) fn has_finished(&self) -> bool {
        !self.results.finished.lock().is_empty()
    }

    pub(crate) fn take_finished(&self, into: &mut Vec<Finished<T>>) {
        let mut finished = self.results.finished.lock();
        self.pending.fetch_sub(finished.len(), Ordering::Relaxed);
        into.append(&mut finished);
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }
}

impl<T> Drop for DeferredCalls<T> {
    fn drop(&mut self) {
        self.results.left.close();
    }
}

/// A call that gets an answer even if it is dropped.
struct DeferredCall<T> {
    /// `None` once the call is answered.
    call: Option<(T, OwnedCall)>,
    results: Arc<Results<T>>,
}

impl<T> DeferredCall<T> {
    async fn run(mut self, limiter: &Limiter) -> Option<Finished<T>> {
        let (_, call) = self.call.as_ref()?;
        let answer = call.boxed(limiter).await;
        self.call.take().map(|(tag, _)| (tag, answer))
    }
}

impl<T> Drop for DeferredCall<T> {
    fn drop(&mut self) {
        if let Some((tag, _)) = self.call.take() {
            let error = if std::thread::panicking() { panicked() } else { closed() };
            self.results.add([(tag, Err(error))]);
        }
    }
}

/// The system has no thread to work on the calls: the outage policy answers those that need only the store.
#[cold]
fn start_without_thread<T: Send + 'static>(
    limiter: &Limiter,
    calls: Vec<DeferredCall<T>>,
    results: &Arc<Results<T>>,
    error: &Error,
) {
    let store = limiter.shared().store();
    let is_refused = |deferred: &DeferredCall<T>| {
        let needs_timer = deferred.call.as_ref().is_some_and(|(_, call)| call.needs_timer(store));
        error.kind() != ErrorKind::StoreUnavailable || needs_timer
    };
    let (refused, calls): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_refused);
    let refuse = |mut deferred: DeferredCall<T>| Some((deferred.call.take()?.0, Err(error.clone())));
    results.add(refused.into_iter().filter_map(refuse));
    let mut running = Box::pin(run(limiter.clone(), calls, Arc::clone(results)));
    if running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
        && let Ok(driver) = limiter.shared().driver()
    {
        // By now the system has a thread, and the calls were sent to the store.
        driver.spawn(running);
    }
}

/// Performs all calls, and hands over answers that arrive at the same time in one batch.
async fn run<T: Send + 'static>(limiter: Limiter, calls: Vec<DeferredCall<T>>, results: Arc<Results<T>>) {
    let mut left = pin!(results.left.closed());
    let mut running: FuturesUnordered<_> = calls.into_iter().map(|call| call.run(&limiter)).collect();
    poll_fn(|cx| {
        let mut finished = Vec::new();
        let is_over = loop {
            match running.poll_next_unpin(cx) {
                Poll::Ready(Some(one)) => finished.extend(one),
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        if !finished.is_empty() {
            results.add(finished);
        }
        // Without a loop the calls are dropped.
        if is_over { Poll::Ready(()) } else { left.as_mut().poll(cx) }
    })
    .await;
}
