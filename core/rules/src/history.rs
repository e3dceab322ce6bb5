//! The past numbers of a policy, for states that were written under them.
//!
//! A bucket's state names the limit under which it was written. If that limit was changed since and the state had expired
//! under the old numbers before the change, it must count as unused: new numbers that repay more slowly must not make it
//! count again.

use std::ops::Deref;

use crate::algorithm::{State, stepped_bucket, token_bucket};
use crate::policy::Policy;
use crate::quota::Quota;
use crate::quota::tick::{SATURATION, rate};

/// A policy whose numbers were changed, and when, in microseconds since the epoch.
#[derive(Clone, Debug)]
pub struct PastPolicy {
    pub policy: Policy,
    pub at_us: u64,
}

/// The past numbers of a policy, oldest first, up to `MAX_SUPERSEDED`.
#[derive(Clone, Debug, Default)]
pub struct History(Vec<PastPolicy>);

/// Which other numbers the states of a policy may have been written under.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Past numbers of all keys, oldest first, each superseded at a known time.
    Past(&'a [PastPolicy]),
    /// Each key has its own numbers, which may be any of these: states that were written under others were changed just now.
    Now(&'a [Policy]),
}

impl<'a> Change<'a> {
    /// No other numbers.
    #[doc(hidden)]
    pub const NONE: Self = Self::Past(&[]);

    /// The past numbers with a known time.
    #[doc(hidden)]
    pub fn past(self) -> &'a [PastPolicy] {
        match self {
            Self::Past(past) => past,
            Self::Now(_) => &[],
        }
    }

    /// All other numbers.
    #[doc(hidden)]
    pub fn others(self) -> impl Iterator<Item = &'a Policy> {
        let (past, others) = match self {
            Self::Past(past) => (past, &[][..]),
            Self::Now(others) => (&[][..], others),
        };
        past.iter().map(|past| &past.policy).chain(others)
    }
}

/// How many past numbers are kept.
const MAX_SUPERSEDED: usize = 8;

impl History {
    /// The history after these numbers were superseded as well.
    #[must_use]
    pub fn then(&self, policy: &Policy, at_us: u64) -> Self {
        let these = PastPolicy { policy: policy.clone(), at_us };
        let forgotten = (self.0.len() + 1).saturating_sub(MAX_SUPERSEDED);
        Self(self.0.iter().skip(forgotten).cloned().chain([these]).collect())
    }
}

impl Deref for History {
    type Target = [PastPolicy];

    fn deref(&self) -> &[PastPolicy] {
        &self.0
    }
}

/// The past numbers of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastNumbers {
    pub limit: u64,
    pub capacity: u64,
    /// Only for a stepped bucket.
    pub interval_us: u64,
    pub tick_us: u64,
    /// Whether a microsecond repaid 1: then a record need not name a limit.
    pub repays_one: bool,
    pub superseded_at_us: u64,
}

/// Whether a microsecond repays 1 unit of debt under a bucket's numbers.
pub(crate) fn repays_one(quota: &Quota) -> bool {
    quota.tick_us() == 1 && quota.limit() > 0 && quota.period_us().is_multiple_of(quota.limit())
}

/// The past numbers of a quota, oldest first.
pub fn past_of(quota: &Quota, superseded: &[PastPolicy]) -> Box<[PastNumbers]> {
    if !quota.algorithm().is_bucket() {
        return Box::default();
    }
    let numbers = superseded.iter().filter_map(|superseded| {
        let past = superseded.policy.quotas().iter().find(|past| past.identity() == quota.identity())?;
        Some(PastNumbers {
            limit: past.limit(),
            capacity: past.capacity(),
            interval_us: past.step_interval_us(),
            tick_us: past.tick_us(),
            repays_one: repays_one(past),
            superseded_at_us: superseded.at_us,
        })
    });
    numbers.collect()
}

/// Whether a state, written under `limit`, had expired when those numbers, or later ones, were superseded.
pub fn ran_out(state: &State, limit: u64, quota: &Quota, past: &[PastNumbers]) -> bool {
    match state {
        State::TokenBucket(state) => {
            let parts = state.parts();
            let is_its = |past: &PastNumbers| (past.limit, past.tick_us) == (parts.limit, parts.tick_us);
            bucket_ran_out(parts, quota, past, past.iter().any(is_its))
        }
        State::SteppedBucket(state) => stepped_bucket_ran_out(*state, limit, quota, past),
        State::FixedWindow(_)
        | State::SlidingWindow(_)
        | State::SlidingLog(_)
        | State::Grouped(_)
        | State::Slots
        | State::Reservations(_)
        | State::Commits(_)
        | State::Block(_) => false,
    }
}

