//! A share of a policy: the same quotas with smaller limits.

use crate::rules::policy::Policy;
use crate::rules::quota::{Algorithm, Quota};

const WHOLE_PPM: u64 = 1_000_000;

/// The policy with each limit and burst reduced to a share, in parts per million; values above 0 stay above 0.
pub(crate) fn of(policy: &Policy, share_ppm: u32) -> Policy {
    if u64::from(share_ppm) >= WHOLE_PPM {
        return policy.clone();
    }
    let quotas = policy.quotas().iter().map(|quota| quota_of(quota, u64::from(share_ppm)));
    // Quotas with different numbers keep different numbers, except where a step is dropped. If quotas become equal, the
    // policy stays as it is: admitting too much is better than having no fallback.
    Policy::new(policy.name(), quotas).unwrap_or_else(|_| policy.clone())
}

fn quota_of(quota: &Quota, share_ppm: u64) -> Quota {
    // At most 10^12 * 10^6, which fits.
    let cut = |units: u64| (units * share_ppm / WHOLE_PPM).max(u64::from(units > 0));
    let limit = cut(quota.limit());
    let mut builder = Quota::builder(limit, quota.period())
        .algorithm(quota.algorithm())
        .aligned(quota.aligned())
        .count_denied(quota.count_denied());
    if let Algorithm::TokenBucket | Algorithm::LeakyBucket = quota.algorithm() {
        builder = builder.burst(cut(quota.capacity()).max(1));
    }
    if let Some(buckets) = quota.buckets() {
        builder = builder.buckets(buckets);
    }
    // A smaller number may need finer ticks than the algorithm has; a fixed window does without.
    let window = || {
        Quota::builder(limit, quota.period())
            .algorithm(Algorithm::FixedWindow)
            .count_denied(quota.count_denied())
            .build()
    };
    builder.build().or_else(|_| window()).unwrap_or_else(|_| quota.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_bursts_are_cut() {
        let policy =
            Policy::parse("a", "10/s token_bucket burst=20 step=5; 1/m; 0/h; 7/h fixed_window").unwrap();
        let quarter = of(&policy, 250_000);
        assert_eq!(
            quarter.to_string(),
            "a: 2/second token_bucket burst=5; 1/minute; 0/hour; 1/hour fixed_window"
        );
        assert_eq!(of(&policy, 1_000_000), policy);
    }
}
