//! Blocks: a key that was denied too often, or that the application blocked, is denied for a time.
//!
//! A key's [`BlockRecord`] says until when it is blocked, and what leads to the next block: how many denials were counted since
//! when, and how many blocks came in a row. Each block in a row is twice as long as the one before it, up to a longest one. Keys
//! that were never denied under a [`Penalty`] and never blocked have no record.

use crate::units::MAX_US;

/// When denials of a key lead to a block, and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Penalty {
    /// This many denials lead to a block: 1 to 65,535.
    pub denials: u16,
    /// The time from the first of them in which they count.
    pub within_us: u64,
    /// How long the first block lasts.
    pub block_us: u64,
    /// The longest that a block becomes.
    pub max_us: u64,
    /// How long after a block's end the next one lasts as long as the first again.
    pub forget_us: u64,
}

/// The blocks of one key; all numbers are 0 at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRecord {
    /// The key is blocked before this time.
    pub(crate) until_us: u64,
    /// How long the latest block lasts: a clock that goes back lengthens none.
    pub(crate) length_us: u64,
    /// When the first of the counted denials was.
    pub(crate) since_us: u64,
    pub count: u16,
    /// The number of blocks in a row, at most [`MAX_LEVEL`](Self::MAX_LEVEL).
    pub level: u8,
}

impl BlockRecord {
    /// With more levels than this, a block of 1 ms would have become longer than the longest one.
    pub const MAX_LEVEL: u8 = 41;

    /// How much longer the key is blocked, by a clock that may have gone back; 0 when it is not.
    pub fn blocked_for_us(&self, now_us: u64) -> u64 {
        self.until_us.saturating_sub(now_us).min(self.length_us)
    }

    /// Moves the times back if the clock has gone back. Returns whether it did.
    pub(crate) fn rewind(&mut self, now_us: u64) -> bool {
        let until_us = self.until_us.min(now_us.saturating_add(self.length_us));
        let since_us = self.since_us.min(now_us);
        let is_ahead = (until_us, since_us) != (self.until_us, self.since_us);
        (self.until_us, self.since_us) = (until_us, since_us);
        is_ahead
    }

    /// Brings the record to the present: moves it back if the clock has gone back, and forgets what no longer counts.
    pub(crate) fn bring(&mut self, now_us: u64, penalty: Option<&Penalty>) {
        self.rewind(now_us);
        let Some(penalty) = penalty else { return };
        if now_us.checked_sub(self.until_us).is_some_and(|passed_us| passed_us >= penalty.forget_us) {
            self.level = 0;
        }
        if now_us - self.since_us >= penalty.within_us {
            (self.since_us, self.count) = (0, 0);
        }
    }

    /// Counts a denial of a key that is not blocked, which may block it.
    pub(crate) fn count_denial(&mut self, now_us: u64, penalty: &Penalty) {
        self.bring(now_us, Some(penalty));
        if self.count == 0 {
            self.since_us = now_us;
        }
        self.count = self.count.saturating_add(1);
        if self.count < penalty.denials {
            return;
        }
        self.level = (self.level + 1).min(Self::MAX_LEVEL);
        self.length_us = penalty.block_us.saturating_mul(1 << (self.level - 1)).min(penalty.max_us);
        self.until_us = end_of(now_us, self.length_us);
        (self.since_us, self.count) = (0, 0);
    }

    /// Blocks the key for a time, unless it is blocked for longer; 0 forgets everything.
    pub(crate) fn block(&mut self, now_us: u64, for_us: u64) {
        if for_us == 0 {
            *self = Self::default();
        } else if end_of(now_us, for_us) > self.until_us {
            (self.until_us, self.length_us) = (end_of(now_us, for_us), for_us);
        }
    }

    /// Whether the record is as good as none.
    pub(crate) fn says_nothing(&self, now_us: u64) -> bool {
        self.until_us <= now_us && self.count == 0 && self.level == 0
    }

    /// How long the record says something: until the block has ended and its level and the denials are forgotten. Without a
    /// penalty the latter two mean nothing.
    pub(crate) fn expires_after_us(&self, now_us: u64, penalty: Option<&Penalty>) -> u64 {
        let blocked_for_us = self.blocked_for_us(now_us);
        let Some(penalty) = penalty else { return blocked_for_us };
        let level_us =
            self.until_us.min(now_us.saturating_add(self.length_us)).saturating_add(penalty.forget_us);
        let count_us = self.since_us.min(now_us).saturating_add(penalty.within_us);
        let level_us = if self.level > 0 { level_us } else { 0 };
        let count_us = if self.count > 0 { count_us } else { 0 };
        level_us.max(count_us).saturating_sub(now_us).max(blocked_for_us)
    }
}

