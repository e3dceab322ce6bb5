//! How much waits for an answer at a time, which is bounded: past the bound a decision is refused at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an operation takes besides its key, roughly, in bytes.
const OPERATION_BYTES: usize = 256;

/// What all operations of a store take together.
#[derive(Debug)]
pub(crate) struct Outstanding {
    operations: AtomicUsize,
    bytes: AtomicUsize,
    most_operations: usize,
    most_bytes: usize,
}

/// One operation's share, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Outstanding>,
    bytes: usize,
}

impl Outstanding {
    pub(crate) fn new(most_operations: usize, most_bytes: usize) -> Self {
        let (operations, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { operations, bytes, most_operations, most_bytes }
    }

    /// The same bounds, of which nothing is taken.
    pub(crate) fn successor(&self) -> Self {
        Self::new(self.most_operations, self.most_bytes)
    }

    /// How many operations may be under way.
    pub(crate) fn most_operations(&self) -> usize {
        self.most_operations
    }

    /// The share of an operation with a key of that length; `None` past the bound.
    pub(crate) fn share(self: &Arc<Self>, key_length: usize) -> Option<Share> {
        let bytes = OPERATION_BYTES + key_length;
        let operations_before = self.operations.fetch_add(1, Ordering::Relaxed);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let share = Share { of: Arc::clone(self), bytes };
        // A share beyond the bound is given back as it is dropped.
        (operations_before < self.most_operations && bytes_before + bytes <= self.most_bytes).then_some(share)
    }
}

impl Drop for Share {
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
        let outstanding = Arc::new(Outstanding::new(2, 2 * OPERATION_BYTES + 10));
        let first = outstanding.share(5).unwrap();
        assert!(outstanding.share(6).is_none());
        let second = outstanding.share(5).unwrap();
        assert!(outstanding.share(0).is_none());
        drop(first);
        let third = outstanding.share(5).unwrap();
        drop((second, third));
        assert!(outstanding.share(OPERATION_BYTES).is_some());
    }
}
