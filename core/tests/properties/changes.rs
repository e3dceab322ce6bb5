//! Properties of changes from outside: other numbers for a policy keep its usage, and a clock that goes back refills nothing,
//! loses nothing and lengthens no wait beyond what the quota alone can require.

use polylimit::clock::ManualClock;
use polylimit::quota::Algorithm;
use polylimit::{Policy, Quota};
use proptest::prelude::*;

use super::generators::{
    Move, Operation, any_move, cost, forward, in_us, plain_quota, policy, policy_of_one, start_us, steps,
    tick_us,
};
use super::session::Session;

/// The same quota, as far as states go, with another limit; `None` where it cannot have that limit.
fn with_limit(quota: &Quota, limit: u64) -> Option<Quota> {
    let builder = Quota::builder(limit, quota.period()).algorithm(quota.algorithm());
    let builder = quota.step().map_or(builder.clone(), |step| builder.step(step));
    quota.buckets().map_or(builder.clone(), |buckets| builder.buckets(buckets)).build().ok()
}

/// Whether a sliding window with that limit counts in microseconds.
fn is_fine(quota: &Quota) -> bool {
    let buckets = u128::from(quota.buckets().unwrap_or(1));
    8 * u128::from(quota.limit()) * u128::from(in_us(quota)) / buckets <= 1 << 53
}

fn other_limit() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1_u64..=20, 2 => 1_u64..=1_000, 1 => 1_u64..=10_000_000]
}

/// Its units are refilled at the new rate from the last write on; see `refilled_stepped_bucket_stays_full_after_a_change`.
fn is_stepped(quota: &Quota) -> bool {
    quota.step().is_some()
}

proptest! {
    #[test]
    fn changed_window_or_log_keeps_its_used_units(
        quota in plain_quota(), start_us in start_us(),
        steps in steps(forward(), 1..=10), limit in other_limit(),
    ) {
        let Some(changed) = with_limit(&quota, limit) else { return Ok(()) };
        let bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        if bucket || !is_fine(&quota) || !is_fine(&changed) {
            return Ok(());
        }
        let mut session = Session::new(&policy_of_one(&quota), start_us);
        session.run(&steps);
        let before = session.view();
        session.change(&policy_of_one(&changed));
        let after = session.view();
        // Where nothing remains, the usage may exceed the limit by an amount that a decision does not show.
        if before.remaining() > 0 {
            let used = quota.limit() - before.remaining();
            let kept = limit.saturating_sub(used);
            // Usage beyond 8 times a smaller limit may be reduced to that.
            prop_assert!(after.remaining() >= kept);
            if limit >= quota.limit() {
                prop_assert_eq!(after.remaining(), kept);
            }
        }
        prop_assert_eq!(after.reset_after_us(), before.reset_after_us());
    }

    #[test]
    fn changed_bucket_keeps_the_time_until_it_is_full(
        quota in plain_quota(), start_us in start_us(),
        steps in steps(forward(), 1..=10), limit in other_limit(),
    ) {
        let Some(changed) = with_limit(&quota, limit) else { return Ok(()) };
        let bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        if !bucket || is_stepped(&quota) {
            return Ok(());
        }
        let mut session = Session::new(&policy_of_one(&quota), start_us);
        session.run(&steps);
        let before = session.view();
        session.change(&policy_of_one(&changed));
        prop_assert!(session.view().reset_after_us() < before.reset_after_us() + tick_us(&changed));
        // The debt of the changed bucket is at most 8 periods; a larger one is reduced to that.
        if quota.capacity() <= quota.limit() {
            prop_assert!(session.view().reset_after_us() >= before.reset_after_us());
        }
    }

    #[test]
    fn retry_after_is_exact_after_a_change(
        quota in plain_quota(), start_us in start_us(), before in steps(forward(), 1..=10),
        limit in other_limit(), cost in cost(),
    ) {
        let Some(changed) = with_limit(&quota, limit) else { return Ok(()) };
        let policy = policy_of_one(&changed);
        let mut session = Session::new(&policy_of_one(&quota), start_us);
        session.run(&before);
        session.change(&policy);
        let (cost, now_us) = (cost.of(&policy), session.now_us());
        let denied = session.peek(cost);
        let Some(wait_us) = denied.retry_after_us().filter(|_| !denied.allowed()) else { return Ok(()) };
        if now_us + wait_us <= ManualClock::MAX_US {
            session.set(now_us + wait_us - 1);
            prop_assert!(!session.check(cost).allowed());
            session.set(now_us + wait_us);
            prop_assert!(session.check(cost).allowed());
        }
    }

    #[test]
    fn expired_usage_does_not_count_again_after_a_change(
        quota in plain_quota(), start_us in start_us(),
        before in steps(forward(), 1..=10), limit in other_limit(),
    ) {
        let Some(changed) = with_limit(&quota, limit) else { return Ok(()) };
        let mut session = Session::new(&policy_of_one(&quota), start_us);
        session.run(&before);
        let over_us = session.now_us() + session.view().reset_after_us();
        if over_us > ManualClock::MAX_US || is_stepped(&quota) {
            return Ok(());
        }
        session.set(over_us);
        session.change(&policy_of_one(&changed));
        let bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        if bucket && tick_us(&changed) > 1 {
            // See `refilled_bucket_with_coarse_ticks_stays_full_after_a_change`.
            prop_assert!(session.view().reset_after_us() < tick_us(&changed));
        } else {
            prop_assert_eq!(session.view(), session.unseen().view());
        }
    }
}

