//! Concurrent callers of one key are admitted exactly up to the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polylimit::clock::ManualClock;
use polylimit::{Limiter, Policy, Request};

const CALLERS: usize = 64;
const ROUNDS: usize = 1_000;

/// A limit for every algorithm, below and near the number of callers; the clock stands still.
const QUOTAS: [(&str, u64); 6] = [
    ("1/minute token_bucket", 1),
    ("10/minute token_bucket burst=20 step=5", 20),
    ("10/minute leaky_bucket burst=63", 63),
    ("32/minute fixed_window", 32),
    ("50/minute; 100/hour", 50),
    ("7/minute sliding_log count_denied", 7),
];

fn limiter() -> Limiter {
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let policies =
        QUOTAS.iter().enumerate().map(|(at, (quotas, _))| Policy::parse(&at.to_string(), quotas).unwrap());
    policies.fold(Limiter::builder().clock(clock), polylimit::LimiterBuilder::policy).build().unwrap()
}

/// The number of admitted requests in each round. Each round has a key of its own. The callers go through the rounds
/// without waiting for each other, so that the scheduler decides which of them meet at a key.
#[derive(Clone)]
struct Admitted(Arc<[AtomicU64]>);

impl Admitted {
    fn none() -> Self {
        Self((0..ROUNDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn record(&self, round: usize, allowed: bool) {
        self.0[round].fetch_add(u64::from(allowed), Ordering::Relaxed);
    }

    fn assert_exact(&self) {
        for (round, admitted) in self.0.iter().enumerate() {
            let (quotas, limit) = QUOTAS[round % QUOTAS.len()];
            assert_eq!(admitted.load(Ordering::Relaxed), limit, "round {round}, {quotas}");
        }
    }
}

fn names(round: usize) -> (String, String) {
    ((round % QUOTAS.len()).to_string(), format!("round {round}"))
}

#[test]
fn threads_are_admitted_exactly_up_to_the_limit() {
    let (limiter, admitted) = (limiter().blocking(), Admitted::none());
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let (policy, key) = names(round);
                    let decision = limiter.check(Request::new(&key).policy(&policy)).unwrap();
                    admitted.record(round, decision.allowed());
                    std::thread::yield_now();
                }
            });
        }
    });
    admitted.assert_exact();
}

#[test]
fn tasks_are_admitted_exactly_up_to_the_limit() {
    let (limiter, admitted) = (limiter(), Admitted::none());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let tasks: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (limiter, admitted) = (limiter.clone(), admitted.clone());
            runtime.spawn(async move {
                for round in 0..ROUNDS {
                    let (policy, key) = names(round);
                    let decision = limiter.check(Request::new(&key).policy(&policy)).await.unwrap();
                    admitted.record(round, decision.allowed());
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    admitted.assert_exact();
}
