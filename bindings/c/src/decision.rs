//! The answer to a check, a peek or an acquire, as plain numbers.

use polylimit::{Decision, DecisionParts, Policy, QuotaUsage};

use crate::failure::Failure;
use crate::names::{degradation, degradation_number, source, source_number};
use crate::pointer::Sized32;

/// The most quotas of one policy.
pub const POLYLIMIT_MAX_QUOTAS: usize = 16;
/// Stands for a wait that never ends: the cost exceeds what a quota can ever admit.
pub const POLYLIMIT_NEVER: u64 = u64::MAX;

const _: () = assert!(POLYLIMIT_MAX_QUOTAS == Policy::MAX_QUOTAS);

/// One quota's own view of a key, after the operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct polylimit_quota_usage {
    /// The quota's limit, in units per period.
    pub limit: u64,
    /// Whole units that this quota would still admit right now.
    pub remaining: u64,
    /// How long until nothing counts as used under this quota if nothing else arrives, in microseconds.
    pub reset_after_us: u64,
}

/// The answer to a check, a peek or an acquire. A request that is not allowed must not proceed.
#[repr(C)]
pub struct polylimit_decision {
    /// sizeof(polylimit_decision), set by the caller.
    pub size: u32,
    /// 1 when every quota admits the request, otherwise 0.
    pub allowed: u32,
    /// Where the answer came from: 0 is the store; see polylimit_source_name.
    pub source: u32,
    /// Why this is not what a healthy store would have answered for this key alone: 0 when it is; see
    /// polylimit_degradation_name.
    pub degraded: u32,
    /// Whole units that can still be spent right now, after this decision: the least over the quotas.
    pub remaining: u64,
    /// How long until the same request, alone, would be admitted, in microseconds: exactly then. 0 when allowed,
    /// POLYLIMIT_NEVER when never; every other wait is below 2^63.
    pub retry_after_us: u64,
    /// How long until nothing counts as used any more if nothing else arrives, in microseconds: the longest over the
    /// quotas.
    pub reset_after_us: u64,
    /// How long this admitted request has to wait for its turn, in microseconds: leaky bucket only, otherwise 0.
    pub delay_us: u64,
    /// How many of `quotas` there are: as many as the policy has.
    pub quota_count: u32,
    /// 0.
    pub reserved: u32,
    /// Each quota's own view, in the policy's order; only the first `quota_count` are written.
    pub quotas: [polylimit_quota_usage; POLYLIMIT_MAX_QUOTAS],
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_decision {
    const NAME: &'static str = "decision";
    const FIRST: u32 = 440;
}

impl polylimit_decision {
    /// Writes every field but `size`, which is the caller's.
    #[inline]
    pub(crate) fn set(&mut self, decision: &Decision) {
        self.allowed = u32::from(decision.allowed());
        self.source = source_number(decision.source());
        self.degraded = degradation_number(decision.degraded());
        self.remaining = decision.remaining();
        self.retry_after_us = decision.retry_after_us().unwrap_or(POLYLIMIT_NEVER);
        self.reset_after_us = decision.reset_after_us();
        self.delay_us = decision.delay_us();
        self.reserved = 0;
        self.quota_count = set_quotas(&mut self.quotas, decision.quotas());
    }

    /// The core's decision that these numbers came from.
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
        let quotas: Vec<_> = quotas
            .iter()
            .map(|&polylimit_quota_usage { limit, remaining, reset_after_us }| QuotaUsage {
                limit,
                remaining,
                reset_after_us,
            })
            .collect();
        let allowed = self.allowed != 0;
        let retry_after_us = (self.retry_after_us != POLYLIMIT_NEVER).then_some(self.retry_after_us);
        Ok(Decision::from_parts(DecisionParts {
            allowed,
            wait_us: if allowed { Some(self.delay_us) } else { retry_after_us },
            source: source(self.source).ok_or_else(|| unknown("source", self.source))?,
            degraded,
            quotas: &quotas,
        })?)
    }
}

/// Writes each quota's view and says how many there are.
#[inline]
pub(crate) fn set_quotas(
    places: &mut [polylimit_quota_usage; POLYLIMIT_MAX_QUOTAS],
    quotas: &[QuotaUsage],
) -> u32 {
    let mut count = 0;
    for (place, &QuotaUsage { limit, remaining, reset_after_us }) in places.iter_mut().zip(quotas) {
        *place = polylimit_quota_usage { limit, remaining, reset_after_us };
        count += 1;
    }
    count
}

fn unknown(what: &str, number: u32) -> Failure {
    Failure::invalid(format!("{what} {number} is not known: pass a decision as it was given"))
}
