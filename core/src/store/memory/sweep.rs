//! Incremental cleaning: a hand goes around the table and drops what is spent.
//!
//! Every new key moves the hand by a few slots, so what is spent never makes up more than a fraction of the table. A
//! new key that finds the table full moves it further, until something is dropped. When the hand has gone around and
//! has found nothing, the earliest time at which something can be spent is known, and until then nobody looks.

use hashbrown::HashTable;

use super::entry::Entry;

/// How many slots a new key looks at.
const SLOTS_PER_KEY: usize = 4;
/// How many slots a new key looks at when the table is full.
const SLOTS_WHEN_FULL: usize = 4096;

#[derive(Debug)]
pub(super) struct Sweep {
    /// The next slot to look at.
    hand: usize,
    /// The earliest time at which one of the entries seen in this round can be spent.
    round_earliest_us: u64,
    /// Until then no entry can be spent.
    earliest_us: u64,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { hand: 0, round_earliest_us: u64::MAX, earliest_us: 0 }
    }
}

impl Sweep {
    /// Forgets what is known of the entries: they moved, or their numbers changed.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Cleans a little, and says whether there is room for one more entry.
    pub(super) fn make_room(
        &mut self,
        entries: &mut HashTable<Entry>,
        max_keys: usize,
        now_us: u64,
        mut is_spent: impl FnMut(&mut Entry) -> bool,
    ) -> bool {
        self.drop_spent(entries, SLOTS_PER_KEY, &mut is_spent);
        if entries.len() < max_keys {
            return true;
        }
        if now_us >= self.earliest_us {
            let slots = SLOTS_WHEN_FULL.min(entries.num_buckets());
            for _ in 0..slots {
                if self.drop_spent(entries, 1, &mut is_spent) {
                    return true;
                }
            }
        }
        false
    }

    /// Keeps what is known true when an entry is about to be inserted.
    pub(super) fn before_insert(&mut self, entries: &HashTable<Entry>, reset_at_us: u64) {
        if entries.len() == entries.capacity() {
            // The table grows or is laid out anew: entries move, also to behind the hand.
            self.restart();
        }
        self.lower(reset_at_us);
    }

    /// Keeps what is known true when an entry can be spent at that time.
    pub(super) fn lower(&mut self, reset_at_us: u64) {
        self.round_earliest_us = self.round_earliest_us.min(reset_at_us);
        self.earliest_us = self.earliest_us.min(reset_at_us);
    }

    /// Looks at so many slots, and says whether something was dropped.
    fn drop_spent(
        &mut self,
        entries: &mut HashTable<Entry>,
        slots: usize,
        is_spent: &mut impl FnMut(&mut Entry) -> bool,
    ) -> bool {
        let mut dropped = false;
        for _ in 0..slots.min(entries.num_buckets()) {
            if self.hand >= entries.num_buckets() {
                self.hand = 0;
                self.earliest_us = self.round_earliest_us;
                self.round_earliest_us = u64::MAX;
            }
            if let Ok(mut entry) = entries.get_bucket_entry(self.hand) {
                if is_spent(entry.get_mut()) {
                    entry.remove();
                    dropped = true;
                } else {
                    self.round_earliest_us = self.round_earliest_us.min(entry.get().reset_at_us);
                }
            }
            self.hand += 1;
        }
        dropped
    }
}