/// Whether a state, written under `limit`, has expired under those numbers, when they are superseded now.
///
/// It matters only for a bucket that is refilled in steps. Other states say themselves until when they count, whatever the
/// numbers are: that of any other bucket takes as long to repay under new numbers.
pub fn has_run_out(state: &State, limit: u64, quota: &Quota, now_us: u64) -> bool {
    match state {
        State::SteppedBucket(state) => stepped_bucket_has_run_out(*state, limit, quota, now_us),
        State::TokenBucket(_)
        | State::FixedWindow(_)
        | State::SlidingWindow(_)
        | State::SlidingLog(_)
        | State::Grouped(_)
        | State::Slots
        | State::Reservations(_)
        | State::Commits(_)
        | State::Block(_) => false,
    }
}

/// As [`has_run_out`], for a bucket that is refilled in steps.
pub(crate) fn stepped_bucket_has_run_out(
    state: stepped_bucket::State,
    limit: u64,
    quota: &Quota,
    now_us: u64,
) -> bool {
    if limit == 0 || limit == quota.limit() || quota.limit() == 0 {
        return false;
    }
    // A step comes after a whole number of microseconds under all numbers that a quota can have.
    let step = u128::from(quota.step().unwrap_or(0));
    let (interval_us, limit) = (step * u128::from(quota.period_us()), u128::from(limit));
    let passed_us = u128::from(now_us.saturating_sub(state.at_us));
    passed_us > 0
        && interval_us.is_multiple_of(limit)
        && u128::from(state.used) <= passed_us / (interval_us / limit) * step
}

/// As [`ran_out`], for a continuously refilled bucket; `is_past` says whether it was written under past numbers.
pub(crate) fn bucket_ran_out(
    parts: token_bucket::Parts,
    quota: &Quota,
    past: &[PastNumbers],
    is_past: bool,
) -> bool {
    let is_current = (parts.limit, parts.tick_us) == (quota.limit(), quota.tick_us());
    // Under a limit of 0 nothing is written.
    let is_past = is_past && !is_current && parts.limit > 0 && quota.limit() > 0;
    past.last().filter(|_| is_past).is_some_and(|last| {
        let ticks = parts.at + parts.debt.div_ceil(rate(parts.limit, quota.period_us(), parts.tick_us));
        u128::from(ticks) * u128::from(parts.tick_us) <= u128::from(last.superseded_at_us)
    })
}

/// As [`ran_out`], for a bucket that is refilled in steps.
pub(crate) fn stepped_bucket_ran_out(
    state: stepped_bucket::State,
    limit: u64,
    quota: &Quota,
    past: &[PastNumbers],
) -> bool {
    let stepped_bucket::State { used, at_us } = state;
    let written_under = past.iter().rposition(|past| past.limit == limit);
    let since = written_under.filter(|_| limit != quota.limit());
    let step = quota.step().unwrap_or(0);
    since.is_some_and(|since| {
        past[since..].iter().filter(|past| past.limit > 0).any(|past| {
            let passed_us = past.superseded_at_us.saturating_sub(at_us);
            let struck = passed_us.checked_div(past.interval_us).unwrap_or(0);
            used.min(SATURATION * past.capacity) <= struck.saturating_mul(step)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten units of a limit of 10/s, which are repaid a second later, and the numbers since.
    #[test]
    fn bucket_has_run_out_when_its_numbers_were_superseded() {
        let numbers = |limit: u64| format!("{limit}/s token_bucket burst=20").parse::<Quota>().unwrap();
        let ran_out = |written: u64, now: u64, superseded_at_us| {
            let policy = Policy::new("p", [numbers(written)]).unwrap();
            let past = past_of(&numbers(now), &[PastPolicy { policy, at_us: superseded_at_us }]);
            let parts = token_bucket::Parts { debt: 1_000_000, at: 5_000_000, limit: written, tick_us: 1 };
            ran_out(&State::TokenBucket(token_bucket::State::of_parts(parts)), written, &numbers(now), &past)
        };
        assert!(ran_out(10, 20, 6_000_000) && !ran_out(10, 20, 5_999_999));
        // A limit of 0 repays nothing: neither is its state of no use, nor is another one that it keeps.
        assert!(!ran_out(0, 20, 6_000_000) && !ran_out(10, 0, 6_000_000));
        assert!(!ran_out(10, 10, 6_000_000));
    }
}
