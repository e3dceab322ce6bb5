//! Waiting for a future on a thread that does not drive the runtime: it sleeps until it is woken.
//!
//! The thread that drives the runtime may be late, because it is suspended or not scheduled. So a waiting thread checks
//! times itself: it wakes for the times that it passes to `is_past` and [`is_overdue`].

use crate::monotonic::{self, Instant};
#[cfg(feature = "testing")]
use crate::simulation;
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

/// How long a waiting thread leaves an overdue operation to the driving thread, which keeps deadlines to the millisecond
/// and knows more about the operation's fate. The grace starts when the waiting thread sees that the deadline has passed,
/// so that after a pause of the whole process both threads have time.
const GRACE: Duration = Duration::from_millis(3);

thread_local! {
    /// Set while a thread that does not drive polls a future.
    static POLL_TIMES: Cell<Option<PollTimes>> = const { Cell::new(None) };
}

/// The times that one poll compares with.
#[derive(Clone, Copy)]
struct PollTimes {
    now: Instant,
    /// Deadlines up to this time are overdue: the driving thread has had its grace.
    overdue: Instant,
    /// When the thread wakes to poll again: for a time given to `is_past`, and for a deadline given to `is_overdue`.
    again: Option<Instant>,
    due: Option<Instant>,
    is_late: bool,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Whether this thread polls a future that another thread drives.
pub fn is_waiting() -> bool {
    POLL_TIMES.get().is_some()
}

/// Whether a moment has passed; the waiting thread wakes again at that moment. On other threads always `false`.
pub(crate) fn is_past(moment: Instant) -> bool {
    POLL_TIMES.get().is_some_and(|times| {
        let is_past = moment <= times.now;
        if !is_past {
            POLL_TIMES.set(Some(PollTimes { again: Some(sooner(times.again, moment)), ..times }));
        }
        is_past
    })
}

/// Whether the driving thread has missed a deadline; the waiting thread wakes again in time to find out. On other threads
/// always `false`.
#[inline]
pub fn is_overdue(deadline: Instant) -> bool {
    POLL_TIMES.get().is_some_and(|times| {
        let is_late = deadline <= times.overdue;
        let due = if is_late { times.due } else { Some(sooner(times.due, deadline)) };
        POLL_TIMES.set(Some(PollTimes { due, is_late: times.is_late || is_late, ..times }));
        is_late
    })
}

fn sooner(moment: Option<Instant>, other: Instant) -> Instant {
    moment.map_or(other, |moment| moment.min(other))
}

/// The output of a wait, and whether the driving thread was late with it.
#[derive(Debug)]
pub(crate) struct WaitOutput<T> {
    pub(crate) output: T,
    pub(crate) is_late: bool,
}

/// Polls whenever the thread is woken or a time is reached that the last poll compared with; sleeps in between.
pub(crate) fn wait<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> WaitOutput<T> {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut now = monotonic::now();
    let mut overdue = now;
    loop {
        let before =
            POLL_TIMES.replace(Some(PollTimes { now, overdue, again: None, due: None, is_late: false }));
        let polled = poll(&mut context);
        let times = POLL_TIMES.replace(before);
        let (again, due, is_late) =
            times.map_or((None, None, false), |times| (times.again, times.due, times.is_late));
        if let Poll::Ready(output) = polled {
            return WaitOutput { output, is_late };
        }
        match due.map(|due| sooner(again, due)).or(again) {
            None => thread::park(),
            Some(next) => thread::park_timeout(next.saturating_duration_since(monotonic::now())),
        }
        now = monotonic::now();
        if due.is_some_and(|due| due <= now) {
            overdue = now;
            thread::park_timeout(GRACE);
            now = monotonic::now();
        }
    }
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    wait(|context| future.as_mut().poll(context)).output
}

/// [`block_on`] with a timeout; `None` when it passes.
pub fn block_on_for<F: Future>(longest: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    #[cfg(feature = "testing")]
    if simulation::is_active() {
        // No other thread makes progress: a process of the simulation does not wait for its end.
        return match future.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        };
    }
    let until = monotonic::now() + longest;
    let waited = wait(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_past(until) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    waited.output
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn waiting_thread_wakes_for_the_times_that_it_compared_with() {
        let began = Instant::now();
        let moments = [40, 20].map(|ms| began + Duration::from_millis(ms));
        for (compare, is_late) in [(is_past as fn(_) -> _, false), (is_overdue, true)] {
            let mut passed = Vec::new();
            let waited = wait(|_| {
                for moment in moments {
                    if compare(moment) && !passed.contains(&moment) {
                        assert!(moment <= Instant::now());
                        passed.push(moment);
                    }
                }
                if passed.len() == 2 { Poll::Ready(()) } else { Poll::Pending }
            });
            assert_eq!(waited.is_late, is_late);
        }
        assert!(
            !is_past(began) && !is_overdue(began),
            "a thread that drives leaves its timers to the runtime"
        );
        assert!(block_on(poll_fn(|_| Poll::Ready(is_past(began)))));
    }
}
