//! Waiting for a future on a thread that drives nothing: it sleeps until it is woken.
//!
//! What is waited for is driven by another thread, which may be late: suspended, or not let run. So a thread that only
//! waits looks at times itself: it wakes for [`is_past`] and [`is_overdue`].

use crate::runtime::monotonic;
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// For so long the thread that drives may go on after a deadline: it keeps deadlines to the millisecond, and knows more of
/// what became of an operation. It counts from when the thread that waits has seen that the deadline has passed, so that
/// both have time after the whole process was stopped.
const GRACE: Duration = Duration::from_millis(3);

thread_local! {
    /// There while something is polled on a thread that only waits.
    static LOOK: Cell<Option<Look>> = const { Cell::new(None) };
}

/// A look at the time.
#[derive(Clone, Copy)]
struct Look {
    now: Instant,
    /// The thread that drives has had its time for what was due then.
    overdue: Instant,
    /// When to look again, whether something is past, or whether it is due.
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

/// Whether this thread only waits for what it polls.
pub(crate) fn is_waiting() -> bool {
    LOOK.get().is_some()
}

/// Whether a moment has passed, for a thread that only waits: it looks again at that moment. Otherwise always `false`.
pub(crate) fn is_past(moment: Instant) -> bool {
    LOOK.get().is_some_and(|look| {
        let is_past = moment <= look.now;
        if !is_past {
            LOOK.set(Some(Look { again: Some(sooner(look.again, moment)), ..look }));
        }
        is_past
    })
}

/// Whether the thread that drives has missed a deadline, for a thread that only waits: it looks again in time. Otherwise
/// always `false`.
#[inline]
pub(crate) fn is_overdue(deadline: Instant) -> bool {
    LOOK.get().is_some_and(|look| {
        let is_late = deadline <= look.overdue;
        let due = if is_late { look.due } else { Some(sooner(look.due, deadline)) };
        LOOK.set(Some(Look { due, is_late: look.is_late || is_late, ..look }));
        is_late
    })
}

fn sooner(moment: Option<Instant>, other: Instant) -> Instant {
    moment.map_or(other, |moment| moment.min(other))
}

/// What was waited for, and whether the thread that drives was late with it.
#[derive(Debug)]
pub(crate) struct Waited<T> {
    pub(crate) output: T,
    pub(crate) is_late: bool,
}

/// Sleeps, and polls whenever it is woken or a moment has come that was looked at.
pub(crate) fn wait<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Waited<T> {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut now = monotonic::now();
    let mut overdue = now;
    loop {
        let before = LOOK.replace(Some(Look { now, overdue, again: None, due: None, is_late: false }));
        let polled = poll(&mut context);
        let looked = LOOK.replace(before);
        let (again, due, is_late) =
            looked.map_or((None, None, false), |look| (look.again, look.due, look.is_late));
        if let Poll::Ready(output) = polled {
            return Waited { output, is_late };
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

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    wait(|context| future.as_mut().poll(context)).output
}

/// [`block_on`], for so long at most.
pub(crate) fn block_on_for<F: Future>(longest: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
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
    fn a_thread_that_waits_wakes_for_the_times_that_were_looked_at() {
        let began = Instant::now();
        let moments = [40, 20].map(|ms| began + Duration::from_millis(ms));
        for (look, is_late) in [(is_past as fn(_) -> _, false), (is_overdue, true)] {
            let mut passed = Vec::new();
            let waited = wait(|_| {
                for moment in moments {
                    if look(moment) && !passed.contains(&moment) {
                        assert!(moment <= Instant::now());
                        passed.push(moment);
                    }
                }
                if passed.len() == 2 { Poll::Ready(()) } else { Poll::Pending }
            });
            assert_eq!(waited.is_late, is_late);
        }
        assert!(!is_past(began) && !is_overdue(began), "where there is another to look after it");
        assert!(block_on(poll_fn(|_| Poll::Ready(is_past(began)))));
    }
}
