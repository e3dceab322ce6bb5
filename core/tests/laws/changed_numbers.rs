//! Changing a policy's numbers keeps what was used.

use polylimit::{Algorithm, ManualClock, Policy, Quota};
use proptest::prelude::*;

use super::quotas::{alone, in_us, plain_quota, tick_us};
use super::session::Session;
use super::steps::{Operation, cost, forward, start_us, steps};

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

/// Its units are refilled at the new rate from the last write on; see `a_stepped_bucket_forgets_what_ran_out`.
fn is_stepped(quota: &Quota) -> bool {
    quota.step().is_some()
}

proptest! {
    #[test]
    fn windows_and_logs_keep_the_units(
        quota in plain_quota(), start_us in start_us(),
        steps in steps(forward(), 1..=10), limit in other_limit(),
    ) {
        let Some(changed) = with_limit(&quota, limit) else { return Ok(()) };
        let bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        if bucket || !is_fine(&quota) || !is_fine(&changed) {
            return Ok(());
        }
        let mut session = Session::new(&alone(&quota), start_us);
        session.run(&steps);
        let before = session.view();
        session.change(&alone(&changed));
        let after = session.view();
        // Where nothing remains, more may be used than can be seen.
        if before.remaining() > 0 {
            let used = quota.limit() - before.remaining();
            let kept = limit.saturating_sub(used);
            // What is beyond 8 times a smaller limit may be cut to that.
            prop_assert!(after.remaining() >= kept);
            if limit >= quota.limit() {
                prop_assert_eq!(after.remaining(), kept);
            }
        }
        prop_assert_eq!(after.reset_after_us(), before.reset_after_us());
    }

    #[test]
    fn buckets_keep_the_time_until_they_are_full(
        quota in plain_quota(), start_us in start_us(),
        steps in steps(forward(), 1..=10), limit in other_limit(),
    ) {
        let Some(changed) = with_limit(&quota, limit) else { return Ok(()) };
        let bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        if !bucket || is_stepped(&quota) {
            return Ok(());
        }
        let mut session = Session::new(&alone(&quota), start_us);
        session.run(&steps);
        let before = session.view();
        session.change(&alone(&changed));
        prop_assert!(session.view().reset_after_us() < before.reset_after_us() + tick_us(&changed));
        // The changed bucket can be in debt for 8 periods; what was more at the last write is cut to that.
        if quota.capacity() <= quota.limit() {
            prop_assert!(session.view().reset_after_us() >= before.reset_after_us());
        }
    }

    #[test]
    fn a_wait_is_exact_under_changed_numbers(
        quota in plain_quota(), start_us in start_us(), before in steps(forward(), 1..=10),
        limit in other_limit(), cost in cost(),
    ) {
        let Some(changed) = with_limit(&quota, limit) else { return Ok(()) };
        let policy = alone(&changed);
        let mut session = Session::new(&alone(&quota), start_us);
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
    fn what_ran_out_does_not_come_back(
        quota in plain_quota(), start_us in start_us(),
        before in steps(forward(), 1..=10), limit in other_limit(),
    ) {
        let Some(changed) = with_limit(&quota, limit) else { return Ok(()) };
        let mut session = Session::new(&alone(&quota), start_us);
        session.run(&before);
        let over_us = session.now_us() + session.view().reset_after_us();
        if over_us > ManualClock::MAX_US || is_stepped(&quota) {
            return Ok(());
        }
        session.set(over_us);
        session.change(&alone(&changed));
        let bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        if bucket && tick_us(&changed) > 1 {
            // See `a_bucket_of_coarse_ticks_forgets_what_ran_out`.
            prop_assert!(session.view().reset_after_us() < tick_us(&changed));
        } else {
            prop_assert_eq!(session.view(), session.unseen().view());
        }
    }
}

#[test]
fn a_bucket_of_coarse_ticks_forgets_what_ran_out() {
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
fn a_stepped_bucket_forgets_what_ran_out() {
    let policy = |quota| Policy::parse("p", quota).unwrap();
    let mut session = Session::new(&policy("2/second token_bucket step=1"), 0);
    session.adjust(Operation::Charge, 2);
    session.set(1_000_000);
    assert_eq!((session.view().remaining(), session.view().reset_after_us()), (2, 0));
    session.change(&policy("1/second token_bucket step=1"));
    assert_eq!(session.view(), session.unseen().view());
}
