//! A pending operation, and the limiter that it belongs to: a bound on its pending operations, and its counters.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

use crate::pipeline::call_span::CallerSpan;
use crate::script::call::PolicyCall;
use crate::script::reply::ScriptDecision;
use crate::transport::failure::Failure;
use polylimit_rules::decision::Degradation;
use polylimit_rules::reservation::list::Hold;
use polylimit_runtime::park;
use polylimit_store::charge::Action;
use polylimit_store::families::durations::Durations;
use polylimit_store::stats::Counters;

/// The store's answer, or why there is none.
pub(crate) type OperationResult = Result<ScriptDecision, Failure>;

/// An operation and its key.
#[derive(Debug)]
pub(crate) struct ScriptRequest {
    pub(crate) call: Arc<PolicyCall>,
    /// The main key in Redis.
    pub(crate) key: Vec<u8>,
    /// The key's slot; 0 without a cluster.
    pub(crate) slot: u16,
    pub(crate) action: Action,
    pub(crate) cost: u64,
    pub(crate) headroom: u8,
    /// The reservation, for operations on one, or the time of a block.
    pub(crate) hold: Option<Box<Hold>>,
    /// Whether its denial denies the request that it belongs to.
    pub(crate) decides: bool,
    /// The other charges of a request, which are decided in the same call.
    pub(crate) others: Box<[QueuedCharge]>,
    /// The latest time for the answer.
    pub(crate) until: Instant,
    /// Whether that is later than its deadline, because the operation may wait for a first connection.
    pub(crate) is_first: bool,
    /// Whether it continues while its limiter is being closed, since no caller waits for it.
    pub(crate) in_background: bool,
}

/// An operation on a main key.
#[derive(Debug)]
pub(crate) struct QueuedCharge {
    pub(crate) call: Arc<PolicyCall>,
    pub(crate) key: Vec<u8>,
    pub(crate) action: Action,
    pub(crate) cost: u64,
    pub(crate) headroom: u8,
    /// Whether its denial denies the request.
    pub(crate) decides: bool,
}

/// The outcome is unknown; the caller gets the error that the limiter is closed.
const ENDED: Failure = Failure::unknown(Degradation::Unreachable);

/// The maximum number of retries of an operation that certainly did not run.
const MAX_RETRIES: u8 = 5;

#[derive(Debug)]
pub(crate) struct PendingOperation {
    pub(crate) wanted: ScriptRequest,
    retries: AtomicU8,
    asking: AtomicBool,
    /// A deadline earlier than `until`.
    brought_forward: OnceLock<Instant>,
    /// Until the caller takes it.
    answer: Mutex<Option<OperationResult>>,
    is_answered: AtomicBool,
    caller: AtomicWaker,
    pub(crate) caller_span: CallerSpan,
    permit: Permit,
}

impl PendingOperation {
    pub(crate) fn new(wanted: ScriptRequest, permit: Permit) -> Arc<Self> {
        Arc::new(Self {
            wanted,
            retries: AtomicU8::new(0),
            asking: AtomicBool::new(false),
            brought_forward: OnceLock::new(),
            answer: Mutex::new(None),
            is_answered: AtomicBool::new(false),
            caller: AtomicWaker::new(),
            caller_span: CallerSpan::current(),
            permit,
        })
    }

    /// Answers the caller; the first answer counts.
    pub(crate) fn answer(&self, answer: OperationResult) {
        let mut place = self.answer.lock();
        if !self.is_answered.load(Ordering::Relaxed) {
            *place = Some(answer);
            self.is_answered.store(true, Ordering::Release);
            drop(place);
            self.caller.wake();
        }
    }

    /// The answer, once there is one; it can be taken once.
    fn take_answer(&self) -> Option<OperationResult> {
        if self.is_answered.load(Ordering::Acquire) { self.answer.lock().take() } else { None }
    }