/// When a block that is made now ends; no clock shows a time after [`MAX_US`].
fn end_of(now_us: u64, for_us: u64) -> u64 {
    now_us.saturating_add(for_us).min(MAX_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const PENALTY: Penalty = Penalty {
        denials: 2,
        within_us: 10 * SECOND,
        block_us: 5 * SECOND,
        max_us: 8 * SECOND,
        forget_us: 30 * SECOND,
    };

    fn denied(record: &mut BlockRecord, at: u64) -> u64 {
        record.count_denial(at * SECOND, &PENALTY);
        record.blocked_for_us(at * SECOND) / SECOND
    }

    #[test]
    fn each_block_in_a_row_is_twice_as_long_up_to_the_longest() {
        let mut record = BlockRecord::default();
        assert_eq!([denied(&mut record, 0), denied(&mut record, 9)], [0, 5]);
        assert_eq!([denied(&mut record, 14), denied(&mut record, 23)], [0, 8]);
        // The block ended at 31 s and is forgotten at 61 s.
        assert_eq!([denied(&mut record, 60), denied(&mut record, 61)], [0, 5]);
        for at in 0..100 {
            denied(&mut record, 70 + 9 * at);
        }
        assert_eq!((record.level, record.length_us), (BlockRecord::MAX_LEVEL, 8 * SECOND));
    }

    #[test]
    fn denials_count_from_the_first_one() {
        let mut record = BlockRecord::default();
        assert_eq!([denied(&mut record, 0), denied(&mut record, 10)], [0, 0]);
        assert_eq!((record.since_us, record.count), (10 * SECOND, 1));
        assert_eq!(denied(&mut record, 19), 5);
    }

    #[test]
    fn clock_that_goes_back_lengthens_no_block() {
        let mut record = BlockRecord::default();
        record.block(100 * SECOND, 5 * SECOND);
        assert_eq!(record.blocked_for_us(3 * SECOND), 5 * SECOND);
        assert!(record.rewind(3 * SECOND) && !record.rewind(3 * SECOND));
        assert_eq!((record.until_us, record.blocked_for_us(7 * SECOND)), (8 * SECOND, SECOND));
    }

    #[test]
    fn block_by_hand_leaves_nothing_to_forget() {
        let mut record = BlockRecord::default();
        record.block(5 * SECOND, 10 * SECOND);
        assert_eq!((record.level, record.expires_after_us(6 * SECOND, Some(&PENALTY))), (0, 9 * SECOND));
        let mut short = BlockRecord::default();
        short.block(0, 2 * SECOND);
        assert_eq!(short.expires_after_us(SECOND, Some(&PENALTY)), SECOND);
        let mut denied_once = BlockRecord::default();
        denied(&mut denied_once, 5);
        assert_eq!(denied_once.expires_after_us(6 * SECOND, Some(&PENALTY)), 9 * SECOND);
        denied(&mut denied_once, 6);
        assert_eq!(denied_once.expires_after_us(6 * SECOND, Some(&PENALTY)), 35 * SECOND);
    }

    #[test]
    fn longer_block_holds_and_none_forgets() {
        let mut record = BlockRecord::default();
        record.block(0, 10 * SECOND);
        record.block(SECOND, 5 * SECOND);
        assert_eq!((record.until_us, record.length_us), (10 * SECOND, 10 * SECOND));
        record.block(2 * SECOND, 20 * SECOND);
        assert_eq!((record.until_us, record.length_us), (22 * SECOND, 20 * SECOND));
        record.block(MAX_US, 5 * SECOND);
        assert_eq!(record.until_us, MAX_US);
        record.block(3 * SECOND, 0);
        assert_eq!(record, BlockRecord::default());
    }

    #[test]
    fn record_is_kept_until_level_and_denials_are_forgotten() {
        let mut record = BlockRecord::default();
        assert!(record.says_nothing(0));
        denied(&mut record, 0);
        assert_eq!(record.expires_after_us(SECOND, Some(&PENALTY)), 9 * SECOND);
        denied(&mut record, 1);
        for (at, left, blocked) in [(1, 35, 5), (6, 30, 0), (35, 1, 0), (36, 0, 0)] {
            let now_us = at * SECOND;
            assert_eq!(record.expires_after_us(now_us, Some(&PENALTY)), left * SECOND);
            assert_eq!(record.expires_after_us(now_us, None), blocked * SECOND);
        }
        record.bring(36 * SECOND - 1, Some(&PENALTY));
        assert!(!record.says_nothing(36 * SECOND - 1));
        record.bring(36 * SECOND, Some(&PENALTY));
        assert!(record.says_nothing(36 * SECOND));
    }
}
