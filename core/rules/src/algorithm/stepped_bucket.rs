//! A bucket of tokens that is refilled `step` tokens at a time.
//!
//! # Derivation
//!
//! `step` tokens arrive every `interval = step * period / limit` microseconds, which is whole (checked when the quota is
//! made). The refill clock starts with the first spending from a full bucket, so the state is how many units are used and
//! when the clock last struck:
//!
//! ```text
//! strikes = floor((now - at) / interval);  used = max(0, used - strikes * step);  at += strikes * interval
//! allowed = used + cost <= capacity;  then used += cost
//! ```
//!
//! A full bucket is like a new one: its clock stands still.
//!
//! # Worked example
//!
//! `50/day token_bucket burst=200 step=50`: 50 tokens arrive every day. 150 are spent at 0 s; 50 remain. A cost of 60 at
//! 1 s has to wait for the next strike, 86,399 s later. The bucket is full again after 3 strikes.
//!
//! # Changed numbers
//!
//! The units used and the clock are kept; units beyond 8 times the new capacity are cut to that.

use crate::algorithm::Rules;
use crate::quota::Quota;
use crate::quota::tick::SATURATION;

#[derive(Clone, Debug)]
pub struct SteppedBucket {
    step: u64,
    interval_us: u64,
    capacity: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    pub(crate) used: u64,
    /// When the refill clock last struck, or started.
    pub(crate) at_us: u64,
}

impl SteppedBucket {
    pub(crate) fn new(quota: &Quota, step: u64) -> Self {
        Self { step, interval_us: quota.step_interval_us(), capacity: quota.capacity() }
    }

    fn saturated(&self) -> u64 {
        SATURATION * self.capacity
    }

    /// The state at `now_us`: arrived tokens are added, and a clock that is ahead is moved back.
    fn as_of(&self, state: State, now_us: u64) -> State {
        let at_us = state.at_us.min(now_us);
        let strikes = (now_us - at_us) / self.interval_us;
        let used = state.used.min(self.saturated()).saturating_sub(strikes.saturating_mul(self.step));
        // The clock of a full bucket stands still until units are spent.
        State { used, at_us: if used == 0 { now_us } else { at_us + strikes * self.interval_us } }
    }

    fn struck_after_us(&self, strikes: u64, state: State, now_us: u64) -> u64 {
        strikes * self.interval_us - (now_us - state.at_us)
    }
}

impl Rules for SteppedBucket {
    type State = State;

    fn remaining(&self, state: &State, now_us: u64) -> u64 {
        self.capacity.saturating_sub(self.as_of(*state, now_us).used)
    }

    fn room(&self, state: &State, now_us: u64) -> u64 {
        self.saturated() - self.as_of(*state, now_us).used
    }

    fn spend(&self, state: &mut State, now_us: u64, units: u64) {
        *state = self.as_of(*state, now_us);
        state.used += units;
        debug_assert!(state.used <= self.saturated());
    }

    fn refund(&self, state: &mut State, now_us: u64, units: u64) {
        *state = self.as_of(*state, now_us);
        state.used = state.used.saturating_sub(units);
    }

    fn rewind(&self, state: &mut State, now_us: u64) -> bool {
        let ahead = state.at_us > now_us;
        state.at_us = state.at_us.min(now_us);
        ahead
    }

    fn retry_after_us(&self, state: &State, now_us: u64, cost: u64) -> u64 {
        let state = self.as_of(*state, now_us);
        let missing = (state.used + cost).saturating_sub(self.capacity);
        self.struck_after_us(missing.div_ceil(self.step), state, now_us)
    }

    fn reset_after_us(&self, state: &State, now_us: u64) -> u64 {
        let state = self.as_of(*state, now_us);
        if state.used == 0 { 0 } else { self.struck_after_us(state.used.div_ceil(self.step), state, now_us) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::testing::{DAY, SECOND, quota};

    fn bucket(text: &str) -> SteppedBucket {
        SteppedBucket::new(&quota(text), quota(text).step().unwrap())
    }

    #[test]
    fn the_worked_example() {
        let bucket = bucket("50/day token_bucket burst=200 step=50");
        let mut state = State::default();
        bucket.spend(&mut state, 0, 150);
        assert_eq!((bucket.remaining(&state, 0), bucket.reset_after_us(&state, 0)), (50, 3 * DAY));
        assert_eq!(bucket.retry_after_us(&state, SECOND, 60), DAY - SECOND);
    }

    #[test]
    fn the_clock_of_a_full_bucket_stands_still() {
        let bucket = bucket("3/minute token_bucket step=3");
        let mut state = State::default();
        bucket.spend(&mut state, 0, 1);
        bucket.refund(&mut state, 30 * SECOND, 1);
        bucket.spend(&mut state, 50 * SECOND, 1);
        assert_eq!(bucket.reset_after_us(&state, 50 * SECOND), 60 * SECOND);
    }

    #[test]
    fn changed_numbers_keep_what_was_used() {
        let (before, after) =
            (bucket("20/second token_bucket step=5"), bucket("5/second token_bucket step=5"));
        let mut state = State::default();
        before.spend(&mut state, 0, 20);
        assert_eq!(after.retry_after_us(&state, SECOND / 2, 1), 3 * SECOND + SECOND / 2);
    }
}
