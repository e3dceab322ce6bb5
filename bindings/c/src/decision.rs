//! The answers of operations as structs of plain numbers: decisions and usages.

use polylimit::decision::{QuotaUsage, QuotaVerdict, Usage};
use polylimit::raw::DecisionParts;
use polylimit::{Decision, Policy};

use crate::arguments::Sized32;
use crate::error::Failure;
use crate::names::{cause, cause_number, degradation, degradation_number, source, source_number};

/// The maximum number of quotas of one policy.
pub const POLYLIMIT_MAX_QUOTAS: usize = 16;
/// Stands for a wait that never ends: the cost exceeds what a quota can ever admit.
pub const POLYLIMIT_NEVER: u64 = u64::MAX;

const _: () = assert!(POLYLIMIT_MAX_QUOTAS == Policy::MAX_QUOTAS);

/// One quota's own view of a key, after the operation, and in a decision its own verdict on the request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct polylimit_quota_usage {
    /// The quota's limit, in units per period.
    pub limit: u64,
    /// Whole units that this quota would admit right now.
    pub remaining: u64,
    /// Microseconds until nothing counts as used under this quota if nothing else arrives.
    pub reset_after_us: u64,
    /// Units of the quota's excess that are in use: above 0 once use is beyond the limit.
    pub over: u64,
    /// Microseconds until this quota would admit the same request if no other arrives, exact to the microsecond. 0 when it
    /// admits it; POLYLIMIT_NEVER when never; every other value is below 2^63.
    pub retry_after_us: u64,
    /// 1 when this quota admits the request, 0 when it has denied it. 1 where no quota was asked, and in a usage.
    pub allowed: u32,
    /// Always 0.
    pub reserved: u32,
}

/// The answer to a check, a peek, an acquire or a reserve. A request that is not allowed must not proceed.
#[repr(C)]
pub struct polylimit_decision {
    /// sizeof(polylimit_decision), set by the caller.
    pub size: u32,
    /// 1 when every quota admits the request, otherwise 0.
    pub allowed: u32,
    /// Where the answer came from: 0 is the store; for the others see polylimit_source_name.
    pub source: u32,
    /// Why a healthy store might have answered otherwise: 0 when the answer is exact; see polylimit_degradation_name.
    pub degraded: u32,
    /// Whole units that can be spent right now, after this decision: the least over the quotas.
    pub remaining: u64,
    /// Microseconds until the same request would be admitted if no other arrives, exact to the microsecond. 0 when allowed;
    /// POLYLIMIT_NEVER when never; every other value is below 2^63.
    pub retry_after_us: u64,
    /// Microseconds until nothing counts as used if nothing else arrives: the longest over the quotas.
    pub reset_after_us: u64,
    /// Microseconds that this admitted request must wait before it proceeds: leaky bucket only, otherwise 0.
    pub delay_us: u64,
    /// Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit.
    pub over: u64,
    /// Why the request was denied, would have been without the shadow, or was admitted without the store: 0 is none; see
    /// polylimit_cause_name.
    pub cause: u32,
    /// 1 when this request's units were the first beyond a quota's limit: some quota's `over` is above 0 and at most what the
    /// request has spent or set aside.
    pub crossed: u32,
    /// 1 when the pool of an elastic policy admitted the request; then nothing was spent in the policy itself.
    pub elastic: u32,
    /// 1 when the request would have been denied if its policy were not in shadow: it is allowed, and `retry_after_us` is that
    /// of the denial.
    pub shadowed: u32,
    /// The number of elements of `quotas`: one for each quota of the policy.
    pub quota_count: u32,
    /// Always 0.
    pub reserved: u32,
    /// Each quota's own view, in the policy's order; only the first `quota_count` are written.
    pub quotas: [polylimit_quota_usage; POLYLIMIT_MAX_QUOTAS],
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_decision {
    const NAME: &'static str = "decision";
    const MIN_SIZE: u32 = 848;
}

impl polylimit_decision {
    /// Writes every field except `size`, which the caller sets.
    #[expect(
        clippy::inline_always,
        reason = "a decision of the memory store then stays in registers: a third less time"
    )]
    #[inline(always)]
    pub(crate) fn set(&mut self, decision: &Decision) {
        self.allowed = u32::from(decision.allowed());
        self.source = source_number(decision.source());
        self.degraded = degradation_number(decision.degraded());
        self.remaining = decision.remaining();
        self.retry_after_us = decision.retry_after_us().unwrap_or(POLYLIMIT_NEVER);
        self.reset_after_us = decision.reset_after_us();
        self.delay_us = decision.delay_us();
        self.over = decision.over();
        self.cause = cause_number(decision.cause());
        self.crossed = u32::from(decision.crossed());
        self.elastic = u32::from(decision.elastic());
        self.shadowed = u32::from(decision.shadowed());
        self.reserved = 0;
        self.quota_count = match decision.only_quota() {
            Some((usage, verdict)) => {
                self.quotas[0] = quota(usage, verdict);
                1
            }
            None => set_quotas(&mut self.quotas, decision.quotas(), decision.verdicts()),
        };
    }

    /// Converts back to the core's decision, and checks all numbers.
    pub(crate) fn get(&self) -> Result<Decision, Failure> {
        let quotas = self.quotas.get(..self.quota_count as usize).unwrap_or_default();
        if quotas.is_empty() {
            return Err(Failure::invalid(format!(
                "a decision has {} quotas: allowed are 1 to {POLYLIMIT_MAX_QUOTAS}",
                self.quota_count
            )));
        }
        let degraded = match self.degraded {
            0 => None,
            number => Some(degradation(number).ok_or_else(|| unknown("degradation", number))?),
        };
        let cause = match self.cause {
            0 => None,
            number => Some(cause(number).ok_or_else(|| unknown("cause", number))?),
        };
        let usages: Vec<_> = quotas
            .iter()
            .map(|&polylimit_quota_usage { limit, remaining, reset_after_us, over, .. }| QuotaUsage {
                limit,
                remaining,
                reset_after_us,
                over,
            })
            .collect();
        // Whether a quota admits the request follows from its wait.
        let quota_waits_us: Vec<_> = quotas.iter().map(|quota| finite_wait(quota.retry_after_us)).collect();
        let allowed = self.allowed != 0;
        Ok(Decision::from_parts(DecisionParts {
            allowed,
            wait_us: if allowed && self.shadowed == 0 {
                Some(self.delay_us)
            } else {
                finite_wait(self.retry_after_us)
            },
            source: source(self.source).ok_or_else(|| unknown("source", self.source))?,
            degraded,
            cause,
            crossed: self.crossed != 0,
            elastic: self.elastic != 0,
            shadowed: self.shadowed != 0,
            remaining: self.remaining,
            quotas: &usages,
            quota_waits_us: &quota_waits_us,
        })?)
    }
}

