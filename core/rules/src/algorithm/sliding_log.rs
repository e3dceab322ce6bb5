//! The time of every admitted unit.
//!
//! # Derivation
//!
//! A unit counts while less than one period has passed since it was spent: `allowed = units + cost <= capacity`. So no
//! span of one period ever holds more than the capacity of admitted units.
//!
//! Units spent in one microsecond share an entry, and an entry holds the running total up to and including it. The units
//! between two entries are then a difference, and a binary search finds both what still counts and when enough of it
//! expires.
//!
//! When the clock went back, the units that are ahead of it are moved back to it, so that they count for one period
//! from then on.
//!
//! # Worked example
//!
//! `5/minute sliding_log`: 3 units at 0 s, 2 at 10 s; none remain. For a cost of 4, at 20 s, 4 units must expire: the
//! total up to the second entry is 5 >= 4, so it fits when that one expires, at 70 s, 50 s later.

use std::collections::VecDeque;

use crate::algorithm::Rules;
use crate::quota::Quota;
use crate::quota::tick::SATURATION;

#[derive(Clone, Debug)]
pub struct SlidingLog {
    capacity: u64,
    period_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_us: u64,
    /// The running total up to and including this entry. It wraps around; only differences count.
    total: u64,
}

/// The entries in order of time.
#[derive(Clone, Debug, Default)]
pub struct State {
    entries: VecDeque<Entry>,
    /// The running total before the first entry.
    before: u64,
    /// Whether an operation has written it, which a store needs to know that reads and writes only a part of it.
    is_written: bool,
}

impl State {
    /// A log of entries in order of time: each has its time and the running total up to and including it, from 0.
    pub fn of_parts(entries: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let entries = entries.into_iter().map(|(at_us, total)| Entry { at_us, total });
        Self { entries: entries.collect(), before: 0, is_written: false }
    }

    /// The running total before the first entry, and the entries: each with its time and the total up to and including
    /// it.
    pub(crate) fn parts(
        &self,
    ) -> (u64, impl ExactSizeIterator<Item = (u64, u64)> + DoubleEndedIterator + Clone + use<'_>) {
        (self.before, self.entries.iter().map(|entry| (entry.at_us, entry.total)))
    }

    pub(crate) fn holds_nothing(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether an operation has written it since it was made of its [parts](Self::of_parts).
    pub(crate) const fn is_written(&self) -> bool {
        self.is_written
    }

    /// The units of all entries.
    pub(crate) fn units(&self) -> u64 {
        self.entries.back().map_or(0, |newest| newest.total.wrapping_sub(self.before))
    }
}

/// The part of a state that counts at some time.
#[derive(Clone, Copy)]
struct View {
    /// The first entry that counts.
    first: usize,
    /// The running total before it.
    before: u64,
    /// The units that count.
    used: u64,
}

impl SlidingLog {
    pub(crate) fn new(quota: &Quota) -> Self {
        Self { capacity: quota.capacity(), period_us: quota.period_us() }
    }

    fn view(&self, state: &State, now_us: u64) -> View {
        let expired_us = now_us.checked_sub(self.period_us);
        let first = expired_us
            .map_or(0, |expired_us| state.entries.partition_point(|entry| entry.at_us <= expired_us));
        let before = first.checked_sub(1).map_or(state.before, |last| state.entries[last].total);
        let total = state.entries.back().map_or(before, |newest| newest.total);
        View { first, before, used: total.wrapping_sub(before) }
    }

    /// How long an entry continues to count; one that is ahead of the clock counts from now on.
    fn expires_after_us(&self, entry: Entry, now_us: u64) -> u64 {
        entry.at_us.min(now_us) + self.period_us - now_us
    }

    /// Brings the state to `now_us`: removes expired entries, and moves entries that are ahead of the clock back to it.
    fn bring(&self, state: &mut State, now_us: u64) -> View {
        let view = self.view(state, now_us);
        state.is_written = true;
        state.entries.drain(..view.first);
        state.before = view.before;
        let newest = state.entries.back().copied();
        if let Some(Entry { total, .. }) = newest.filter(|newest| newest.at_us > now_us) {
            let in_time = state.entries.partition_point(|entry| entry.at_us < now_us);
            state.entries.truncate(in_time);
            state.entries.push_back(Entry { at_us: now_us, total });
        }
        if state.entries.capacity() > 32 && state.entries.len() < state.entries.capacity() / 4 {
            state.entries.shrink_to(state.entries.len() * 2);
        }
        View { first: 0, ..view }
    }
}

impl Rules for SlidingLog {
    type State = Box<State>;

    fn remaining(&self, state: &Box<State>, now_us: u64) -> u64 {
        self.capacity.saturating_sub(self.view(state, now_us).used)
    }

