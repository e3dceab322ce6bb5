//! Units that were taken together, and until when they may be spent.
//!
//! A unit counts from when it was taken, and is spent later. So that no more is spent in any span than the quota admits, it ends
//! when the store no longer counts it as it did when it was taken:
//!
//! - In a window, with the sub-window in which it was counted. Until then the store would have counted it where it is.
//! - In a bucket that is refilled in steps, with the next step.
//! - In a bucket not at all, as long as something of what was spent has not been repaid yet: until then it does not matter when
//!   it was counted. This process knows of what it has spent itself; while that is repaid, the lease stays as it is. From then
//!   on it shrinks as the debt does that is left in all, others' included: when that is down to a part, so is the lease. So what
//!   all processes hold together is never more than the debt, and the debt of what was spent never more than the rest of it.
//!
//! A log counts each unit by itself, from the microsecond at which it was taken, so there is no time at all in which it could be
//! spent later: logs are not leased.

use crate::rules::decision::Decision;
use crate::rules::quota::{Algorithm, Quota};
use crate::store::redis::script::reply::Replied;

/// Parts of a unit, so that what is repaid is counted finely.
const PARTS: u32 = 16;

/// So much of a span of the store's time is not counted on, as the clocks of two hosts may run at different rates: a 1024th.
const RATE_ERROR: u32 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grant {
    /// Of a unit.
    parts: u64,
    taken_at_us: u64,
    /// For how long there had been nothing to repay when what was repaid was last taken off, and what is known of that.
    seen_us: u64,
    idle: Idle,
    ends: Ends,
}

/// For how long a bucket has had nothing to repay of what this process has spent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Idle {
    /// Before something was last spent.
    before_us: u64,
    /// When that is repaid, in nanoseconds.
    from_ns: u64,
}

impl Idle {
    /// Since that time.
    pub(crate) fn since(us: u64) -> Self {
        Self { before_us: 0, from_ns: us.saturating_mul(1_000) }
    }

    /// Up to a time, if nothing more is spent until then.
    pub(crate) fn at(&self, us: u64) -> u64 {
        self.before_us.saturating_add(us.saturating_sub(self.from_ns / 1_000))
    }

    /// Something was spent that takes so long to repay.
    pub(crate) fn ends(&mut self, now_us: u64, repaid_ns: u64) {
        self.before_us = self.at(now_us);
        self.from_ns = self.from_ns.max(now_us.saturating_mul(1_000)).saturating_add(repaid_ns);
    }

    /// What was spent is given back.
    pub(crate) fn begins(&mut self, now_us: u64) {
        *self = Self { before_us: self.at(now_us), from_ns: now_us.saturating_mul(1_000) };
    }
}

/// When units end that were taken, in microseconds of the holder's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// All of them: nothing is spent or given back from then on.
    pub(crate) at_us: u64,
    /// By and by, up to then: the bucket is full again.
    pub(crate) repaid_us: u64,
}

impl Default for Ends {
    fn default() -> Self {
        Self { at_us: u64::MAX, repaid_us: u64::MAX }
    }
}

impl Ends {
    /// Of units that were asked for at a time, which was before the store was.
    pub(crate) fn of(quotas: &[Quota], replied: &Replied, asked_us: u64) -> Self {
        let views = quotas.iter().zip(replied.decision.quotas());
        let ends = views.filter_map(|(quota, view)| {
            let span_us = span_us(quota)?;
            Some(match quota.algorithm() {
                Algorithm::SlidingWindow => span_us - replied.now_us % span_us,
                // Steps and windows that are under way end when the last of them does, or whole spans before.
                _ => match view.reset_after_us % span_us {
                    0 => span_us,
                    left_us => left_us,
                },
            })
        });
        let at_us = ends.map(|us| later(asked_us, us)).min().unwrap_or(u64::MAX);
        Self { at_us, repaid_us: repaid_us(quotas, &replied.decision, asked_us) }
    }
}

