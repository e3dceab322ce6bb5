//! Properties of reservations: waits are exact to the microsecond, slots are never exceeded, and nothing is charged twice.

use std::collections::BTreeMap;
use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::quota::Algorithm;
use polylimit::raw::{Call, ReservationTerms};
use polylimit::reservation::ReservationId;
use polylimit::{Decision, Limiter, Policy, Quota, Request, blocking};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::generators;
use super::verdicts::{assert_exact, assert_sums_up};

const START_US: u64 = 1_790_000_000_000_000;
const KEY: &str = "key";

/// An operation on the reservation with this number.
#[derive(Clone, Debug)]
enum Step {
    Reserve { number: u8, cost: u64, ttl_ms: u64 },
    Commit { number: u8, spent: u64 },
    Cancel { number: u8 },
    Wait { ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = || 0_u8..8;
    let step = prop_oneof![
        4 => (number(), 0_u64..=6, 1_u64..=100_000)
            .prop_map(|(number, cost, ttl_ms)| Step::Reserve { number, cost, ttl_ms }),
        1 => (number(), 0_u64..=8).prop_map(|(number, spent)| Step::Commit { number, spent }),
        1 => number().prop_map(|number| Step::Cancel { number }),
        2 => (0_u64..=30_000).prop_map(|ms| Step::Wait { ms }),
    ];
    vec(step, 1..40)
}

/// A policy that can be reserved, mostly with slots.
fn policy() -> impl Strategy<Value = (Policy, Option<u64>)> {
    (generators::policy(), option::weighted(0.8, 0_u64..=5)).prop_filter_map(
        "a leaky bucket",
        |(policy, slots)| {
            let quotas = policy.quotas();
            if quotas.iter().any(|quota| quota.algorithm() == Algorithm::LeakyBucket) {
                return None;
            }
            let slot_quota = slots.map(|slots| Quota::concurrent(slots).unwrap());
            Some((Policy::new("p", quotas.iter().cloned().chain(slot_quota)).ok()?, slots))
        },
    )
}

fn id(number: u8) -> ReservationId {
    ReservationId::new([b'a' + number]).unwrap()
}

fn reserve(limiter: &blocking::Limiter, number: u8, cost: u64, ttl_ms: u64) -> Decision {
    let terms = ReservationTerms {
        id: id(number),
        ttl: Duration::from_millis(ttl_ms),
        timeout: Duration::ZERO,
        remember: Duration::ZERO,
    };
    match limiter.raw().call(&Call::Reserve(Request::new(KEY).cost(cost), terms)).unwrap() {
        polylimit::raw::Answer::Decision(decision) => decision,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn retry_after_is_exact_beside_reservations((policy, slots) in policy(), steps in steps(), cost in 0_u64..=8) {
        let clock = ManualClock::new(START_US).unwrap();
        let limiter = Limiter::builder().policy(policy).clock(clock.clone()).build().unwrap().blocking();
        let mut alive: BTreeMap<u8, u64> = BTreeMap::new();
        for step in steps {
            let now_us = clock.now_us();
            alive.retain(|_, ends_us| *ends_us > now_us);
            match step {
                Step::Reserve { number, cost, ttl_ms } => {
                    if reserve(&limiter, number, cost, ttl_ms).allowed() {
                        alive.entry(number).or_insert(now_us + ttl_ms * 1_000);
                    }
                }
                Step::Commit { number, spent } => {
                    let left = limiter.commit(KEY, id(number), Some(spent)).unwrap();
                    prop_assert_eq!(left.found(), alive.remove(&number).is_some());
                    prop_assert!(!limiter.commit(KEY, id(number), Some(spent)).unwrap().found());
                }
                Step::Cancel { number } => {
                    let left = limiter.cancel(KEY, id(number)).unwrap();
                    prop_assert_eq!(left.found(), alive.remove(&number).is_some());
                }
                Step::Wait { ms } => clock.advance(Duration::from_millis(ms)).unwrap(),
            }
            if let Some(slots) = slots {
                prop_assert!(alive.len() as u64 <= slots);
            }
        }
        let peek = || limiter.peek(Request::new(KEY).cost(cost)).unwrap();
        let denied = peek();
        assert_sums_up(&denied)?;
        let now_us = clock.now_us();
        assert_exact(now_us, &denied, |time_us| {
            clock.set(time_us).unwrap();
            peek()
        })?;
        clock.set(now_us).unwrap();
        let Some(wait_us) = denied.retry_after_us().filter(|_| !denied.allowed()) else { return Ok(()) };
        prop_assert!(wait_us > 0);
        let admits_us = clock.now_us() + wait_us;
        if admits_us <= ManualClock::MAX_US {
            clock.set(admits_us - 1).unwrap();
            prop_assert!(!peek().allowed());
            clock.set(admits_us).unwrap();
            prop_assert!(peek().allowed());
        }
    }
}
