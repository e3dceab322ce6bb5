//! The contenders, and their requests.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use polylimit::{Clock, Limiter, Policy, blocking};

/// What is decided in a round.
pub(crate) struct Workload<'a> {
    /// The keys that are asked for, at random. They lie in memory in this order: a service has just made the key that it
    /// asks for, and what is measured is the limiter, not how long it takes to fetch a key from somewhere.
    pub(crate) asked: &'a [String],
    pub(crate) threads: usize,
    pub(crate) allowed: bool,
}

/// governor, asked for what a decision of polylimit says anyway: what remains, or how long to wait.
type Telling = RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock, StateInformationMiddleware>;

pub(crate) enum Contender {
    /// Says yes or no.
    Bare(DefaultKeyedRateLimiter<String>),
    /// Says what remains or how long to wait as well.
    Telling(Telling),
    Polylimit(blocking::Limiter),
}

/// A million a second with a burst that no run exhausts, in governor's 32 bits.
const RATE: u32 = 1_000_000;
const BURST: u32 = 4_000_000_000;

impl Contender {
    /// governor bare, governor doing the same work, polylimit by the system clock, polylimit by the coarse clock.
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

    /// Decides once for every key, so that each has a state. Keys of the denied workload are denied from then on.
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

    /// Decides so many times, for the keys that are asked for from `start` on, and says how many were allowed.
    pub(crate) fn run(&self, workload: &Workload<'_>, decisions: usize, start: usize) -> usize {
        // Each contender has a loop of its own, so that none pays for telling them apart.
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
