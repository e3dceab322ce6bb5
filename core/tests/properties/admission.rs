//! The most units that a quota admits in a span of time: the table of the documentation, with adversarial clients.

use std::time::Duration;

use polylimit::Quota;
use polylimit::quota::Algorithm;
use proptest::collection::vec;
use proptest::prelude::*;

use super::generators::{Cost, Move, Operation, in_us, plain_quota, policy_of_one, start_us, tick_us};
use super::session::Session;

/// The most units that may be admitted from one microsecond to another that is `apart_us` later, both included.
fn most(quota: &Quota, apart_us: u64) -> u64 {
    let (limit, period_us) = (u128::from(quota.limit()), u128::from(in_us(quota)));
    let apart = u128::from(apart_us);
    let most = match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let arrived = match quota.step() {
                None => apart.next_multiple_of(u128::from(tick_us(quota))) * limit / period_us,
                Some(step) => (apart / (u128::from(step) * period_us / limit) + 1) * u128::from(step),
            };
            u128::from(quota.capacity()) + arrived
        }
        Algorithm::FixedWindow => ((apart + 1).div_ceil(period_us) + 1) * limit,
        Algorithm::SlidingLog => (apart + 1).div_ceil(period_us) * limit,
        Algorithm::SlidingWindow => {
            let span_us = period_us - period_us / u128::from(quota.buckets().unwrap());
            let spans = (apart + 1).div_ceil(span_us.max(1)) * limit;
            if apart < period_us { spans.min(2 * limit - 1) } else { spans }
        }
        _ => unreachable!("there are five algorithms"),
    };
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// Moves of an adversarial client that knows the quota.
fn adversarial() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::Stay),
        2 => Just(Move::By(1)),
        6 => Just(Move::Retry { before: false }),
        3 => any::<bool>().prop_map(|before| Move::Boundary { before }),
        1 => any::<bool>().prop_map(|before| Move::Reset { before }),
        1 => (1_u64..=1_000).prop_map(Move::Part),
    ]
}

fn requested() -> impl Strategy<Value = Cost> {
    prop_oneof![Just(Cost::Units(1)), (1_u64..=1_000).prop_map(Cost::Part)]
}

proptest! {
    #[test]
    fn adversarial_client_gets_at_most_the_documented_bound(
        quota in plain_quota(), start_us in start_us(),
        tries in vec((adversarial(), requested()), 1..=60),
    ) {
        let policy = policy_of_one(&quota);
        let mut session = Session::new(&policy, start_us);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (to, cost) in tries {
            let cost = cost.of(&policy).max(1);
            session.go(to, cost);
            // Both a check and a partial take are admissions.
            let units = match to {
                Move::Boundary { .. } => session.adjust(Operation::Take, cost).taken(),
                _ => if session.check(cost).allowed() { cost } else { 0 },
            };
            admitted.push((session.now_us(), units));
        }
        for (at, (first_us, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (last_us, units) in &admitted[at..] {
                sum += units;
                let apart_us = last_us - first_us;
                prop_assert!(sum <= most(&quota, apart_us), "{} in {} us", sum, apart_us);
                if tick_us(&quota) == 1 {
                    prop_assert!(sum <= quota.most_admitted(Duration::from_micros(apart_us + 1)));
                }
            }
        }
    }

    #[test]
    fn most_admitted_equals_the_documented_table(
        quota in plain_quota(), span_us in 0_u64..=400 * 86_400_000_000,
    ) {
        let (limit, period_us) = (quota.limit(), in_us(&quota));
        let in_span = |us| quota.most_admitted(Duration::from_micros(us));
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket if quota.step().is_none() => {
                let refilled = u128::from(span_us) * u128::from(limit) / u128::from(period_us);
                let table = u64::try_from(u128::from(quota.capacity()) + refilled).unwrap_or(u64::MAX);
                prop_assert!(in_span(span_us) >= table);
                if tick_us(&quota) == 1 {
                    prop_assert_eq!(in_span(span_us), table);
                }
            }
            Algorithm::FixedWindow => prop_assert_eq!(in_span(period_us), 2 * limit),
            Algorithm::SlidingWindow => {
                prop_assert!(in_span(period_us) <= 2 * limit);
                if let buckets @ 2.. = u64::from(quota.buckets().unwrap()) {
                    prop_assert_eq!(in_span(period_us - period_us / buckets), limit);
                }
            }
            Algorithm::SlidingLog => prop_assert_eq!(in_span(period_us), limit),
            _ => prop_assert!(in_span(0) >= quota.capacity()),
        }
        prop_assert!(in_span(span_us) <= in_span(span_us + 1));
    }

    #[test]
    fn client_that_waits_gets_the_whole_bound_of_a_bucket(
        quota in plain_quota(), start_us in start_us(), waits in 1_u64..=40,
    ) {
        // A bucket of one token, or with several tokens a microsecond, overflows before the client can take from it.
        let refilled = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let in_time = quota.step().is_none() && tick_us(&quota) == 1 && quota.limit() <= in_us(&quota);
        if !refilled || !in_time || quota.capacity() < 2 {
            return Ok(());
        }
        let mut session = Session::new(&policy_of_one(&quota), start_us);
        let _ = session.check(quota.capacity());
        let mut admitted = quota.capacity();
        for _ in 0..waits {
            session.go(Move::Retry { before: false }, 1);
            admitted += session.adjust(Operation::Take, quota.capacity()).taken();
        }
        let span = Duration::from_micros(session.now_us() - start_us);
        prop_assert_eq!(admitted, quota.most_admitted(span));
    }
}

#[test]
fn bound_holds_for_a_bucket_with_a_coarse_tick() {
    // 10^12 less 11 is prime, so a tick of this bucket is 100 s.
    let quota: Quota = "999999999989/day token_bucket".parse().unwrap();
    let mut session = Session::new(&policy_of_one(&quota), 1_699_999_999_999_999);
    assert!(session.check(quota.limit()).allowed());
    session.go(Move::By(1), 1);
    let admitted = quota.limit() + session.adjust(Operation::Take, quota.limit()).taken();
    let bound = quota.most_admitted(Duration::from_micros(2));
    assert!(admitted <= bound, "{admitted} units were admitted in 2 us, the bound is {bound}");
}
