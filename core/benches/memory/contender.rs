//! The contenders and their workload.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use polylimit::clock::Clock;
use polylimit::{Limiter, Policy, blocking};

/// The decisions of a round.
pub(crate) struct Workload<'a> {
    /// The requested keys, in random order. They are in memory in this order: a service has just built the key that it
    /// requests, and the benchmark measures the limiter, not cache misses on keys.
    pub(crate) asked: &'a [String],
    pub(crate) threads: usize,
    pub(crate) allowed: bool,
}

/// governor with the information that every decision of polylimit has: what remains, or how long to wait.
type Telling = RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock, StateInformationMiddleware>;

pub(crate) enum Contender {
    /// Returns only whether the request is allowed.
    Bare(DefaultKeyedRateLimiter<String>),
    /// Also returns what remains or how long to wait.
    Telling(Telling),
    Polylimit(blocking::Limiter),
}

/// A million per second with a burst that no run exhausts, within governor's 32 bits.
const RATE: u32 = 1_000_000;
const BURST: u32 = 4_000_000_000;

impl Contender {
    /// governor bare, governor with the same information, polylimit by the system clock, polylimit by the coarse clock.
    pub(crate) fn all(allowed: bool) -> [Self; 4] {
        [
            Self::bare(allowed),
            Self::Telling(Telling::new(
                governor_quota(allowed),
                DefaultKeyedStateStore::default(),
                DefaultClock::default(),
            )),
            Self::polylimit(allowed, Clock::system()),
            Self::polylimit(allowed, Clock::coarse()),
        ]
    }

    pub(crate) fn bare(allowed: bool) -> Self {
        Self::Bare(DefaultKeyedRateLimiter::keyed(governor_quota(allowed)))
    }

    pub(crate) fn polylimit(allowed: bool, clock: Clock) -> Self {
        let quota = if allowed {
            format!("{RATE}/s token_bucket burst={BURST}")
        } else {
            "1/day token_bucket".to_owned()
        };
        let policy = Policy::parse("bench", &quota).expect("a quota");
        let limiter = Limiter::builder().policy(policy).clock(clock).max_keys(2_000_000).build();
        Self::Polylimit(limiter.expect("a limiter").blocking())
    }

    /// Decides once for every key, so that each has a state. Keys of the denied workload are denied afterwards.
    pub(crate) fn warm_up(&self, keys: &[String]) {
        for key in keys {
            self.decide(key);
        }
    }

    pub(crate) fn decide(&self, key: &String) -> bool {
        match self {
            Self::Bare(limiter) => limiter.check_key(key).is_ok(),
            Self::Telling(limiter) => telling(limiter, key),
            Self::Polylimit(limiter) => polylimit(limiter, key),
        }
    }

    /// Makes `decisions` decisions on the requested keys from `start` on, and returns how many were allowed.
    pub(crate) fn run(&self, workload: &Workload<'_>, decisions: usize, start: usize) -> usize {
        // Each contender has its own loop, so that the measurement contains no dispatch.
        match self {
            Self::Bare(limiter) => count(workload, decisions, start, |key| limiter.check_key(key).is_ok()),
            Self::Telling(limiter) => count(workload, decisions, start, |key| telling(limiter, key)),
            Self::Polylimit(limiter) => count(workload, decisions, start, |key| polylimit(limiter, key)),
        }
    }
}

#[inline]
fn telling(limiter: &Telling, key: &String) -> bool {
    match limiter.check_key(key) {
        Ok(snapshot) => {
            black_box(snapshot.remaining_burst_capacity());
            true
        }
        Err(until) => {
            black_box(until.wait_time_from(limiter.clock().now()));
            false
        }
    }
}

#[inline]
fn polylimit(limiter: &blocking::Limiter, key: &String) -> bool {
    limiter.check(key).is_ok_and(|decision| {
        if decision.allowed() {
            black_box(decision.remaining());
        } else {
            black_box(decision.retry_after_us());
        }
        decision.allowed()
    })
}

fn governor_quota(allowed: bool) -> governor::Quota {
    let nonzero = |number| NonZeroU32::new(number).expect("not zero");
    if allowed {
        governor::Quota::per_second(nonzero(RATE)).allow_burst(nonzero(BURST))
    } else {
        governor::Quota::with_period(Duration::from_secs(86_400)).expect("not zero")
    }
}

#[inline(never)]
fn count(workload: &Workload<'_>, decisions: usize, start: usize, decide: impl Fn(&String) -> bool) -> usize {
    let (mut allowed, mut left) = (0, decisions);
    let mut start = start % workload.asked.len();
    while left > 0 {
        let end = workload.asked.len().min(start + left);
        for key in &workload.asked[start..end] {
            allowed += usize::from(decide(black_box(key)));
        }
        left -= end - start;
        start = 0;
    }
    allowed
}