    /// The latest time for the answer.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        if self.is_first { self.brought_forward.get().copied().unwrap_or(self.until) } else { self.until }
    }

    /// Ends the extra time for a first connection at that time. Only the first call counts.
    pub(crate) fn bring_forward(&self, deadline: Instant) {
        let _ = self.brought_forward.set(deadline.min(self.until));
    }

    pub(crate) fn member(&self) -> &Member {
        &self.permit.of
    }

    /// Answers the operation if it belongs to this limiter, which is closed.
    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        if !self.in_background && Arc::ptr_eq(&self.permit.of, member) {
            self.answer(Err(ENDED));
        }
    }

    /// Answers the operation if its limiter was closed before the operation was queued.
    #[inline]
    pub(crate) fn end_if_closed(&self) {
        if !self.in_background && self.member().is_closed() {
            self.answer(Err(ENDED));
        }
    }

    /// Whether no caller waits any longer: the caller has gone or is answered.
    pub(crate) fn is_over(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 || self.is_answered.load(Ordering::Acquire)
    }

    /// Counts a retry; returns whether it is allowed.
    pub(crate) fn may_retry(&self) -> bool {
        self.retries.fetch_add(1, Ordering::Relaxed) < MAX_RETRIES
    }

    /// Whether it has to be preceded by `ASKING`, because it goes to a node that is importing the slot.
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Relaxed)
    }

    pub(crate) fn set_asking(&self, asking: bool) {
        self.asking.store(asking, Ordering::Relaxed);
    }
}

impl std::ops::Deref for PendingOperation {
    type Target = ScriptRequest;

    fn deref(&self) -> &ScriptRequest {
        &self.wanted
    }
}

/// The future reply to an operation. Dropping it does not cancel what was sent.
#[derive(Debug)]
#[must_use = "the reply arrives only where it is awaited"]
pub(crate) struct PendingReply(pub(crate) Result<Arc<PendingOperation>, Failure>);

impl Future for PendingReply {
    type Output = OperationResult;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<OperationResult> {
        let operation = match &self.0 {
            Ok(operation) => operation,
            Err(refused) => return Poll::Ready(Err(*refused)),
        };
        if let Some(answer) = operation.take_answer() {
            return Poll::Ready(answer);
        }
        operation.caller.register(cx.waker());
        if park::is_overdue(operation.deadline()) {
            // The thread that drives the connection does not run. The operation may have been sent.
            operation.answer(Err(Failure::unknown(Degradation::Timeout)));
        }
        // The answer may have arrived in between.
        operation.take_answer().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The approximate memory of an operation besides its key, in bytes.
const OPERATION_BYTES: usize = 256;

/// A limiter, as a user of connections.
#[derive(Debug)]
pub(crate) struct Member {
    /// The number of pending operations, and their memory.
    operations: AtomicUsize,
    bytes: AtomicUsize,
    pub(crate) most_operations: usize,
    most_bytes: usize,
    closed: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) durations: Durations,
}

/// The permit of one operation, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    of: Arc<Member>,
    bytes: usize,
}

impl Member {
    pub(crate) fn new(most_operations: usize, most_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            operations: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            most_operations,
            most_bytes,
            closed: AtomicBool::new(false),
            counters: Counters::default(),
            durations: Durations::default(),
        })
    }

    /// The permit for an operation with a key of that length; `None` at the bound, where an operation is refused at
    /// once.
    pub(crate) fn permit(self: &Arc<Self>, key_length: usize) -> Option<Permit> {
        let bytes = OPERATION_BYTES + key_length;
        let operations_before = self.operations.fetch_add(1, Ordering::Relaxed);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let permit = Permit { of: Arc::clone(self), bytes };
        // A permit beyond the bound is released as it is dropped.
        (operations_before < self.most_operations && bytes_before + bytes <= self.most_bytes)
            .then_some(permit)
    }

    /// The limiter is closed: its callers wait no longer.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.of.operations.fetch_sub(1, Ordering::Relaxed);
        self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_beyond_a_bound_is_refused_until_another_ends() {
        let member = Member::new(2, 2 * OPERATION_BYTES + 10);
        let first = member.permit(5).unwrap();
        assert!(member.permit(6).is_none());
        let second = member.permit(5).unwrap();
        assert!(member.permit(0).is_none());
        drop(first);
        let third = member.permit(5).unwrap();
        drop((second, third));
        assert!(member.permit(OPERATION_BYTES).is_some());
    }
}
