//! Lets tasks that are ready run before the connection that spawned them.
//!
//! Over HTTP/2, hyper spawns a task for each request, and each answer wakes the connection's task. tokio runs what was woken last first, so
//! the connection would write after every answer: one system call each. A connection that lets the other tasks run first writes all
//! answers at once. `benches/server/run --only grpc` measures it; docs/internals/server.md has the figures.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use tokio::task::yield_now;

/// A task's place behind those that are ready.
#[derive(Default)]
pub(crate) struct Turn {
    /// There while the task waits for its turn.
    waits: Option<Arc<Place>>,
    spare: Option<Arc<Place>>,
}

/// Woken by the runtime once the tasks that were ready have run. Nothing else sets `has_come`: answers wake the task, too.
#[derive(Default)]
struct Place {
    has_come: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Place {
    fn wake(self: Arc<Self>) {
        self.has_come.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl Turn {
    /// Pending until the tasks that are ready have run, or the worker has polled 61 tasks, where there are `others`; then ready once.
    pub(crate) fn poll_after_others(&mut self, others: bool, cx: &Context<'_>) -> Poll<()> {
        if let Some(place) = &self.waits {
            place.task.register(cx.waker());
            if !place.has_come.load(Ordering::Acquire) {
                return Poll::Pending;
            }
            self.spare = self.waits.take();
            return Poll::Ready(());
        }
        if !others {
            return Poll::Ready(());
        }
        let place = self.spare.take().unwrap_or_default();
        place.has_come.store(false, Ordering::Release);
        place.task.register(cx.waker());
        let waker = Waker::from(Arc::clone(&place));
        let mut behind = pin!(yield_now());
        if behind.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.spare = Some(place);
            return Poll::Ready(());
        }
        self.waits = Some(place);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    /// Ten tasks wake the waiting one, each before it ends.
    async fn ended_before(others: bool) -> usize {
        let (woken, ended) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let (woken, ended) = (Arc::clone(&woken), Arc::clone(&ended));
                tokio::spawn(async move {
                    woken.notify_one();
                    ended.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        woken.notified().await;
        let mut turn = Turn::default();
        poll_fn(|cx| turn.poll_after_others(others, cx)).await;
        let seen = ended.load(Ordering::Relaxed);
        for task in tasks {
            task.await.unwrap();
        }
        seen
    }

    #[test]
    fn tasks_that_are_ready_run_first() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let seen = runtime.block_on(async { tokio::spawn(ended_before(true)).await.unwrap() });
        assert_eq!(seen, 10);
        let seen = runtime.block_on(async { tokio::spawn(ended_before(false)).await.unwrap() });
        assert!(seen < 10, "without others the task goes on at once: {seen}");
    }

    #[test]
    fn turn_comes_again_and_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut turn = Turn::default();
            for _ in 0..100 {
                poll_fn(|cx| turn.poll_after_others(true, cx)).await;
            }
        });
    }
}
