//! Which of the waiting threads drives the runtime.
//!
//! Tokio's `block_on` can share a runtime among threads, but a thread that does not drive then sleeps until it is woken:
//! if the driving thread is suspended, all others sleep as long. Here the other threads check their deadlines themselves.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::runtime::park::{self, Waited};

#[derive(Debug, Default)]
pub(crate) struct Seat {
    is_taken: AtomicBool,
    /// Wakes a thread that waits for the seat.
    left: Notify,
}

struct Taken<'a>(&'a Seat);

impl Seat {
    /// Waits for a future on this thread, and drives the runtime meanwhile if no other thread does.
    pub(crate) fn block_on<F: Future>(&self, runtime: &Runtime, future: F) -> Waited<F::Output> {
        let mut future = pin!(future);
        loop {
            if let Some(_taken) = self.take() {
                return Waited { output: runtime.block_on(future), is_late: false };
            }
            if let Waited { output: Some(output), is_late } = self.wait(runtime, future.as_mut()) {
                return Waited { output, is_late };
            }
        }
    }

    fn take(&self) -> Option<Taken<'_>> {
        // A plain read first: under load the seat is mostly taken.
        let is_free = !self.is_taken.load(Ordering::SeqCst) && !self.is_taken.swap(true, Ordering::SeqCst);
        is_free.then(|| Taken(self))
    }

    /// Waits while another thread drives. The output is `None` when the seat is free.
    fn wait<F: Future>(&self, runtime: &Runtime, mut future: Pin<&mut F>) -> Waited<Option<F::Output>> {
        let _entered = runtime.enter();
        let mut left = pin!(self.left.notified());
        park::wait(|cx| {
            // The waiter is registered before it checks the seat, so that it does not miss its release.
            if left.as_mut().poll(cx).is_ready() || !self.is_taken.load(Ordering::SeqCst) {
                return Poll::Ready(None);
            }
            future.as_mut().poll(cx).map(Some)
        })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::SeqCst);
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::{scope, sleep};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::runtime::sleep::at_most;

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn those_that_wait_keep_their_times_while_the_thread_that_drives_is_suspended() {
        let (seat, runtime) = (Seat::default(), runtime());
        let (suspended, is_suspended) = channel();
        let (go_on, goes_on) = channel();
        scope(|scope| {
            scope.spawn(|| {
                seat.block_on(&runtime, async move {
                    suspended.send(()).unwrap();
                    goes_on.recv().unwrap();
                });
            });
            is_suspended.recv().unwrap();
            let never = std::future::pending::<()>();
            let waited = seat.block_on(&runtime, at_most(Duration::from_millis(20), never));
            assert!(waited.output.is_none());
            let deadline = Instant::now() + Duration::from_millis(20);
            let overdue = std::future::poll_fn(|_| {
                if park::is_overdue(deadline) { Poll::Ready(()) } else { Poll::Pending }
            });
            assert!(seat.block_on(&runtime, overdue).is_late);
            go_on.send(()).unwrap();
        });
    }

    #[test]
    fn a_seat_that_is_left_is_taken_by_one_that_waits() {
        let (seat, runtime) = (Seat::default(), runtime());
        for _ in 0..20 {
            scope(|scope| {
                for thread in 0..4 {
                    let (seat, runtime) = (&seat, &runtime);
                    // Timers fire only while a thread drives.
                    scope.spawn(move || {
                        let timers = async {
                            for _ in 0..3 {
                                tokio::time::sleep(Duration::from_millis(1 + thread)).await;
                            }
                        };
                        assert!(!seat.block_on(runtime, timers).is_late);
                    });
                }
                sleep(Duration::from_millis(1));
            });
        }
    }
}
