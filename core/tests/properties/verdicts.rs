//! Properties of the verdicts of the quotas: each is exact to the microsecond, and the decision sums them up.

use polylimit::Decision;
use polylimit::clock::ManualClock;
use polylimit::decision::QuotaVerdict;
use proptest::prelude::*;

use super::generators::{any_move, cost, policy, policy_of_several, start_us, steps};
use super::session::Session;

/// The longest wait of the quotas; `None` where one of them never admits.
pub(crate) fn longest_wait_us(decision: &Decision) -> Option<u64> {
    let waits = decision.verdicts().map(|verdict| verdict.retry_after_us);
    waits.reduce(|longest, wait| Some(longest?.max(wait?))).unwrap()
}

/// Checks that a decision on a key that is not blocked follows from the verdicts of its quotas.
pub(crate) fn assert_sums_up(decision: &Decision) -> Result<(), TestCaseError> {
    prop_assert_eq!(decision.verdicts().len(), decision.quotas().len());
    prop_assert_eq!(decision.allowed(), decision.verdicts().all(|verdict| verdict.allowed));
    prop_assert_eq!(decision.retry_after_us(), longest_wait_us(decision));
    for QuotaVerdict { allowed, retry_after_us } in decision.verdicts() {
        prop_assert_eq!(allowed, retry_after_us == Some(0));
    }
    Ok(())
}

/// Checks that each quota of a denial admits the same request exactly when the denial says. `peek_at` peeks at a time.
pub(crate) fn assert_exact(
    now_us: u64,
    denied: &Decision,
    peek_at: impl Fn(u64) -> Decision,
) -> Result<(), TestCaseError> {
    for (place, verdict) in denied.verdicts().enumerate() {
        let Some(wait_us) = verdict.retry_after_us.filter(|wait_us| *wait_us > 0) else { continue };
        let admits_us = now_us.saturating_add(wait_us);
        if admits_us > ManualClock::MAX_US {
            continue;
        }
        let verdict_at = |time_us| peek_at(time_us).verdicts().nth(place).unwrap();
        let early = QuotaVerdict { allowed: false, retry_after_us: Some(1) };
        prop_assert_eq!(verdict_at(admits_us - 1), early, "quota {}", place);
        let in_time = QuotaVerdict { allowed: true, retry_after_us: Some(0) };
        prop_assert_eq!(verdict_at(admits_us), in_time, "quota {}", place);
    }
    Ok(())
}

proptest! {
    #[test]
    fn decision_sums_up_the_verdicts(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 0..=16), cost in cost(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let cost = cost.of(&policy);
        assert_sums_up(&session.peek(cost))?;
        for _ in 0..2 {
            assert_sums_up(&session.check(cost))?;
        }
    }

    #[test]
    fn quota_admits_what_it_has_left(
        policy in policy_of_several(), start_us in start_us(), steps in steps(any_move(), 0..=16), cost in cost(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let cost = cost.of(&policy);
        let peeked = session.peek(cost);
        for ((quota, usage), verdict) in policy.quotas().iter().zip(peeked.quotas()).zip(peeked.verdicts()) {
            prop_assert_eq!(verdict.allowed, cost <= usage.remaining);
            prop_assert_eq!(verdict.retry_after_us.is_none(), cost > quota.capacity());
        }
    }

    #[test]
    fn verdict_of_each_quota_is_exact(
        policy in policy_of_several(), start_us in start_us(), steps in steps(any_move(), 0..=16), cost in cost(),
        counted in any::<bool>(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let cost = cost.of(&policy);
        let decision = if counted { session.check(cost) } else { session.peek(cost) };
        if !decision.allowed() {
            assert_exact(session.now_us(), &decision, |time_us| {
                session.set(time_us);
                session.peek(cost)
            })?;
        }
    }
}
