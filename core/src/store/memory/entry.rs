//! What is remembered of one key under one policy, and under which numbers it was written.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::store::memory::registered::Registered;
use crate::store::memory::states::States;

/// An entry fills a cache line, so that finding a key among millions waits for memory as seldom as possible.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Entry {
    /// Keys of up to 16 bytes are kept in place.
    pub(crate) key: SmallVec<[u8; 16]>,
    pub(crate) states: States,
    /// The numbers under which the states were last written: they say what the states mean.
    pub(crate) under: Arc<Registered>,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Whether two keys are the same. Most are of 4 to 32 bytes; for those two overlapping halves are compared in
/// registers, in a third of the time that a call to compare memory takes.
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

    /// Whether it is the entry of that key under that policy, with whatever numbers.
    #[inline]
    pub(crate) fn is(&self, current: &Arc<Registered>, key: &[u8]) -> bool {
        same_bytes(&self.key, key) && (Arc::ptr_eq(&self.under, current) || self.under.id == current.id)
    }

    /// How long, from that time, until it may be dropped because nothing counts as used any more.
    pub(crate) fn spent_after_us(&self, current: &Arc<Registered>, now_us: u64) -> u64 {
        if Arc::ptr_eq(&self.under, current) {
            return current.spent_after_us(&self.states, now_us);
        }
        // Other numbers may make what was used count for longer.
        current.spent_after_us(&current.states_of(&self.under, &self.states), now_us)
    }
}
