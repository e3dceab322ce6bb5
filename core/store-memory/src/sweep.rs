//! Incremental cleaning: a hand goes around the table and drops expired entries.
//!
//! Each new key moves the hand by a few slots and drops entries that expired a while ago, so that such entries never
//! fill more than a fraction of the table. Recently expired entries stay, because their keys are likely to be used
//! again. In a table with few entries all expired ones stay: they take next to no memory, and a clock that goes back to
//! before their end finds their keys as much used as they were. A new key that finds the table full moves the hand
//! further, until an expired entry is dropped, however recently it expired. When the hand has gone around and found
//! nothing, the earliest time at which an entry can expire is known, and no search starts before that time.

use hashbrown::HashTable;

use crate::entry::Entry;
use polylimit_rules::explanation::Expiry;

/// The number of slots that a new key inspects.
const SLOTS_PER_KEY: usize = 4;
/// How long a state is kept after it expired, while there is room: one second.
const KEPT_US: u64 = 1_000_000;
/// A table with fewer entries is cleaned only when it is full.
const FEW: usize = 16;
/// The number of slots that a new key inspects when the table is full.
const SLOTS_WHEN_FULL: usize = 4096;

#[derive(Debug)]
pub(crate) struct Sweep {
    /// The next slot to inspect.
    hand: u32,
    /// How often entries may have moved to other slots.
    moves: u32,
    /// The earliest time at which one of the entries inspected in this round can expire, or be dropped from a full table.
    round_earliest_us: u64,
    /// No entry can expire before this time, or be dropped from a full table.
    earliest_us: u64,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { hand: 0, moves: 0, round_earliest_us: u64::MAX, earliest_us: 0 }
    }
}

impl Sweep {
    /// Cleans a few slots, and returns whether there is room for one more entry. The first callback returns the time
    /// until an entry expires; the second one is called with each dropped entry. A full table drops entries as early as
    /// it may.
    pub(crate) fn make_room(
        &mut self,
        entries: &mut HashTable<Entry>,
        max_keys: usize,
        now_us: u64,
        expiry: &impl Fn(&Entry, u64) -> Expiry,
        dropped: &impl Fn(&Entry),
    ) -> bool {
        if entries.len() < max_keys.min(FEW) {
            return true;
        }
        if entries.len() < max_keys {
            // An entry that was used since then had not expired then.
            let then_us = now_us.saturating_sub(KEPT_US);
            self.drop_expired(entries, SLOTS_PER_KEY, then_us, false, expiry, dropped);
            return true;
        }
        let slots = if now_us < self.earliest_us { 0 } else { SLOTS_WHEN_FULL.min(entries.num_buckets()) };
        (0..slots).any(|_| self.drop_expired(entries, 1, now_us, true, expiry, dropped))
    }

    /// Keeps the recorded times valid when an entry is about to be inserted.
    pub(crate) fn before_insert(&mut self, entries: &HashTable<Entry>, reset_at_us: u64) {
        if entries.len() == entries.capacity() {
            // The table is about to be rebuilt: entries move, even to slots behind the hand.
            self.restart_moved();
        }
        self.lower(reset_at_us);
    }

    /// Begins a new round: the recorded expiry times no longer hold.
    pub(crate) fn restart(&mut self) {
        *self = Self { moves: self.moves, ..Self::default() };
    }

    /// Begins a new round in a table whose entries may be anywhere.
    pub(crate) fn restart_moved(&mut self) {
        *self = Self { moves: self.moves.wrapping_add(1), ..Self::default() };
    }

    /// A count that changes whenever entries may have moved to other slots.
    pub(crate) fn moves(&self) -> u16 {
        u16::try_from(self.moves & 0xFFFF).unwrap_or(0)
    }

    /// Keeps the recorded times valid when an entry can expire at that time.
    #[inline]
    pub(crate) fn lower(&mut self, reset_at_us: u64) {
        // Rarely written, so that cores can share the cache line.
        if reset_at_us < self.round_earliest_us {
            self.round_earliest_us = reset_at_us;
        }
        if reset_at_us < self.earliest_us {
            self.earliest_us = reset_at_us;
        }
    }

    /// Inspects that many slots and drops entries that are expired at that time; returns whether it dropped one.
    fn drop_expired(
        &mut self,
        entries: &mut HashTable<Entry>,
        slots: usize,
        at_us: u64,
        is_full: bool,
        expiry: &impl Fn(&Entry, u64) -> Expiry,
        dropped: &impl Fn(&Entry),
    ) -> bool {
        let mut found = false;
        for _ in 0..slots.min(entries.num_buckets()) {
            if self.hand as usize >= entries.num_buckets() {
                self.hand = 0;
                self.earliest_us = self.round_earliest_us;
                self.round_earliest_us = u64::MAX;
            }
            if let Ok(entry) = entries.get_bucket_entry(self.hand as usize) {
                let Expiry { after_us, when_full_us } = expiry(entry.get(), at_us);
                if if is_full { when_full_us } else { after_us } == 0 {
                    dropped(entry.get());
                    entry.remove();
                    found = true;
                } else {
                    let droppable_at_us = at_us.saturating_add(when_full_us);
                    self.round_earliest_us = self.round_earliest_us.min(droppable_at_us);
                }
            }
            self.hand += 1;
        }
        found
    }
}
