//! A grant: units that were taken together, and until when they may be spent.
//!
//! A unit counts from the time when it was taken, but is spent later. So that no more is spent in any span than the
//! quota admits, it expires when the store no longer counts it as it did when it was taken:
//!
//! - In a window, with the sub-window in which it was counted. Until then the store would have counted it there anyway.
//! - In a bucket that is refilled in steps, with the next step.
//! - In any other bucket, not while the store still repays units that this process spent: until then the time at which
//!   the unit was counted makes no difference. This process knows what it has spent; while that is repaid, the grant
//!   stays as it is. From then on the grant shrinks in proportion to the remaining debt of all processes. So the grants
//!   of all processes together never exceed the debt, and the debt of spent units never exceeds the rest of it.
//!
//! A log counts each unit at the microsecond at which it was taken, so the unit could never be spent later: logs are
//! not leased.

use crate::script::reply::ScriptDecision;
use polylimit_rules::decision::Decision;
use polylimit_rules::quota::{Algorithm, Quota};

/// The bits for fractions of a unit, so that repayment is counted precisely.
const PARTS: u32 = 16;

/// The clocks of two hosts may run at different rates: spans of the store's time are shortened by a 1024th.
const RATE_ERROR: u32 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grant {
    /// In fractions of a unit.
    parts: u64,
    taken_at_us: u64,
    /// The idle time at the last update, and the data from which it is computed.
    seen_us: u64,
    idle: Idle,
    ends: Ends,
}

/// The idle time of a key: how long its bucket has had no spent unit of this process to repay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Idle {
    /// The idle time before units were last spent.
    before_us: u64,
    /// When those units are repaid, in nanoseconds.
    from_ns: u64,
}

impl Idle {
    /// Idle since that time.
    pub(crate) fn since(us: u64) -> Self {
        Self { before_us: 0, from_ns: us.saturating_mul(1_000) }
    }

    /// The idle time at a time, if nothing more is spent until then.
    pub(crate) fn at(&self, us: u64) -> u64 {
        self.before_us.saturating_add(us.saturating_sub(self.from_ns / 1_000))
    }

    /// Units were spent whose repayment takes this long.
    pub(crate) fn ends(&mut self, now_us: u64, repaid_ns: u64) {
        self.before_us = self.at(now_us);
        self.from_ns = self.from_ns.max(now_us.saturating_mul(1_000)).saturating_add(repaid_ns);
    }

    /// The spent units were refunded.
    pub(crate) fn begins(&mut self, now_us: u64) {
        *self = Self { before_us: self.at(now_us), from_ns: now_us.saturating_mul(1_000) };
    }
}

/// When the units of a grant expire, in microseconds of this process's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// All units expire then: nothing is spent or refunded afterwards.
    pub(crate) at_us: u64,
    /// The units expire gradually until then, when the bucket is full again.
    pub(crate) repaid_us: u64,
}

impl Default for Ends {
    fn default() -> Self {
        Self { at_us: u64::MAX, repaid_us: u64::MAX }
    }
}

impl Ends {
    /// The expiry of units that were requested at `asked_us`, which was before the store took them.
    pub(crate) fn of(quotas: &[Quota], replied: &ScriptDecision, asked_us: u64) -> Self {
        let views = quotas.iter().zip(replied.decision.quotas());
        let ends = views.filter_map(|(quota, view)| {
            let span_us = span_us(quota)?;
            Some(match quota.algorithm() {
                Algorithm::SlidingWindow => span_us - replied.now_us % span_us,
                // Steps and windows in progress end when the last of them ends, or whole spans before.
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

/// When the first of the buckets among the quotas will be full again, if nothing else is spent; `u64::MAX` without such
/// a bucket.
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

/// How long units of a quota may be spent at most if they are taken at the start of a step or a sub-window. `None`
/// where they expire gradually.
pub(crate) fn span_us(quota: &Quota) -> Option<u64> {
    let span_us = match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.step_interval_us(),
        Algorithm::FixedWindow => quota.period_us(),
        Algorithm::SlidingWindow => quota.period_us() / u64::from(quota.buckets().unwrap_or(1)),
        Algorithm::SlidingLog => 1,
        // Slots are no units: nothing of them is spent.
        _ => 0,
    };
    (span_us > 0).then_some(span_us)
}

/// The time in nanoseconds in which the fastest bucket repays a unit, rounded down.
pub(crate) fn repays_unit_ns(quotas: &[Quota]) -> u64 {
    let buckets = quotas.iter().filter(|quota| is_repaid(quota) && quota.limit() > 0);
    let least_ns =
        buckets.map(|quota| u128::from(quota.period_us()) * 1_000 / u128::from(quota.limit())).min();
    let ns = u64::try_from(least_ns.unwrap_or(0)).unwrap_or(u64::MAX);
    ns - (ns >> RATE_ERROR)
}

impl Grant {
    /// Units that were taken when the idle time was `idle_us`.
    pub(crate) fn new(units: u64, taken_at_us: u64, idle_us: u64, ends: Ends) -> Self {
        Self { parts: units << PARTS, taken_at_us, seen_us: idle_us, idle: Idle::default(), ends }
    }

    /// The whole units that were left at the last update.
    pub(crate) fn units(&self) -> u64 {
        self.parts >> PARTS
    }

    pub(crate) fn spend(&mut self, units: u64) {
        self.parts -= units << PARTS;
    }

    /// Subtracts the units that were repaid during idle time, as if all of it had been most recent, when the debt was
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

    /// The debt will be repaid then.
    pub(crate) fn is_repaid_at(&mut self, us: u64) {
        if self.ends.repaid_us != u64::MAX {
            self.ends.repaid_us = self.ends.repaid_us.max(us);
        }
    }

    /// The number of units that can be refunded by then without giving back units of other processes. It is limited to
    /// the units that would be left once every lease has expired whose process counts these units as part of the debt.
    pub(crate) fn refundable(mut self, until_us: u64, max_age_us: u64) -> u64 {
        self.update(until_us.saturating_add(max_age_us), self.idle);
        if until_us < self.ends.at_us { self.units() } else { 0 }
    }

    /// Whether the units have expired: they have to be refunded, or can no longer be spent.
    pub(crate) fn is_over(&self, now_us: u64, max_age_us: u64) -> bool {
        self.parts > 0 && (now_us >= self.ends.at_us || now_us.saturating_sub(self.taken_at_us) >= max_age_us)
    }
}

#[cfg(test)]
mod tests;
