//! An entry of the memory store: the states of one key under one policy, and the numbers under which they were written.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::store::memory::registered::Registered;
use crate::store::memory::states::States;

/// An entry fills one cache line, so that a lookup among millions of keys causes as few cache misses as possible.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Entry {
    /// Keys of up to 16 bytes are stored inline.
    pub(crate) key: SmallVec<[u8; 16]>,
    pub(crate) states: States,
    /// The policy's numbers when the states were last written; the states are interpreted with these numbers.
    pub(crate) under: Arc<Registered>,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Whether two keys are equal. Most keys have 4 to 32 bytes; for those, two overlapping halves are compared in
/// registers, in a third of the time of a call to compare memory.
#[inline]
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        4..=7 => a.first_chunk::<4>() == b.first_chunk::<4>() && a.last_chunk::<4>() == b.last_chunk::<4>(),
        8..=16 => a.first_chunk::<8>() == b.first_chunk::<8>() && a.last_chunk::<8>() == b.last_chunk::<8>(),
        17..=32 => {
            a.first_chunk::<16>() == b.first_chunk::<16>() && a.last_chunk::<16>() == b.last_chunk::<16>()
        }
        _ => a == b,
    }
}

impl Entry {
    pub(crate) fn new(key: &[u8], states: States, under: &Arc<Registered>) -> Self {
        Self { key: SmallVec::from_slice(key), states, under: Arc::clone(under) }
    }

    /// Whether the entry belongs to this key under this policy, with whatever numbers.
    #[inline]
    pub(crate) fn is(&self, current: &Arc<Registered>, key: &[u8]) -> bool {
        same_bytes(&self.key, key) && (Arc::ptr_eq(&self.under, current) || self.under.id == current.id)
    }

    /// The time from `now_us` until the states expire and the entry may be dropped.
    pub(crate) fn spent_after_us(&self, current: &Arc<Registered>, now_us: u64) -> u64 {
        if Arc::ptr_eq(&self.under, current) {
            return current.spent_after_us(&self.states, now_us);
        }
        // Under the new numbers the usage may count for longer.
        current.spent_after_us(&current.states_of(&self.under, &self.states), now_us)
    }
}
