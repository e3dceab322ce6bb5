//! A queue that drains at the rate: admission as in a token bucket, and every admitted request gets a delay until its
//! turn.
//!
//! # Derivation
//!
//! The capacity is the length of the queue. A request that is admitted when the queue holds `debt / token` others
//! leaves when those have drained, so it has to wait `delay = ceil(debt / rate)` ticks, with the debt from before its
//! own was added. Two admitted requests that follow each other leave `period / limit` apart, or less than a tick closer,
//! since a turn begins with a tick, however they arrived.
//!
//! # Worked example
//!
//! `2/second leaky_bucket burst=4`: a place drains every 500,000 us. Five requests at once: the first leaves at once,
//! then after 0.5, 1.0 and 1.5 s; the fifth finds no place and may come again after 500,000 us.

use crate::algorithm::Rules;
use crate::algorithm::token_bucket::{State, TokenBucket};
use crate::quota::Quota;

#[derive(Clone, Debug)]
pub struct LeakyBucket {
    queue: TokenBucket,
}

impl LeakyBucket {
    pub(crate) fn new(quota: &Quota) -> Self {
        Self { queue: TokenBucket::new(quota) }
    }

    /// What is in the queue, in tenths of a unit, rounded up, for people.
    pub(crate) fn debt_tenths(&self, state: &State, now_us: u64) -> u64 {
        self.queue.debt_tenths(state, now_us)
    }
}

impl Rules for LeakyBucket {
    type State = State;

    fn remaining(&self, state: &State, now_us: u64) -> u64 {
        self.queue.remaining(state, now_us)
    }

    fn room(&self, state: &State, now_us: u64) -> u64 {
        self.queue.room(state, now_us)
    }

    fn spend(&self, state: &mut State, now_us: u64, units: u64) {
        self.queue.spend(state, now_us, units);
    }

    fn refund(&self, state: &mut State, now_us: u64, units: u64) {
        self.queue.refund(state, now_us, units);
    }

    fn rewind(&self, state: &mut State, now_us: u64) -> bool {
        self.queue.rewind(state, now_us)
    }

    fn retry_after_us(&self, state: &State, now_us: u64, cost: u64) -> u64 {
        self.queue.retry_after_us(state, now_us, cost)
    }

    fn reset_after_us(&self, state: &State, now_us: u64) -> u64 {
        self.queue.reset_after_us(state, now_us)
    }

    fn delay_us(&self, state: &State, now_us: u64, spent: u64) -> u64 {
        self.queue.turn_after_us(state, now_us, spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::testing::quota;

    #[test]
    fn the_worked_example() {
        let queue = LeakyBucket::new(&quota("2/second leaky_bucket burst=4"));
        let mut state = State::default();
        let delays = [0; 4].map(|_| {
            assert!(queue.remaining(&state, 0) >= 1);
            queue.spend(&mut state, 0, 1);
            queue.delay_us(&state, 0, 1)
        });
        assert_eq!(delays, [0, 500_000, 1_000_000, 1_500_000]);
        assert_eq!((queue.remaining(&state, 0), queue.retry_after_us(&state, 0, 1)), (0, 500_000));
    }
}
