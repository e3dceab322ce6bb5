//! A bucket of tokens that is refilled continuously, as a debt that is repaid (GCRA).
//!
//! # Derivation
//!
//! A bucket holds `capacity` tokens and gets `limit` of them per `period`, so one token every `period / limit`, which is
//! rarely a whole number. To keep integers, a token is worth `period` units of debt and every tick repays `limit` of
//! them, both divided by their greatest common divisor:
//!
//! ```text
//! token    = (period / tick) / g        rate = limit / g        g = gcd(limit, period / tick)
//! debt     = max(0, debt - max(0, now - at) * rate);  at = now
//! allowed  = debt + cost * token <= capacity * token;  then debt += cost * token
//! ```
//!
//! A full bucket has no debt. It takes `debt / rate` ticks to be full again. This is the virtual scheduling of the
//! Generic Cell Rate Algorithm (ITU-T I.371, annex A), relative to now: its theoretical arrival time is
//! `at + debt / rate`.
//!
//! # Worked example
//!
//! `3/minute token_bucket`: g = gcd(3, 60,000,000) = 3, a token is worth 20,000,000 and a microsecond repays 1. After
//! one token at 0 s the debt is 20,000,000 and the bucket is full again after 20 s. At 10 s the debt has fallen to
//! 10,000,000; spending another makes it 30,000,000: `floor((60,000,000 - 30,000,000) / 20,000,000)` = 1 token remains.
//!
//! # Changed numbers
//!
//! A debt corresponds to a time only under the numbers with which it was counted, so the state names them. Under other
//! numbers the debt becomes the one that takes as long to repay (rounded up to the microsecond), at most that of a
//! saturated bucket. The conversion starts from the moment of the last write, so its result does not depend on when it is
//! computed.

use crate::algorithm::divisor::Divisor;
use crate::algorithm::{Explanation, Rules};
use crate::quota::Quota;
use crate::quota::tick::{SATURATION, gcd, rate};

#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// The debt that one token is worth.
    token: u64,
    /// Divides by `token`.
    by_token: Divisor,
    /// The debt that one tick repays.
    rate: u64,
    /// The debt of an empty bucket.
    empty: u64,
    /// The debt beyond which nothing can be charged: at most 2^53, checked when the quota is made.
    saturated: u64,
    tick_us: u64,
    period_us: u64,
    numbers: Numbers,
}

/// The numbers under which a debt was counted: the limit (below 2^40) and, above it, the tick's power of ten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers(u64);

impl Numbers {
    const LIMIT_BITS: u32 = 40;

    fn new(limit: u64, tick_us: u64) -> Self {
        debug_assert!(limit < 1 << Self::LIMIT_BITS);
        Self(limit | u64::from(tick_us.ilog10()) << Self::LIMIT_BITS)
    }

    fn limit(self) -> u64 {
        self.0 & ((1 << Self::LIMIT_BITS) - 1)
    }

    fn tick_us(self) -> u64 {
        10_u64.pow(u32::try_from(self.0 >> Self::LIMIT_BITS).unwrap_or(0))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    pub(crate) debt: u64,
    /// The time of `debt`, in ticks since the epoch.
    at: u64,
    numbers: Numbers,
}

/// The parts of a state, for a store that keeps it as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) debt: u64,
    /// In ticks since the epoch.
    pub(crate) at: u64,
    /// The limit under which the debt was counted.
    pub(crate) limit: u64,
    /// The tick in which both were counted, in microseconds: a power of ten.
    pub(crate) tick_us: u64,
}

impl State {
    /// A state of these parts. Its time in microseconds must be one that a clock can show.
    pub(crate) fn of_parts(parts: Parts) -> Self {
        let Parts { debt, at, limit, tick_us } = parts;
        Self { debt, at, numbers: Numbers::new(limit, tick_us) }
    }

    /// The parts of this state.
    pub(crate) fn parts(self) -> Parts {
        let (limit, tick_us) = (self.numbers.limit(), self.numbers.tick_us());
        Parts { debt: self.debt, at: self.at, limit, tick_us }
    }
}

impl TokenBucket {
    pub(crate) fn new(quota: &Quota) -> Self {
        let tick_us = quota.tick_us();
        let period = quota.period_us() / tick_us;
        let divisor = gcd(quota.limit(), period);
        let token = period / divisor;
        let empty = quota.capacity() * token;
        Self {
            token,
            by_token: Divisor::new(token),
            rate: quota.limit() / divisor,
            empty,
            saturated: SATURATION * empty,
            tick_us,
            period_us: quota.period_us(),
            numbers: Numbers::new(quota.limit(), tick_us),
        }
    }

    #[inline]
    fn ticks(&self, us: u64) -> u64 {
        if self.tick_us == 1 { us } else { us / self.tick_us }
    }

