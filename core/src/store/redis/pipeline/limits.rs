//! The permits of a limiter: a bound on its pending operations, and its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::store::stats::Counters;

/// The approximate memory of an operation besides its key, in bytes.
const OPERATION_BYTES: usize = 256;

#[derive(Debug)]
pub(crate) struct Member {
    /// The memory of all pending operations.
    operations: AtomicUsize,
    bytes: AtomicUsize,
    most_operations: usize,
    most_bytes: usize,
    closed: AtomicBool,
    pub(crate) counters: Counters,
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
        })
    }

    /// The maximum number of pending operations.
    pub(crate) fn most_operations(&self) -> usize {
        self.most_operations
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

impl Permit {
    /// The limiter that the permit belongs to.
    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.of
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
    fn what_is_past_a_bound_is_refused_until_something_ends() {
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
