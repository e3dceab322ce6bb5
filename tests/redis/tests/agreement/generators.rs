//! Seeded random numbers, policies, and changes of policies.

use std::time::Duration;

use fastrand::Rng;
use polylimit::quota::Algorithm;
use polylimit::testing::limiter::with_penalty;
use polylimit::{Policy, Quota};

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

/// Periods by the calendar, in canonical form.
const CALENDARS: [&str; 7] = [
    "month",
    "month from=31 zone=Europe/Berlin",
    "day zone=America/New_York",
    "day zone=+05:30",
    "week from=sunday zone=Australia/Lord_Howe",
    "3months zone=Africa/Cairo",
    "year from=02-29",
];

/// The properties that identify a quota within its policy. A quota keeps its state when only its other numbers change.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    algorithm: Algorithm,
    period: Duration,
    /// In place of the period.
    calendar: Option<&'static str>,
    step: Option<u64>,
    buckets: u32,
}

impl Identity {
    fn of(quota: &Quota) -> Self {
        let (step, buckets) = (quota.step(), quota.buckets().unwrap_or(1));
        // The text of a quota by the calendar ends with the settings that do not belong to its identity.
        let text = quota.to_string();
        let period = text.split_once('/').map_or("", |(_, period)| period);
        let period = period.split(" count_denied").next().unwrap().split(" excess=").next().unwrap();
        let calendar = CALENDARS.into_iter().find(|calendar| *calendar == period);
        Self { algorithm: quota.algorithm(), period: quota.period(), calendar, step, buckets }
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
        let by_calendar = algorithm == Algorithm::FixedWindow && random.once_in(2);
        let calendar = by_calendar.then(|| random.pick(&CALENDARS));
        Self { algorithm, period: Duration::from_micros(period_us), calendar, step, buckets }
    }

    /// A quota of this identity with random numbers.
    fn quota(self, random: &mut Random) -> Quota {
        if self.algorithm == Algorithm::Concurrency {
            return random_slots(random);
        }
        loop {
            let limit = random.pick(&LIMITS);
            // Not an amount after which more remains than a request may cost.
            let is_soft = limit <= Quota::MAX_UNITS / 2 && random.once_in(4);
            let excess = if is_soft { random.pick(&[10, 50, 100]) } else { 0 };
            if let Some(calendar) = self.calendar {
                let denied = if random.once_in(4) { " count_denied" } else { "" };
                return format!("{limit}/{calendar}{denied} excess={excess}%").parse().unwrap();
            }
            let mut builder = Quota::builder(limit, self.period)
                .algorithm(self.algorithm)
                .count_denied(random.once_in(4))
                .excess_percent(excess)
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
            // The builder refuses numbers that cannot be counted exactly.
            if let Ok(quota) = builder.build() {
                return quota;
            }
        }
    }
}

/// A quota of concurrent reservations.
fn random_slots(random: &mut Random) -> Quota {
    Quota::concurrent(random.pick(&[0, 1, 2, 3, 10, 5_000])).unwrap()
}

/// A policy that is only ever reserved: the same quotas, or none of them, and concurrent reservations.
pub(crate) fn with_slots(policy: Policy, random: &mut Random) -> Policy {
    let quotas = if random.once_in(4) { &[] } else { policy.quotas() };
    let all = quotas.iter().cloned().chain([random_slots(random)]);
    // A leaky bucket cannot be combined with them.
    Policy::new(policy.name(), all).unwrap_or(policy)
}

/// The same policy, mostly with a penalty.
pub(crate) fn with_random_penalty(policy: Policy, random: &mut Random) -> Policy {
    if random.once_in(4) {
        return policy;
    }
    let within = Duration::from_millis(random.pick(&[1, 1_000, 60_000, 86_400_000]));
    let block = Duration::from_millis(random.pick(&[1, 500, 60_000, 3_600_000]));
    let max = block * random.pick(&[1, 3, 64]);
    let forget = Duration::from_millis(random.pick(&[1, 5_000, 3_600_000]));
    with_penalty(policy, random.pick(&[1, 1, 2, 3]), [within, block, max, forget])
}

/// A headroom in percent; mostly none.
pub(crate) fn random_headroom(random: &mut Random) -> u8 {
    random.pick(&[0, 0, 0, 0, 0, 1, 20, 50, 99])
}

/// A quota of any kind that counts units.
pub(crate) fn random_quota(random: &mut Random) -> Quota {
    Identity::random(random).quota(random)
}

/// A policy of this number of quotas.
pub(crate) fn random_policy_of(name: &str, count: u64, random: &mut Random) -> Policy {
    loop {
        // Two quotas of one identity are refused.
        if let Ok(policy) = Policy::new(name, (0..count).map(|_| random_quota(random))) {
            return policy;
        }
    }
}

pub(crate) fn random_policy(name: &str, random: &mut Random) -> Policy {
    let count = random.pick(&[1, 1, 1, 2, 3, 4]);
    random_policy_of(name, count, random)
}

/// The same policy with other numbers for most quotas. Some quotas are dropped, added or reordered, and some that an
/// earlier change dropped are added again.
pub(crate) fn change_policy(before: &Policy, known: &mut Vec<Identity>, random: &mut Random) -> Policy {
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

pub(crate) struct Random(Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound.max(1))
    }

    /// A place in a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.0.usize(..length.max(1))
    }

    /// True once in this number of times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())].clone()
    }
}
