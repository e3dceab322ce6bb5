//! A limiter among those that permit connections: what it has under way, which is bounded, and what is counted for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::store::stats::Counters;

/// What an operation takes besides its key, roughly, in bytes.
const OPERATION_BYTES: usize = 256;

#[derive(Debug)]
pub(crate) struct Member {
    /// What all of its operations take together.
    operations: AtomicUsize,
    bytes: AtomicUsize,
    most_operations: usize,
    most_bytes: usize,
    closed: AtomicBool,
    pub(crate) counters: Counters,
}

/// One operation's permit, given back when it is dropped.
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

    /// How many operations may be under way.
    pub(crate) fn most_operations(&self) -> usize {
        self.most_operations
    }

    /// The permit of an operation with a key of that length; `None` past the bound, at which a decision is refused at once.
    pub(crate) fn permit(self: &Arc<Self>, key_length: usize) -> Option<Permit> {
        let bytes = OPERATION_BYTES + key_length;
        let operations_before = self.operations.fetch_add(1, Ordering::Relaxed);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let permit = Permit { of: Arc::clone(self), bytes };
        // A permit beyond the bound is given back as it is dropped.
        (operations_before < self.most_operations && bytes_before + bytes <= self.most_bytes)
            .then_some(permit)
    }

    /// Its callers wait no longer.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl Permit {
    /// Whose it is.
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
