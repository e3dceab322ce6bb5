//! Random policies, and random changes of them.

use std::time::Duration;

use polylimit::{Algorithm, Policy, Quota};

use super::random::Random;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
];
const PERIODS_US: [u64; 8] =
    [1_000, 1_001, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 7_000_010, 31_622_400_000_000];
const LIMITS: [u64; 14] =
    [0, 1, 2, 3, 5, 7, 10, 97, 100, 1_000, 999_983, 10_000_000, 999_999_999_989, 1_000_000_000_000];

/// What a quota is told apart by: it stays when only numbers change.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    algorithm: Algorithm,
    period: Duration,
    step: Option<u64>,
    buckets: u32,
}

impl Identity {
    fn of(quota: &Quota) -> Self {
        let (step, buckets) = (quota.step(), quota.buckets().unwrap_or(1));
        Self { algorithm: quota.algorithm(), period: quota.period(), step, buckets }
    }

    fn random(random: &mut Random) -> Self {
        let algorithm = random.pick(&ALGORITHMS);
        let period_us = random.pick(&PERIODS_US);
        let stepped = algorithm == Algorithm::TokenBucket && random.once_in(2);
        let step = stepped.then(|| random.pick(&[1, 2, 5, 10]));
        let buckets = loop {
            let buckets = random.pick(&[1_u32, 2, 4, 5, 10, 20, 60]);
            if period_us.is_multiple_of(u64::from(buckets)) {
                break buckets;
            }
        };
        Self { algorithm, period: Duration::from_micros(period_us), step, buckets }
    }

    /// Such a quota, with random numbers.
    fn quota(self, random: &mut Random) -> Quota {
        loop {
            let limit = random.pick(&LIMITS);
            let mut builder = Quota::builder(limit, self.period)
                .algorithm(self.algorithm)
                .count_denied(random.once_in(4))
                .aligned(self.algorithm == Algorithm::FixedWindow && random.once_in(2));
            if self.algorithm == Algorithm::SlidingWindow {
                builder = builder.buckets(self.buckets);
            }
            if let Some(step) = self.step {
                builder = builder.step(step);
            }
            if matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) && random.once_in(2)
            {
                builder = builder.burst(random.pick(&[
                    1,
                    2,
                    5,
                    30,
                    (limit.saturating_mul(3)).clamp(1, Quota::MAX_UNITS),
                ]));
            }
            // Some cannot be counted exactly.
            if let Ok(quota) = builder.build() {
                return quota;
            }
        }
    }
}

/// A quota of any kind.
pub(crate) fn random_quota(random: &mut Random) -> Quota {
    Identity::random(random).quota(random)
}

/// A policy of so many quotas.
pub(crate) fn random_policy_of(name: &str, count: u64, random: &mut Random) -> Policy {
    loop {
        // Some cannot be told apart.
        if let Ok(policy) = Policy::new(name, (0..count).map(|_| random_quota(random))) {
            return policy;
        }
    }
}

pub(crate) fn random_policy(name: &str, random: &mut Random) -> Policy {
    let count = random.pick(&[1, 1, 1, 2, 3, 4]);
    random_policy_of(name, count, random)
}

/// Other numbers for most quotas; some are dropped, some are new, some change places, and some that were there before
/// come back.
pub(crate) fn changed(before: &Policy, known: &mut Vec<Identity>, random: &mut Random) -> Policy {
    known.extend(before.quotas().iter().map(Identity::of));
    loop {
        let mut quotas = Vec::new();
        for quota in before.quotas() {
            match random.below(8) {
                0 => {}
                1 => quotas.push(quota.clone()),
                _ => quotas.push(Identity::of(quota).quota(random)),
            }
        }
        if random.once_in(6) {
            quotas.push(random_quota(random));
        }
        if random.once_in(4) {
            quotas.push(random.pick(known).quota(random));
        }
        if random.once_in(4) {
            quotas.reverse();
        }
        if let Ok(policy) = Policy::new(before.name(), quotas) {
            return policy;
        }
    }
}
