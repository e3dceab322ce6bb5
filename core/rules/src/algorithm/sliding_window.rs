//! Counters of sub-windows, the oldest of which slides out in proportion.
//!
//! # Derivation
//!
//! The period is cut into `buckets` sub-windows of `width`, aligned to the epoch. Whole sub-windows inside the last
//! period count in full. The one that is sliding out counts by the part of it that is still inside, as if its units
//! had been spread evenly over it:
//!
//! ```text
//! used    = sum of the `buckets` newest + ceil(oldest * (width - elapsed) / width)
//! allowed = used + cost <= capacity
//! ```
//!
//! with `elapsed` the time since the current sub-window began. With one bucket this is the well-known two-counter
//! approximation.
//!
//! When a cost does not fit, walk forward over the sub-windows that slide out. In each, the newer ones sum to `newer`
//! and `oldest` slides; it fits when `ceil(oldest * (width - elapsed) / width) <= capacity - cost - newer =: left`, which
//! for `left < oldest` is first so at `elapsed = width - floor(left * width / oldest)`.
//!
//! # Worked example
//!
//! `100/hour buckets=1`: 84 in the first hour, 36 in the second. A quarter into the second hour
//! `36 + ceil(84 * 45/60)` = 99 are used, and one more passes. For the next, `left = 100 - 1 - 37 = 62`: it passes
//! when `elapsed = 3,600,000,000 - floor(62 * 3,600,000,000 / 84)` = 942,857,143 us, which is 42,857,143 us later.
//!
//! # A clock that went back
//!
//! Units of sub-windows that are ahead of the clock are moved back into the current one. The others stay where they
//! are, and at an earlier time no less of them is inside: nothing is refilled.
//!
//! # Changed numbers
//!
//! The counts are kept; one that is beyond 8 times the new capacity is cut to that, so that no product passes 2^53.

use std::borrow::Cow;

use crate::algorithm::Rules;
use crate::quota::Quota;
use crate::quota::tick::SATURATION;

#[derive(Clone, Debug)]
pub struct SlidingWindow {
    capacity: u64,
    /// How many sub-windows make a period.
    buckets: u64,
    /// The width of a sub-window, in ticks.
    width: u64,
    tick_us: u64,
}

/// The counts of the newest sub-window and of the `buckets` before it.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The number of the newest sub-window that was written, counted from the epoch.
    newest: u64,
    /// A ring: sub-window `i` is counted at `i % (buckets + 1)`. Empty until the first unit is spent.
    counts: Box<[u64]>,
}

impl State {
    /// The counts of the sub-window `newest` and of those before it, the newest first: at least one and at most
    /// `buckets + 1`. Missing ones are 0.
    pub(crate) fn of_parts(newest: u64, newest_first: &[u64], buckets: u32) -> Self {
        let mut counts = vec![0; buckets as usize + 1];
        let length = counts.len();
        let place = place(newest, length);
        for (age, count) in (0..length).zip(newest_first) {
            counts[(place + length - age) % length] = *count;
        }
        Self { newest, counts: counts.into() }
    }

    /// The number of the newest sub-window, and the counts from it to the oldest; none when nothing was ever spent.
    pub(crate) fn parts(&self) -> (u64, impl Iterator<Item = u64> + use<'_>) {
        let length = self.counts.len();
        let place = if length == 0 { 0 } else { place(self.newest, length) };
        (self.newest, (0..length).map(move |age| self.counts[(place + length - age) % length]))
    }

    pub(crate) fn holds_nothing(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }
}

/// The index of a sub-window in a ring of this length.
#[expect(clippy::cast_possible_truncation, reason = "a ring has at most 61 counts")]
fn place(number: u64, length: usize) -> usize {
    (number % length as u64) as usize
}

impl SlidingWindow {
    pub(crate) fn new(quota: &Quota) -> Self {
        let buckets = u64::from(quota.buckets().unwrap_or(1));
        let tick_us = quota.tick_us();
        Self { capacity: quota.capacity(), buckets, width: quota.period_us() / buckets / tick_us, tick_us }
    }