#[test]
fn refilled_bucket_with_coarse_ticks_stays_full_after_a_change() {
    const DAY_US: u64 = 86_400_000_000;
    let policy = |quota| Policy::parse("p", quota).unwrap();
    let mut session = Session::new(&policy("1/day token_bucket"), 1);
    session.adjust(Operation::Charge, 1);
    session.set(1 + DAY_US);
    assert_eq!((session.view().remaining(), session.view().reset_after_us()), (1, 0));
    session.change(&policy("999983/day token_bucket"));
    assert_eq!(session.view(), session.unseen().view());
}

#[test]
fn refilled_stepped_bucket_stays_full_after_a_change() {
    let policy = |quota| Policy::parse("p", quota).unwrap();
    let mut session = Session::new(&policy("2/second token_bucket step=1"), 0);
    session.adjust(Operation::Charge, 2);
    session.set(1_000_000);
    assert_eq!((session.view().remaining(), session.view().reset_after_us()), (2, 0));
    session.change(&policy("1/second token_bucket step=1"));
    assert_eq!(session.view(), session.unseen().view());
}

/// The longest time for which units can count, including a charge beyond the capacity.
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
    fn clock_step_back_keeps_what_remains(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 1..=12),
        cost in cost(), back in 0_u64..=3_000,
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        // A writing operation brings the state to the current time.
        session.adjust(Operation::Charge, cost.of(&policy).max(1));
        let before = session.view();
        session.go(Move::Back(back), 0);
        let after = session.view();
        for ((was, is), quota) in before.quotas().iter().zip(after.quotas()).zip(policy.quotas()) {
            if quota.algorithm() == Algorithm::SlidingWindow {
                // See `clock_step_back_refills_no_sliding_window`.
                prop_assert!(is.remaining <= quota.capacity());
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
    fn clock_step_back_refills_nothing(
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
fn clock_step_back_near_the_epoch_moves_the_whole_log() {
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
fn clock_step_back_refills_no_sliding_window() {
    let policy = Policy::parse("p", "10/second buckets=1").unwrap();
    let mut session = Session::new(&policy, 1_999_999);
    assert!(session.check(10).allowed());
    session.set(2_100_000);
    assert_eq!((session.view().remaining(), session.check(1).remaining()), (1, 0));
    // 0.2 s back, to where the sub-window before was nearly over.
    session.set(1_900_000);
    assert_eq!(session.view().remaining(), 0);
}
