//! The stores of this process and the rules alone give the same answers to random operations.

use proptest::prelude::*;

use super::{Asked, Subject};
use polylimit_rules::decision::Cause;
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::{AS_RESERVED, Hold};
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::ManualClock;
use polylimit_store::charge::Action;

const START_US: u64 = 1_790_000_000_000_000;
const SECOND_US: u64 = 1_000_000;

fn policies() -> impl Strategy<Value = Policy> {
    let quotas = prop::sample::select(vec![
        "5/10s token_bucket",
        "5/10s token_bucket excess=2",
        "6/10s token_bucket step=3",
        "5/10s leaky_bucket",
        "5/10s fixed_window excess=3",
        "5/10s",
        "5/10s sliding_log",
        "5/10s fixed_window count_denied",
        "5/10s token_bucket count_denied; 9/1m fixed_window",
        "5/10s; 8/20s sliding_log; 9/1m token_bucket excess=4",
        "2 concurrent; 5/10s fixed_window",
        "3 concurrent",
        "0/10s; 5/10s fixed_window",
    ]);
    let seconds = |range: std::ops::RangeInclusive<u64>| range.prop_map(|seconds| seconds * SECOND_US);
    let penalty = (1_u16..=3, seconds(1..=20), seconds(1..=5), seconds(1..=40), seconds(1..=40)).prop_map(
        |(denials, within_us, block_us, max_us, forget_us)| Penalty {
            denials,
            within_us,
            block_us,
            max_us: max_us.max(block_us),
            forget_us,
        },
    );
    (quotas, prop::option::weighted(0.7, penalty))
        .prop_map(|(quotas, penalty)| Policy::parse("p", quotas).unwrap().with_penalty(penalty))
}

