//! A clock that went back: nothing is refilled, nothing is lost, and no wait becomes longer than the quota alone can
//! require.

use polylimit::{Algorithm, Policy, Quota};
use proptest::prelude::*;

use super::quotas::{in_us, policy};
use super::session::Session;
use super::steps::{Move, Operation, any_move, cost, forward, start_us, steps};

/// The longest that anything can count, a charge beyond the capacity included.
fn longest_us(quota: &Quota) -> u128 {
    let period_us = u128::from(in_us(quota));
    match quota.algorithm() {
        _ if quota.limit() == 0 => 0,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            // One step more, or a period where a tick is as coarse as that.
            let saturated = 8 * u128::from(quota.capacity()) + u128::from(quota.step().unwrap_or(0));
            (saturated * period_us).div_ceil(u128::from(quota.limit())) + period_us
        }
        Algorithm::SlidingWindow => period_us + period_us / u128::from(quota.buckets().unwrap()),
        _ => period_us,
    }
}

proptest! {
    #[test]
    fn nothing_is_refilled_and_nothing_lost(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 1..=12),
        cost in cost(), back in 0_u64..=3_000,
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        // An operation that writes brings the state to the clock.
        session.adjust(Operation::Charge, cost.of(&policy).max(1));
        let before = session.view();
        session.go(Move::Back(back), 0);
        let after = session.view();
        for ((was, is), quota) in before.quotas().iter().zip(after.quotas()).zip(policy.quotas()) {
            if quota.algorithm() == Algorithm::SlidingWindow {
                // See `a_step_back_refills_nothing_in_a_sliding_window_either`.
                prop_assert!(is.remaining <= quota.limit());
            } else {
                prop_assert_eq!(is.remaining, was.remaining, "{}", quota);
            }
            prop_assert!(u128::from(is.reset_after_us) <= longest_us(quota), "{}", quota);
            prop_assert_eq!(is.reset_after_us == 0, was.reset_after_us == 0, "{}", quota);
        }
        let decision = session.check(cost.of(&policy));
        prop_assert!(decision.retry_after_us().is_none_or(|wait_us| wait_us <= decision.reset_after_us()));
    }

    #[test]
    fn a_step_back_refills_nothing_that_was_not_refilled_before(
        policy in policy(), start_us in start_us(), steps in steps(forward(), 1..=12), back in 0_u64..=3_000,
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let before = session.view();
        session.go(Move::Back(back), 0);
        for ((was, is), quota) in before.quotas().iter().zip(session.view().quotas()).zip(policy.quotas()) {
            if quota.algorithm() != Algorithm::SlidingWindow {
                prop_assert!(is.remaining <= was.remaining, "{}", quota);
            }
        }
    }
}

#[test]
fn near_the_epoch_a_log_is_moved_back_as_a_whole_too() {
    let policy = Policy::parse("p", "2/second sliding_log").unwrap();
    let mut session = Session::new(&policy, 0);
    assert!(session.check(1).allowed());
    session.set(1);
    assert!(session.check(1).allowed());
    session.set(0);
    let peeked = session.peek(1);
    assert_eq!(session.check(1), peeked);
}

#[test]
fn a_step_back_refills_nothing_in_a_sliding_window_either() {
    let policy = Policy::parse("p", "10/second buckets=1").unwrap();
    let mut session = Session::new(&policy, 1_999_999);
    assert!(session.check(10).allowed());
    session.set(2_100_000);
    assert_eq!((session.view().remaining(), session.check(1).remaining()), (1, 0));
    // 0.2 s back, to where the sub-window before was nearly over.
    session.set(1_900_000);
    assert_eq!(session.view().remaining(), 0);
}