    fn room(&self, state: &Box<State>, now_us: u64) -> u64 {
        (SATURATION * self.capacity).saturating_sub(self.view(state, now_us).used)
    }

    fn spend(&self, state: &mut Box<State>, now_us: u64, units: u64) {
        let total = {
            let view = self.bring(state, now_us);
            view.before.wrapping_add(view.used).wrapping_add(units)
        };
        match state.entries.back_mut() {
            Some(newest) if newest.at_us == now_us => newest.total = total,
            _ if units > 0 => state.entries.push_back(Entry { at_us: now_us, total }),
            _ => {}
        }
    }

    fn refund(&self, state: &mut Box<State>, now_us: u64, units: u64) {
        let view = self.bring(state, now_us);
        let kept = view.used.saturating_sub(units);
        let total = view.before.wrapping_add(kept);
        while let Some(newest) = state.entries.pop_back() {
            let older = state.entries.back().map_or(state.before, |entry| entry.total);
            if older.wrapping_sub(view.before) < kept {
                state.entries.push_back(Entry { total, ..newest });
                return;
            }
        }
    }

    fn rewind(&self, state: &mut Box<State>, now_us: u64) -> bool {
        let ahead = state.entries.back().is_some_and(|newest| newest.at_us > now_us);
        if ahead {
            self.bring(state, now_us);
        }
        ahead
    }

    fn retry_after_us(&self, state: &Box<State>, now_us: u64, cost: u64) -> u64 {
        let view = self.view(state, now_us);
        let missing = (view.used + cost).saturating_sub(self.capacity);
        let expired_by = state.entries.partition_point(|entry| {
            entry.total.wrapping_sub(state.before) < missing + view.before.wrapping_sub(state.before)
        });
        state.entries.get(expired_by).map_or(0, |entry| self.expires_after_us(*entry, now_us))
    }

    fn reset_after_us(&self, state: &Box<State>, now_us: u64) -> u64 {
        let view = self.view(state, now_us);
        match state.entries.back() {
            Some(newest) if view.used > 0 => self.expires_after_us(*newest, now_us),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::testing::{SECOND, quota};

    fn log(text: &str) -> SlidingLog {
        SlidingLog::new(&quota(text))
    }

    #[test]
    fn the_worked_example() {
        let log = log("5/minute sliding_log");
        let mut state = Box::default();
        log.spend(&mut state, 0, 3);
        log.spend(&mut state, 10 * SECOND, 2);
        assert_eq!(log.remaining(&state, 20 * SECOND), 0);
        assert_eq!(log.retry_after_us(&state, 20 * SECOND, 4), 50 * SECOND);
        assert_eq!(log.reset_after_us(&state, 20 * SECOND), 50 * SECOND);
        assert_eq!(log.retry_after_us(&state, 20 * SECOND, 3), 40 * SECOND);
    }

    #[test]
    fn a_refund_gives_back_the_newest_first() {
        let log = log("5/minute sliding_log");
        let mut state = Box::default();
        log.spend(&mut state, 0, 3);
        log.spend(&mut state, 10 * SECOND, 2);
        log.refund(&mut state, 10 * SECOND, 3);
        assert_eq!(log.remaining(&state, 10 * SECOND), 3);
        assert_eq!(log.reset_after_us(&state, 10 * SECOND), 50 * SECOND);
        log.refund(&mut state, 10 * SECOND, u64::MAX);
        assert_eq!(log.reset_after_us(&state, 10 * SECOND), 0);
    }

    #[test]
    fn what_is_ahead_of_the_clock_is_moved_back_to_it() {
        let log = log("5/minute sliding_log");
        let mut state = Box::default();
        for (at_us, units) in [(80 * SECOND, 2), (100 * SECOND, 1), (130 * SECOND, 2)] {
            log.spend(&mut state, at_us, units);
        }
        for written in [false, true] {
            if written {
                assert!(log.rewind(&mut state, 90 * SECOND));
            }
            assert_eq!(log.remaining(&state, 90 * SECOND), 0);
            assert_eq!(log.retry_after_us(&state, 90 * SECOND, 2), 50 * SECOND);
            assert_eq!(log.retry_after_us(&state, 90 * SECOND, 3), 60 * SECOND);
        }
    }

    #[test]
    fn what_has_expired_is_forgotten() {
        let log = log("1000/second sliding_log");
        let mut state = Box::default();
        for at_us in 0..100_000 {
            log.spend(&mut state, at_us * 1_000, 1);
        }
        assert_eq!(state.entries.len(), 1_000);
        log.spend(&mut state, 200_000_000, 1);
        assert!(state.entries.len() == 1 && state.entries.capacity() < 64);
    }
}