    /// The debt at `now_us`, and that time in ticks: the debt is reduced by what was repaid, and a state ahead of the
    /// clock is moved back.
    #[expect(clippy::inline_always, reason = "a call takes longer")]
    #[inline(always)]
    fn as_of(&self, state: &State, now_us: u64) -> (u64, u64) {
        if state.numbers == self.numbers {
            self.repaid(state.debt, state.at, now_us)
        } else {
            let State { debt, at, .. } = self.converted(*state);
            self.repaid(debt, at, now_us)
        }
    }

    #[expect(clippy::inline_always, reason = "a call takes longer")]
    #[inline(always)]
    fn repaid(&self, debt: u64, at: u64, now_us: u64) -> (u64, u64) {
        let now = self.ticks(now_us);
        let passed = now.saturating_sub(at);
        // Most limits divide their period, and then nothing has to be multiplied. A product beyond 64 bits exceeds any
        // debt.
        let repaid = if self.rate == 1 { passed } else { passed.saturating_mul(self.rate) };
        (debt.min(self.saturated).saturating_sub(repaid), now)
    }

    /// The debt under these numbers that takes as long to repay as the given one under its own.
    #[cold]
    #[inline(never)]
    fn converted(&self, state: State) -> State {
        if state.debt == 0 {
            return State::default();
        }
        let (limit, tick_us) = (state.numbers.limit(), state.numbers.tick_us());
        let rate = rate(limit, self.period_us, tick_us);
        // A state that was read from bytes may have any debt and any time.
        let full_at_us = u128::from(state.at + state.debt.div_ceil(rate)) * u128::from(tick_us);
        let at = self.ticks(state.at.saturating_mul(tick_us));
        let span_us = full_at_us - u128::from(at * self.tick_us);
        let debt = span_us.saturating_mul(self.rate.into()).div_ceil(self.tick_us.into());
        State { debt: u64::try_from(debt).unwrap_or(u64::MAX), at, numbers: self.numbers }
    }

    /// How long until this much debt is repaid: until the first microsecond whose tick has repaid it.
    #[expect(clippy::inline_always, reason = "a call takes longer")]
    #[inline(always)]
    fn repaid_after_us(&self, debt: u64, now_us: u64) -> u64 {
        if self.tick_us == 1 && self.rate == 1 {
            return debt;
        }
        match debt.div_ceil(self.rate) {
            0 => 0,
            ticks => (self.ticks(now_us) + ticks) * self.tick_us - now_us,
        }
    }

    /// The debt in tenths of a unit, rounded up, for people.
    pub(crate) fn debt_tenths(&self, state: &State, now_us: u64) -> u64 {
        let tenths = (u128::from(self.as_of(state, now_us).0) * 10).div_ceil(u128::from(self.token));
        u64::try_from(tenths).unwrap_or(u64::MAX)
    }

    /// How long until the debt before the last `spent` units is repaid.
    pub(crate) fn turn_after_us(&self, state: &State, now_us: u64, spent: u64) -> u64 {
        let before = self.as_of(state, now_us).0.saturating_sub(spent.saturating_mul(self.token));
        self.repaid_after_us(before, now_us)
    }
}

impl Rules for TokenBucket {
    type State = State;

    #[inline]
    fn remaining(&self, state: &State, now_us: u64) -> u64 {
        self.by_token.quotient(self.empty.saturating_sub(self.as_of(state, now_us).0))
    }

    fn room(&self, state: &State, now_us: u64) -> u64 {
        self.by_token.quotient(self.saturated - self.as_of(state, now_us).0)
    }

    #[inline]
    fn spend(&self, state: &mut State, now_us: u64, units: u64) {
        let (debt, at) = self.as_of(state, now_us);
        let debt = debt + units * self.token;
        debug_assert!(debt <= self.saturated);
        *state = State { debt, at, numbers: self.numbers };
    }

    fn refund(&self, state: &mut State, now_us: u64, units: u64) {
        let (debt, at) = self.as_of(state, now_us);
        let debt = debt.saturating_sub(units.saturating_mul(self.token));
        *state = State { debt, at, numbers: self.numbers };
    }

    #[inline]
    fn rewind(&self, state: &mut State, now_us: u64) -> bool {
        let ahead = if state.numbers == self.numbers {
            state.at > self.ticks(now_us)
        } else {
            state.at * state.numbers.tick_us() > now_us
        };
        if ahead {
            let (debt, at) = self.as_of(state, now_us);
            *state = State { debt, at, numbers: self.numbers };
        }
        ahead
    }

    #[inline]
    fn retry_after_us(&self, state: &State, now_us: u64, cost: u64) -> u64 {
        let debt = self.as_of(state, now_us).0 + cost * self.token;
        self.repaid_after_us(debt.saturating_sub(self.empty), now_us)
    }