/// When the buckets among the quotas will be full again, if nothing else is spent: the first of them; never where there is none.
pub(crate) fn repaid_us(quotas: &[Quota], decision: &Decision, asked_us: u64) -> u64 {
    let views = quotas.iter().zip(decision.quotas());
    let repaid =
        views.filter(|(quota, _)| is_repaid(quota)).map(|(_, view)| later(asked_us, view.reset_after_us));
    repaid.min().unwrap_or(u64::MAX)
}

fn is_repaid(quota: &Quota) -> bool {
    quota.algorithm() == Algorithm::TokenBucket && quota.step().is_none()
}

fn later(asked_us: u64, us: u64) -> u64 {
    asked_us.saturating_add((us - (us >> RATE_ERROR)).saturating_sub(1))
}

/// How long units of a quota may be spent at most that are taken at the beginning: a step or a sub-window. `None` where they end
/// by and by.
pub(crate) fn span_us(quota: &Quota) -> Option<u64> {
    let span_us = match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.step_interval_us(),
        Algorithm::FixedWindow => quota.period_us(),
        Algorithm::SlidingWindow => quota.period_us() / u64::from(quota.buckets().unwrap_or(1)),
        Algorithm::SlidingLog => 1,
    };
    (span_us > 0).then_some(span_us)
}

/// How long it takes to repay a unit, in nanoseconds: by the bucket where that takes the least time, and rather less.
pub(crate) fn repays_unit_ns(quotas: &[Quota]) -> u64 {
    let buckets = quotas.iter().filter(|quota| is_repaid(quota) && quota.limit() > 0);
    let least_ns =
        buckets.map(|quota| u128::from(quota.period_us()) * 1_000 / u128::from(quota.limit())).min();
    let ns = u64::try_from(least_ns.unwrap_or(0)).unwrap_or(u64::MAX);
    ns - (ns >> RATE_ERROR)
}

impl Grant {
    /// Units that were taken at a time at which there had been nothing to repay for so long.
    pub(crate) fn new(units: u64, taken_at_us: u64, idle_us: u64, ends: Ends) -> Self {
        Self { parts: units << PARTS, taken_at_us, seen_us: idle_us, idle: Idle::default(), ends }
    }

    /// Whole units that are left, as of when it was last brought up to date.
    pub(crate) fn units(&self) -> u64 {
        self.parts >> PARTS
    }

    pub(crate) fn spend(&mut self, units: u64) {
        self.parts -= units << PARTS;
    }

    /// Takes off what has been repaid while there was nothing else to repay: as if that had been the case at last, when the debt was
    /// least.
    pub(crate) fn update(&mut self, now_us: u64, idle: Idle) {
        let idle_us = idle.at(now_us);
        let passed_us = idle_us.saturating_sub(std::mem::replace(&mut self.seen_us, idle_us));
        self.idle = idle;
        if passed_us == 0 || self.ends.repaid_us == u64::MAX {
            return;
        }
        let left_us = self.ends.repaid_us.saturating_sub(now_us);
        // Rounded down.
        let kept = u128::from(self.parts) * u128::from(left_us) / u128::from(left_us + passed_us);
        self.parts = u64::try_from(kept).unwrap_or(0);
    }

    /// The debt is found to be repaid then.
    pub(crate) fn is_repaid_at(&mut self, us: u64) {
        if self.ends.repaid_us != u64::MAX {
            self.ends.repaid_us = self.ends.repaid_us.max(us);
        }
    }

    /// How many units can be given back until then: these, and not others'. And only as many as would be left once every lease of
    /// another process has ended that knows of this one as a part of the debt.
    pub(crate) fn refundable(mut self, until_us: u64, max_age_us: u64) -> u64 {
        self.update(until_us.saturating_add(max_age_us), self.idle);
        if until_us < self.ends.at_us { self.units() } else { 0 }
    }

    /// Whether it is time to give them back, or too late to spend them.
    pub(crate) fn is_over(&self, now_us: u64, max_age_us: u64) -> bool {
        self.parts > 0 && (now_us >= self.ends.at_us || now_us.saturating_sub(self.taken_at_us) >= max_age_us)
    }
}