    /// The number of the current sub-window and how many of its ticks have passed.
    fn position(&self, now_us: u64) -> (u64, u64) {
        let now = if self.tick_us == 1 { now_us } else { now_us / self.tick_us };
        (now / self.width, now % self.width)
    }

    fn saturated(&self) -> u64 {
        SATURATION * self.capacity
    }

    /// The length of the ring.
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 60 buckets")]
    fn length(&self) -> usize {
        self.buckets as usize + 1
    }

    fn place(&self, number: u64) -> usize {
        place(number, self.length())
    }

    /// The counts from the newest sub-window that was written to the oldest.
    fn newest_first<'a>(&self, state: &'a State) -> impl Iterator<Item = u64> + use<'a> {
        let most = self.saturated();
        let (older, newer) = state.counts.split_at((self.place(state.newest) + 1).min(state.counts.len()));
        older.iter().rev().chain(newer.iter().rev()).map(move |&count| count.min(most))
    }

    /// The counts of a state that is not ahead of the clock, from the newest to the oldest that is still inside, with
    /// their ages in sub-windows: 0 for the current one, `buckets` for the one that is sliding out.
    fn by_age<'a>(&self, state: &'a State, current: u64) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        (current - state.newest..=self.buckets).zip(self.newest_first(state))
    }

    /// The state with everything ahead of the clock moved back.
    fn not_ahead<'a>(&self, state: &'a State, current: u64) -> Cow<'a, State> {
        if state.newest <= current {
            return Cow::Borrowed(state);
        }
        let mut moved = state.clone();
        self.move_back(&mut moved, current);
        Cow::Owned(moved)
    }

    /// Moves the units that are ahead of the clock back into the current sub-window.
    #[cold]
    fn move_back(&self, state: &mut State, current: u64) {
        let mut counts = vec![0_u64; self.length()];
        // A sub-window before the epoch was never written.
        for (number, count) in (0..=state.newest).rev().zip(self.newest_first(state)) {
            let moved = &mut counts[self.place(number.min(current))];
            *moved = (*moved + count).min(self.saturated());
        }
        *state = State { newest: current, counts: counts.into() };
    }

    /// The part of a sub-window's units that still counts while it slides out.
    fn inside(&self, oldest: u64, elapsed: u64) -> u64 {
        (oldest * (self.width - elapsed)).div_ceil(self.width)
    }

    fn used(&self, state: &State, now_us: u64) -> u64 {
        let (current, elapsed) = self.position(now_us);
        let state = self.not_ahead(state, current);
        let used = self
            .by_age(&state, current)
            .map(|(age, count)| if age < self.buckets { count } else { self.inside(count, elapsed) });
        used.sum()
    }

    /// Brings the state to the current sub-window: clears what has slid out, and moves units that are ahead of the clock
    /// back.
    fn bring(&self, state: &mut State, current: u64) {
        if state.counts.is_empty() {
            *state = State { newest: current, counts: vec![0; self.length()].into() };
        } else if current < state.newest {
            self.move_back(state, current);
        }
        let slid_out = (current - state.newest).min(self.buckets + 1);
        for number in (current + 1 - slid_out)..=current {
            state.counts[self.place(number)] = 0;
        }
        state.newest = current;
        let most = self.saturated();
        for count in &mut state.counts {
            *count = (*count).min(most);
        }
    }
}

impl Rules for SlidingWindow {
    type State = State;

    fn remaining(&self, state: &State, now_us: u64) -> u64 {
        self.capacity.saturating_sub(self.used(state, now_us))
    }

    fn room(&self, state: &State, now_us: u64) -> u64 {
        self.saturated().saturating_sub(self.used(state, now_us))
    }

    fn spend(&self, state: &mut State, now_us: u64, units: u64) {
        let (current, _) = self.position(now_us);
        self.bring(state, current);
        state.counts[self.place(current)] += units;
        debug_assert!(state.counts[self.place(current)] <= self.saturated());
    }

    fn refund(&self, state: &mut State, now_us: u64, units: u64) {
        if state.counts.is_empty() {
            return;
        }
        let (current, _) = self.position(now_us);
        self.bring(state, current);
        let mut left = units;
        let (older, newer) = state.counts.split_at_mut(self.place(current) + 1);
        for count in older.iter_mut().rev().chain(newer.iter_mut().rev()) {
            let given_back = left.min(*count);
            *count -= given_back;
            left -= given_back;
        }
    }