    #[inline]
    fn reset_after_us(&self, state: &State, now_us: u64) -> u64 {
        self.repaid_after_us(self.as_of(state, now_us).0, now_us)
    }

    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than computing it"
    )]
    #[inline(always)]
    fn admit(&self, state: &mut State, now_us: u64, cost: u64) -> Option<Explanation> {
        let (debt, at) = self.as_of(state, now_us);
        let debt = debt + cost * self.token;
        // Compared in debt, which needs no division.
        let left = self.empty.checked_sub(debt)?;
        *state = State { debt, at, numbers: self.numbers };
        let reset_after_us = self.repaid_after_us(debt, now_us);
        Some(Explanation { remaining: self.by_token.quotient(left), reset_after_us, wait_us: 0 })
    }

    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than computing it"
    )]
    #[inline(always)]
    fn deny(&self, state: &mut State, now_us: u64, cost: u64) -> (bool, Explanation) {
        let written = self.rewind(state, now_us);
        let (debt, _) = self.as_of(state, now_us);
        let explanation = Explanation {
            remaining: self.by_token.quotient(self.empty.saturating_sub(debt)),
            reset_after_us: self.repaid_after_us(debt, now_us),
            wait_us: self.repaid_after_us((debt + cost * self.token).saturating_sub(self.empty), now_us),
        };
        (written, explanation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::testing::{SECOND, quota};

    fn bucket(text: &str) -> TokenBucket {
        TokenBucket::new(&quota(text))
    }

    #[test]
    fn the_worked_example() {
        let bucket = bucket("3/minute token_bucket");
        assert_eq!((bucket.token, bucket.rate, bucket.empty), (20_000_000, 1, 60_000_000));
        let mut state = State::default();
        bucket.spend(&mut state, 0, 1);
        assert_eq!((state.debt, bucket.reset_after_us(&state, 0)), (20_000_000, 20 * SECOND));
        bucket.spend(&mut state, 10 * SECOND, 1);
        assert_eq!((state.debt, bucket.remaining(&state, 10 * SECOND)), (30_000_000, 1));
    }

    #[test]
    fn a_fraction_of_a_microsecond_is_never_lost() {
        // 97 does not divide a minute: a token comes every 618,556.7 us.
        let bucket = bucket("97/minute token_bucket");
        let mut state = State::default();
        bucket.spend(&mut state, 0, 97);
        assert_eq!(bucket.retry_after_us(&state, 0, 1), 618_557);
        assert_eq!(bucket.remaining(&state, 59_999_999), 96);
        assert_eq!(bucket.remaining(&state, 60_000_000), 97);
    }

    #[test]
    fn a_coarse_tick_still_waits_to_the_microsecond() {
        let bucket = bucket("999983/day token_bucket");
        assert_eq!(bucket.tick_us, 100);
        let mut state = State::default();
        bucket.spend(&mut state, 5, 999_983);
        let wait = bucket.retry_after_us(&state, 5, 1);
        assert_eq!(bucket.remaining(&state, 5 + wait - 1), 0);
        assert_eq!(bucket.remaining(&state, 5 + wait), 1);
    }

    #[test]
    fn changed_numbers_keep_the_time_until_full() {
        let (before, after) = (bucket("100/minute token_bucket"), bucket("200/minute token_bucket"));
        let mut state = State::default();
        before.spend(&mut state, 0, 50);
        for now_us in [0, 7 * SECOND, 29 * SECOND] {
            assert_eq!(after.reset_after_us(&state, now_us), before.reset_after_us(&state, now_us));
        }
        assert_eq!(after.remaining(&state, 0), 100);
    }

    #[test]
    fn a_debt_beyond_saturation_is_cut_from_the_last_write_on() {
        let (before, after) = (bucket("100/minute token_bucket"), bucket("100/minute token_bucket burst=1"));
        let mut state = State::default();
        before.spend(&mut state, 0, 100);
        // 8 tokens at 600,000 us each; a denied peek a second later finds a second less.
        assert_eq!(after.reset_after_us(&state, 0), 4_800_000);
        assert_eq!(after.reset_after_us(&state, SECOND), 3_800_000);
    }

    #[test]
    fn other_ticks_keep_the_time_until_full() {
        let (fine, coarse) = (bucket("10/day token_bucket"), bucket("999983/day token_bucket"));
        let mut state = State::default();
        fine.spend(&mut state, 123, 5);
        let full_us = fine.reset_after_us(&state, 123);
        let rounded = coarse.reset_after_us(&state, 123);
        assert!((full_us..full_us + coarse.tick_us).contains(&rounded), "{full_us} {rounded}");
        coarse.spend(&mut state, 123, 1);
        assert!(fine.reset_after_us(&state, 123) >= rounded);
    }
}
