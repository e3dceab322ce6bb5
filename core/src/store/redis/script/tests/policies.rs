//! Random policies, and random changes of them.

use std::time::Duration;

use crate::store::redis::script::tests::random::Random;
use crate::{Algorithm, Policy, Quota};

const PERIODS_US: [u64; 7] = [1_000, 1_001, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 7_000_010];
const LIMITS: [u64; 12] = [0, 1, 2, 3, 5, 7, 10, 97, 100, 1_000, 999_983, 10_000_000];

/// What is told apart: it stays when only numbers change.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    algorithm: Algorithm,
    period_us: u64,
    step: Option<u64>,
    buckets: u32,
}

impl Identity {
    fn of(quota: &Quota) -> Self {
        let (step, buckets) = (quota.step(), quota.buckets().unwrap_or(1));
        Self { algorithm: quota.algorithm(), period_us: quota.period_us(), step, buckets }
    }

    fn random(random: &mut Random) -> Self {
        let algorithm = if random.once_in(6) { Algorithm::TokenBucket } else { random.pick(&Algorithm::ALL) };
        let period_us = random.pick(&PERIODS_US);
        let stepped = algorithm == Algorithm::TokenBucket && random.below(5) < 2;
        let buckets = loop {
            let buckets = random.pick(&[1_u32, 2, 4, 5, 10, 20, 60]);
            if period_us.is_multiple_of(u64::from(buckets)) {
                break buckets;
            }
        };
        Self { algorithm, period_us, step: stepped.then(|| random.pick(&[1, 2, 5, 10])), buckets }
    }

    fn quota(self, random: &mut Random) -> Option<Quota> {
        let limit = random.pick(&LIMITS);
        let mut builder = Quota::builder(limit, Duration::from_micros(self.period_us))
            .algorithm(self.algorithm)
            .count_denied(random.once_in(4))
            .aligned(self.algorithm == Algorithm::FixedWindow && random.once_in(2));
        if self.algorithm == Algorithm::SlidingWindow {
            builder = builder.buckets(self.buckets);
        }
        if let Some(step) = self.step {
            builder = builder.step(step);
        }
        if self.algorithm.is_bucket() && random.once_in(2) {
            builder = builder.burst(random.pick(&[1, 2, 5, 30, (limit * 3).max(1)]));
        }
        builder.build().ok()
    }

    fn some_quota(self, random: &mut Random) -> Quota {
        loop {
            if let Some(quota) = self.quota(random) {
                return quota;
            }
        }
    }
}

fn policy(quotas: &[Quota]) -> Option<Policy> {
    Policy::new("p", quotas.iter().cloned()).ok()
}

pub(crate) fn random_policy(random: &mut Random) -> Policy {
    loop {
        let quotas = random.pick(&[1, 1, 1, 2, 3, 4]);
        let quotas: Vec<Quota> = (0..quotas).map(|_| Identity::random(random).some_quota(random)).collect();
        if let Some(policy) = policy(&quotas) {
            return policy;
        }
    }
}

/// Other numbers for most quotas; some are dropped, some are new, some change places. Quotas that were there before
/// come back now and then.
pub(crate) fn changed(before: &Policy, known: &mut Vec<Identity>, random: &mut Random) -> Policy {
    loop {
        let mut quotas = Vec::new();
        for quota in before.quotas() {
            known.push(Identity::of(quota));
            match random.below(8) {
                0 => {}
                1 => quotas.push(quota.clone()),
                _ => quotas.push(Identity::of(quota).some_quota(random)),
            }
        }
        if random.once_in(6) {
            quotas.push(Identity::random(random).some_quota(random));
        }
        if random.once_in(4) {
            quotas.push(random.pick(known).some_quota(random));
        }
        if random.once_in(4) {
            quotas.reverse();
        }
        if let Some(policy) = policy(&quotas) {
            return policy;
        }
    }
}