    fn rewind(&self, state: &mut State, now_us: u64) -> bool {
        let (current, _) = self.position(now_us);
        let ahead = state.newest > current;
        if ahead {
            self.move_back(state, current);
        }
        ahead
    }

    fn retry_after_us(&self, state: &State, now_us: u64, cost: u64) -> u64 {
        let (current, _) = self.position(now_us);
        let state = self.not_ahead(state, current);
        let target = self.capacity - cost;
        // Sums from the newest on: the first sub-window whose units bring the sum above the target decides when the
        // request fits, since all newer ones fit with it.
        let mut newer = 0;
        for (age, count) in self.by_age(&state, current) {
            if newer + count > target {
                let elapsed = self.width - (target - newer) * self.width / count;
                let slides_out = current + self.buckets - age;
                return (slides_out * self.width + elapsed) * self.tick_us - now_us;
            }
            newer += count;
        }
        0
    }

    fn reset_after_us(&self, state: &State, now_us: u64) -> u64 {
        let (current, _) = self.position(now_us);
        let state = self.not_ahead(state, current);
        let newest = self.by_age(&state, current).find(|(_, count)| *count > 0);
        newest.map_or(0, |(age, _)| (current + self.buckets - age + 1) * self.width * self.tick_us - now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::testing::{SECOND, quota};

    fn window(text: &str) -> SlidingWindow {
        SlidingWindow::new(&quota(text))
    }

    #[test]
    fn the_worked_example() {
        let window = window("100/hour buckets=1");
        let quarter = 4_500 * SECOND;
        let mut state = State::default();
        window.spend(&mut state, SECOND, 84);
        window.spend(&mut state, 3_601 * SECOND, 36);
        assert_eq!(window.used(&state, quarter), 99);
        window.spend(&mut state, quarter, 1);
        assert_eq!(window.retry_after_us(&state, quarter, 1), 42_857_143);
        assert_eq!(window.reset_after_us(&state, quarter), 6_300 * SECOND);
    }

    #[test]
    fn the_wait_ends_with_the_first_microsecond_that_admits() {
        let window = window("10/second buckets=4");
        let mut state = State::default();
        for (at_us, units) in [(100_000, 2), (300_000, 3), (600_000, 4), (900_000, 1)] {
            window.spend(&mut state, at_us, units);
        }
        for cost in 1..=10 {
            let admits_us = 900_000 + window.retry_after_us(&state, 900_000, cost);
            assert!(window.remaining(&state, admits_us) >= cost, "{cost}");
            assert!(window.remaining(&state, admits_us - 1) < cost, "{cost}");
        }
    }

    #[test]
    fn a_step_back_refills_nothing() {
        let window = window("10/second buckets=1");
        let mut state = State::default();
        window.spend(&mut state, 1_999_999, 10);
        window.spend(&mut state, 2_100_000, 1);
        for written in [false, true] {
            if written {
                assert!(window.rewind(&mut state, 1_900_000));
            }
            assert_eq!(window.remaining(&state, 1_900_000), 0);
            assert_eq!(window.reset_after_us(&state, 1_900_000), 1_100_000);
        }
        assert!(!window.rewind(&mut state, 1_900_000));
    }

    #[test]
    fn near_the_epoch_there_are_no_older_sub_windows() {
        let window = window("10/second buckets=10");
        let mut state = State::default();
        window.spend(&mut state, 5, 4);
        window.refund(&mut state, 6, 1);
        assert_eq!(window.remaining(&state, 6), 7);
        window.spend(&mut state, 2_000_000, 10);
        window.spend(&mut state, 2_900_000, 5);
        window.rewind(&mut state, 0);
        assert_eq!((window.remaining(&state, 0), window.reset_after_us(&state, 0)), (0, 1_100_000));
        window.refund(&mut state, 0, 6);
        assert_eq!((window.remaining(&state, 0), window.reset_after_us(&state, 0)), (1, 1_100_000));
    }
}