/// An operation, and how far the clock moves before it.
fn steps() -> impl Strategy<Value = Vec<(Asked, i64)>> {
    let operation = prop_oneof![
        8 => Just(Operation::Check),
        2 => Just(Operation::Peek),
        2 => Just(Operation::Take),
        1 => Just(Operation::Charge),
        1 => Just(Operation::Refund),
        3 => Just(Operation::Reserve),
        1 => Just(Operation::Commit),
        1 => Just(Operation::Cancel),
        1 => Just(Operation::Renew),
        1 => Just(Operation::Block),
    ];
    let cost = prop_oneof![4 => Just(1), 1 => Just(0), 3 => 0_u64..=10];
    let headroom = prop_oneof![3 => Just(0), 1 => Just(99), 2 => 1_u8..=60];
    let moved = prop_oneof![
        6 => Just(0),
        6 => 0_i64..=3_000_000,
        2 => 0_i64..=60_000_000,
        1 => -20_000_000_i64..=0,
    ];
    let number = 0_u8..4;
    let hold_us = prop_oneof![1 => Just(0), 6 => 1_000_u64..=20_000_000];
    let remember_us = prop_oneof![1 => Just(0), 1 => 1_000_u64..=20_000_000];
    let step = (operation, cost, headroom, number, (hold_us, remember_us), moved, 0..40).prop_map(
        |(operation, cost, headroom, number, (hold_us, remember_us), moved, reset)| {
            let id = ReservationId::new([b'a' + number]).unwrap();
            let hold = match operation {
                Operation::Reserve => Some(Hold { id, ttl_us: hold_us.max(1_000), remember_us }),
                Operation::Commit | Operation::Cancel => Some(Hold::of_end(id)),
                Operation::Renew => Some(Hold { id, ttl_us: hold_us.max(1_000), remember_us: 0 }),
                Operation::Block => Some(Hold::of_block(hold_us)),
                _ => None,
            };
            let as_reserved = operation == Operation::Commit && cost == 0;
            let asked = Asked {
                policy: 0,
                key: "k".into(),
                action: if reset == 0 { Action::Reset } else { Action::Apply(operation) },
                cost: if as_reserved { AS_RESERVED } else { cost },
                headroom,
                hold,
            };
            (asked, moved)
        },
    );
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn every_store_answers_as_the_rules_do(policy in policies(), steps in steps(), changed in policies(), change in 0..120) {
        let clock = ManualClock::new(START_US).unwrap();
        let mut subjects = Subject::all(std::slice::from_ref(&policy), &clock);
        for (at, (asked, moved)) in steps.iter().enumerate() {
            if i32::try_from(at) == Ok(change) {
                // The rules alone change no quotas.
                subjects.remove(0);
                for subject in &subjects {
                    subject.set_policy(0, &changed);
                }
            }
            let current = if i32::try_from(at).is_ok_and(|at| at >= change) { &changed } else { &policy };
            if !fits(asked, current) {
                continue;
            }
            clock.set(clock.now_us().saturating_add_signed(*moved)).unwrap();
            let answers: Vec<_> = subjects.iter_mut().map(|subject| subject.ask(asked)).collect();
            for answer in &answers[1..] {
                prop_assert_eq!(answer, &answers[0], "{:?}", asked);
            }
            let (decision, _) = &answers[0];
            prop_assert_eq!(decision.allowed() || !decides(asked), decision.cause().is_none());
            let longest_us = decision.verdicts().map(|verdict| verdict.retry_after_us.unwrap_or(u64::MAX)).max();
            let wait_us = decision.retry_after_us().unwrap_or(u64::MAX);
            if decides(asked) && decision.cause() != Some(Cause::Blocked) {
                prop_assert_eq!(longest_us, Some(wait_us), "{:?}", asked);
            } else {
                // The block may last longer than the quotas deny.
                prop_assert!(longest_us <= Some(wait_us), "{:?}", asked);
            }
        }
    }

    /// A denied operation is admitted after exactly the returned wait, and not one microsecond earlier.
    #[test]
    fn retry_after_is_exact_beside_blocks_and_headroom(
        policy in policies(), steps in steps(), cost in 0_u64..=6, headroom in 0_u8..=80,
    ) {
        let clock = ManualClock::new(START_US).unwrap();
        let mut subject = Subject::memory(std::slice::from_ref(&policy), &clock, 1_000);
        for (asked, moved) in steps.iter().filter(|(asked, _)| fits(asked, &policy)) {
            // A peek moves nothing back for good, so the clock only moves forward.
            clock.set(clock.now_us() + moved.unsigned_abs()).unwrap();
            let _ = subject.ask(asked);
        }
        let asked = Asked { headroom, ..Asked::plain("k", Operation::Peek, cost) };
        let (denied, _) = subject.ask(&asked);
        let Some(wait_us) = denied.retry_after_us().filter(|_| !denied.allowed()) else { return Ok(()) };
        prop_assert!(wait_us > 0);
        let now_us = clock.now_us();
        for (place, verdict) in denied.verdicts().enumerate() {
            let Some(wait_us) = verdict.retry_after_us.filter(|wait_us| *wait_us > 0) else { continue };
            for left_us in [1, 0] {
                clock.set(now_us + wait_us - left_us).unwrap();
                let verdict = subject.ask(&asked).0.verdicts().nth(place).unwrap();
                prop_assert_eq!(verdict.retry_after_us, Some(left_us), "quota {}", place);
            }
        }
        clock.set(now_us + wait_us - 1).unwrap();
        prop_assert!(!subject.ask(&asked).0.allowed());
        clock.set(now_us + wait_us).unwrap();
        prop_assert!(subject.ask(&asked).0.allowed());
    }
}

fn decides(asked: &Asked) -> bool {
    let Action::Apply(operation) = asked.action else { return false };
    matches!(operation, Operation::Check | Operation::Peek | Operation::Reserve)
}

/// Whether the limiter would pass the operation on to a store: a leaky bucket is never reserved, and concurrency is only reserved.
fn fits(asked: &Asked, policy: &Policy) -> bool {
    let Action::Apply(operation) = asked.action else { return true };
    let is_queue =
        policy.quotas().iter().any(|quota| quota.algorithm() == crate::quota::Algorithm::LeakyBucket);
    match operation {
        Operation::Check | Operation::Take => !policy.is_only_reserved(),
        Operation::Reserve | Operation::Commit | Operation::Cancel | Operation::Renew => !is_queue,
        _ => true,
    }
}
