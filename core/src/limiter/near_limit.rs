//! Detects admissions that leave little of a quota: less than a fifth of its capacity.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limiter::tally::counts::{FIRST, MAX_COUNTED};
use polylimit_rules::decision::QuotaUsage;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Quota;
use polylimit_store::charge::PolicyId;

/// The bounds of all policies, where checks read them without a lock.
#[derive(Debug, Default)]
pub(crate) struct NearLimits {
    first: [NearLimit; FIRST],
    /// Allocated for the first policy beyond those.
    more: OnceLock<Box<[NearLimit]>>,
}

/// The bounds of a policy's quotas; 0, which nothing is below, for quotas that it does not have.
#[derive(Debug, Default)]
struct NearLimit {
    /// The bound of the only quota; 0 if there are several.
    only: AtomicU64,
    /// The bounds of the first quotas.
    each: [AtomicU64; IN_LINE],
    /// The bounds of the other quotas of a policy that has, or had, more.
    others: OnceLock<Box<[AtomicU64; Policy::MAX_QUOTAS - IN_LINE]>>,
}

/// As many as the usages that a decision keeps without a second allocation.
const IN_LINE: usize = 4;

/// Less than this is little: a fifth of the capacity, rounded up.
fn bound(quota: &Quota) -> u64 {
    quota.capacity().div_ceil(5)
}

/// Whether one of the quotas has little left.
pub(crate) fn is_near(policy: &Policy, usages: &[QuotaUsage]) -> bool {
    policy.quotas().iter().zip(usages).any(|(quota, usage)| usage.remaining < bound(quota))
}

impl NearLimits {
    /// Sets the bounds of a policy's quotas. Called by one thread at a time.
    pub(crate) fn set(&self, id: PolicyId, policy: &Policy) {
        let at = id.index();
        let limit = self.first.get(at).or_else(|| {
            let more = self.more.get_or_init(|| (FIRST..MAX_COUNTED).map(|_| NearLimit::default()).collect());
            more.get(at.checked_sub(FIRST)?)
        });
        let (Some(limit), quotas) = (limit, policy.quotas()) else { return };
        let only = if let [only] = quotas { bound(only) } else { 0 };
        limit.only.store(only, Ordering::Relaxed);
        let mut bounds = quotas.iter().map(bound).chain(std::iter::repeat(0));
        let mut store = |known: &AtomicU64| known.store(bounds.next().unwrap_or(0), Ordering::Relaxed);
        limit.each.iter().for_each(&mut store);
        if quotas.len() > IN_LINE || limit.others.get().is_some() {
            limit.others.get_or_init(Box::default).iter().for_each(store);
        }
    }

    /// The bound of the only quota of one of the first policies.
    #[expect(clippy::inline_always, reason = "it is part of `check_known`")]
    #[inline(always)]
    pub(crate) fn of_first(&self, id: PolicyId) -> u64 {
        self.first.get(id.index()).map_or(0, |limit| limit.only.load(Ordering::Relaxed))
    }

    /// Whether one of a policy's quotas has little left; `None` for a policy whose bounds are not kept.
    #[inline]
    pub(crate) fn is_near(&self, id: PolicyId, usages: &[QuotaUsage]) -> Option<bool> {
        let at = id.index();
        let limit = self.first.get(at).or_else(|| self.more.get()?.get(at.checked_sub(FIRST)?))?;
        if let [usage] = usages {
            return Some(usage.remaining < limit.only.load(Ordering::Relaxed));
        }
        let is_below =
            |(bound, usage): (&AtomicU64, &QuotaUsage)| usage.remaining < bound.load(Ordering::Relaxed);
        // Without a branch for each quota.
        let is_near = limit.each.iter().zip(usages).fold(false, |is_near, pair| is_near | is_below(pair));
        let others = usages.get(IN_LINE..).unwrap_or_default();
        Some(is_near || !others.is_empty() && limit.others.get()?.iter().zip(others).any(is_below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usages(remaining: &[u64]) -> Vec<QuotaUsage> {
        let usage = |&remaining| QuotaUsage { limit: 1, remaining, reset_after_us: 0, over: 0 };
        remaining.iter().map(usage).collect()
    }

    #[test]
    fn less_than_a_fifth_of_the_capacity_is_little() {
        let limits = NearLimits::default();
        for id in [0, 3, 4, 1023].map(PolicyId) {
            for (quotas, remaining, is_little) in [
                ("100/minute", vec![19], true),
                ("100/minute", vec![20], false),
                ("1/minute", vec![0], true),
                ("1/minute", vec![1], false),
                ("10/s token_bucket burst=100", vec![19], true),
                ("10/s token_bucket burst=100", vec![20], false),
                ("100/minute; 1000/hour", vec![20, 200], false),
                ("100/minute; 1000/hour", vec![20, 199], true),
                ("100/minute; 1000/hour", vec![19, 200], true),
                ("100/minute", vec![20], false),
                ("4 concurrent", vec![0], true),
                ("5/s; 6/2s; 7/3s; 8/4s; 100/5s", vec![1, 2, 2, 2, 20], false),
                ("5/s; 6/2s; 7/3s; 8/4s; 100/5s", vec![1, 2, 2, 2, 19], true),
                ("5/s; 6/2s; 7/3s; 8/4s; 100/5s", vec![1, 2, 2, 1, 20], true),
                ("5/s; 6/2s", vec![1, 2], false),
                ("5/s; 6/2s", vec![1, 1], true),
            ] {
                let policy = Policy::parse("p", quotas).unwrap();
                limits.set(id, &policy);
                let usages = usages(&remaining);
                assert_eq!(limits.is_near(id, &usages), Some(is_little), "{quotas}: {remaining:?}");
                assert_eq!(is_near(&policy, &usages), is_little, "{quotas}: {remaining:?}");
            }
        }
        limits.set(PolicyId(1024), &Policy::parse("p", "1/s").unwrap());
        assert_eq!(limits.is_near(PolicyId(1024), &usages(&[0])), None);
    }
}
