//! Deadlines of pending operations: a queued operation is answered when its deadline passes, whatever the task awaits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use atomic_waker::AtomicWaker;
use tokio::time::sleep_until;

use crate::runtime::monotonic;
use crate::store::redis::pipeline::queue::Queue;
use crate::store::redis::transport::failure::Failure;

/// Awaits a future and meanwhile answers every queued operation whose deadline passes with `late`. An operation that arrives in
/// the queue wakes the task, which polls the future as well.
pub(crate) async fn with_deadlines<F: Future>(
    queue: &Queue,
    task: &AtomicWaker,
    late: Failure,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    let mut timer = pin!(sleep_until(monotonic::now().into()));
    poll_fn(|cx| {
        task.register(cx.waker());
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        while let Some(next) = queue.expire(monotonic::now(), late) {
            timer.as_mut().reset(next.into());
            if timer.as_mut().poll(cx).is_pending() {
                break;
            }
        }
        Poll::Pending
    })
    .await
}

/// The time that callers give the first connection to a server, which may be longer than their deadline. It ends early when the
/// server has decided once or has failed.
#[derive(Debug)]
pub(crate) struct FirstConnectWindow {
    lasts: AtomicBool,
    until: Instant,
}

impl FirstConnectWindow {
    pub(crate) fn new(until: Instant) -> Self {
        Self { lasts: AtomicBool::new(monotonic::now() < until), until }
    }

    /// Until when callers wait at least; `None` when that time has ended.
    #[inline]
    pub(crate) fn until(&self) -> Option<Instant> {
        (self.lasts() && monotonic::now() < self.until).then_some(self.until)
    }

    /// The time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.until().map_or(Duration::ZERO, |until| until.saturating_duration_since(monotonic::now()))
    }

    #[inline]
    pub(crate) fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Acquire)
    }

    /// Ends the time; returns whether it had lasted until now.
    #[inline]
    pub(crate) fn end(&self) -> bool {
        self.lasts() && self.lasts.swap(false, Ordering::AcqRel)
    }
}
