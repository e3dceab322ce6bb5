//! The queued operations, ordered by deadline, which is the order of arrival, except for operations that were queued
//! elsewhere before. A queued operation is answered when its deadline passes, whatever the task awaits.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::sleep_until;

use crate::pipeline::pending::{Member, PendingOperation};
use crate::transport::failure::Failure;
use polylimit_runtime::monotonic;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<Arc<PendingOperation>>>,
}

impl Queue {
    /// Adds an operation; returns whether it is the first, so that the task may have to be woken for its deadline.
    pub(crate) fn push(&self, operation: Arc<PendingOperation>) -> bool {
        let mut waiting = self.waiting.lock();
        let is_last = waiting.back().is_none_or(|last| last.deadline() <= operation.deadline());
        let place = if is_last {
            waiting.len()
        } else {
            waiting.partition_point(|at| at.deadline() <= operation.deadline())
        };
        waiting.insert(place, operation);
        place == 0
    }

    /// Puts operations back that were taken first and not sent.
    pub(crate) fn put_back(&self, operations: impl DoubleEndedIterator<Item = Arc<PendingOperation>>) {
        let mut waiting = self.waiting.lock();
        for operation in operations.rev() {
            let place = waiting.partition_point(|at| at.deadline() < operation.deadline());
            waiting.insert(place, operation);
        }
    }

    /// Ends the extra time for a first connection at that time, for all queued operations.
    pub(crate) fn bring_forward(&self, deadline: Instant) {
        let mut waiting = self.waiting.lock();
        waiting.iter().for_each(|operation| operation.bring_forward(deadline));
        waiting.make_contiguous().sort_by_key(|operation| operation.deadline());
    }

    pub(crate) fn take_all(&self) -> VecDeque<Arc<PendingOperation>> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Takes up to `most` operations whose callers still wait.
    pub(crate) fn take(&self, most: usize, into: &mut Vec<Arc<PendingOperation>>) {
        let mut waiting = self.waiting.lock();
        while into.len() < most
            && let Some(operation) = waiting.pop_front()
        {
            if !operation.is_over() {
                into.push(operation);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.lock().front().map(|first| first.deadline())
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        for operation in &*self.waiting.lock() {
            operation.end_waiting(member);
        }
    }

    pub(crate) fn answer_all(&self, failure: Failure) {
        for operation in self.take_all() {
            operation.answer(Err(failure));
        }
    }

    /// Answers the operations whose deadline has passed; returns the next deadline.
    pub(crate) fn expire(&self, now: Instant, failure: Failure) -> Option<Instant> {
        let mut expired = Vec::new();
        let next = {
            let mut waiting = self.waiting.lock();
            loop {
                match waiting.front() {
                    Some(first) if first.deadline() > now && !first.is_over() => {
                        break Some(first.deadline());
                    }
                    Some(_) => expired.extend(waiting.pop_front()),
                    None => break None,
                }
            }
        };
        // Not under the lock: a woken caller may submit again at once.
        for operation in expired {
            operation.answer(Err(failure));
        }
        next
    }
}

/// Awaits a future until the flag is set; the task has to be woken after that.
pub(crate) async fn run_unless(flag: &AtomicBool, future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    poll_fn(|cx| if flag.load(Ordering::Acquire) { Poll::Ready(()) } else { future.as_mut().poll(cx) }).await;
}

/// Awaits a future and meanwhile answers every queued operation whose deadline passes with `late`. An operation that
/// arrives in the queue wakes the task, which polls the future as well.
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

/// The time that callers give the first connection to a server, which may be longer than their deadline. It ends early
/// when the server has decided once or has failed.
#[derive(Debug)]
pub(crate) struct FirstConnectWindow {
    lasts: AtomicBool,
    pub(crate) until: Instant,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pipeline::pending::{PendingReply, ScriptRequest};
    use crate::script::call::PolicyCall;
    use polylimit_rules::decision::Degradation;
    use polylimit_rules::policy::Policy;
    use polylimit_rules::transition::Operation;
    use polylimit_store::charge::Action;

    const MS: Duration = Duration::from_millis(1);

    fn operation(deadline: Instant) -> (Arc<PendingOperation>, PendingReply) {
        let call = Arc::new(PolicyCall::new(
            &Policy::one_off("1/second", None).unwrap(),
            polylimit_rules::history::Change::NONE,
        ));
        let action = Action::Apply(Operation::Check);
        let wanted = ScriptRequest {
            call,
            key: Vec::new(),
            slot: 0,
            action,
            cost: 1,
            headroom: 0,
            hold: None,
            decides: true,
            others: Box::default(),
            until: deadline,
            is_first: false,
            in_background: false,
        };
        let operation = PendingOperation::new(wanted, Member::new(1, 1_000).permit(0).unwrap());
        (Arc::clone(&operation), PendingReply(Ok(operation)))
    }

    #[test]
    fn operation_queued_elsewhere_before_is_placed_by_its_deadline() {
        let now = Instant::now();
        let made = [50, 70, 60, 40, 60].map(|ms| operation(now + ms * MS));
        let queue = Queue::default();
        let pushed = |at: usize| queue.push(Arc::clone(&made[at].0));
        // The operation with the earliest deadline has to wake the task.
        assert_eq!([pushed(0), pushed(1), pushed(2), pushed(3)], [true, false, false, true]);
        queue.put_back([Arc::clone(&made[4].0)].into_iter());
        assert_eq!(queue.next_deadline(), Some(now + 40 * MS));
        let late = Failure::not_applied(Degradation::Late);
        assert_eq!(queue.expire(now + 55 * MS, late), Some(now + 60 * MS));
        assert!(made[0].0.is_over() && made[3].0.is_over() && !made[2].0.is_over());
        let mut left = Vec::new();
        queue.take(3, &mut left);
        assert!(left.iter().zip([4, 2, 1]).all(|(operation, at)| Arc::ptr_eq(operation, &made[at].0)));
    }
}