/// A wait that may be never.
fn finite_wait(wait_us: u64) -> Option<u64> {
    (wait_us != POLYLIMIT_NEVER).then_some(wait_us)
}

/// Writes the usage and the verdict of each quota, and returns their number.
#[inline(never)]
pub(crate) fn set_quotas(
    places: &mut [polylimit_quota_usage; POLYLIMIT_MAX_QUOTAS],
    quotas: &[QuotaUsage],
    verdicts: impl Iterator<Item = QuotaVerdict>,
) -> u32 {
    let mut count = 0;
    for (place, (usage, verdict)) in places.iter_mut().zip(quotas.iter().zip(verdicts)) {
        *place = quota(*usage, verdict);
        count += 1;
    }
    count
}

#[inline]
fn quota(usage: QuotaUsage, verdict: QuotaVerdict) -> polylimit_quota_usage {
    let QuotaUsage { limit, remaining, reset_after_us, over } = usage;
    let retry_after_us = verdict.retry_after_us.unwrap_or(POLYLIMIT_NEVER);
    let allowed = u32::from(verdict.allowed);
    polylimit_quota_usage { limit, remaining, reset_after_us, over, retry_after_us, allowed, reserved: 0 }
}

fn unknown(what: &str, number: u32) -> Failure {
    Failure::invalid(format!("{what} {number} is not known: pass a decision unchanged"))
}

/// The answer to a take, a charge, a refund, a reset, a commit, a cancel, a renew or a block: the state after it.
#[repr(C)]
pub struct polylimit_usage {
    /// sizeof(polylimit_usage), set by the caller.
    pub size: u32,
    /// Where the answer came from: 0 is the store; for the others see polylimit_source_name.
    pub source: u32,
    /// Why a healthy store might have answered otherwise: 0 when the answer is exact; see polylimit_degradation_name.
    pub degraded: u32,
    /// The number of elements of `quotas`: one for each quota of the policy.
    pub quota_count: u32,
    /// Whole units that can be spent right now: the least over the quotas.
    pub remaining: u64,
    /// Microseconds until nothing counts as used if nothing else arrives: the longest over the quotas.
    pub reset_after_us: u64,
    /// The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
    pub taken: u64,
    /// Units of an excess that are in use, the most over the quotas.
    pub over: u64,
    /// 1 when a commit, a cancel or a renew has found the reservation, otherwise 0; 1 for every other operation.
    pub found: u32,
    /// 1 when this was a commit of an id that was committed before and is remembered: nothing was charged; otherwise 0.
    pub repeated: u32,
    /// Each quota's own view, in the policy's order; only the first `quota_count` are written.
    pub quotas: [polylimit_quota_usage; POLYLIMIT_MAX_QUOTAS],
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_usage {
    const NAME: &'static str = "usage";
    const MIN_SIZE: u32 = 824;
}

impl polylimit_usage {
    /// Writes every field except `size`, which the caller sets.
    pub(crate) fn set(&mut self, usage: &Usage) {
        self.source = source_number(usage.source());
        self.degraded = degradation_number(usage.degraded());
        self.remaining = usage.remaining();
        self.reset_after_us = usage.reset_after_us();
        self.taken = usage.taken();
        self.over = usage.over();
        self.found = u32::from(usage.found());
        self.repeated = u32::from(usage.repeated());
        let admits = QuotaVerdict { allowed: true, retry_after_us: Some(0) };
        self.quota_count = set_quotas(&mut self.quotas, usage.quotas(), std::iter::repeat(admits));
    }
}
