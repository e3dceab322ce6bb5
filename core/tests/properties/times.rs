//! Properties of `retry_after`, `reset_after` and `delay`: exact to the microsecond.

use polylimit::clock::ManualClock;
use polylimit::{Decision, Quota, Request};
use proptest::prelude::*;

use super::generators::{Move, any_move, capacity, cost, counts_denied, forward, policy, start_us, steps};
use super::session::Session;

/// Checks by peeks that a denied request is admitted exactly after its `retry_after`. Returns that time.
fn assert_retry_after(session: &Session, cost: u64, denied: &Decision) -> Result<Option<u64>, TestCaseError> {
    let now_us = session.now_us();
    let Some(wait_us) = denied.retry_after_us() else { return Ok(None) };
    let admitted_us = now_us.saturating_add(wait_us);
    if admitted_us > ManualClock::MAX_US {
        return Ok(None);
    }
    prop_assert!(wait_us > 0);
    for left_us in [wait_us, wait_us / 2 + 1, 2.min(wait_us), 1] {
        session.set(admitted_us - left_us);
        let peeked = session.peek(cost);
        prop_assert!(!peeked.allowed(), "admitted {left_us} us early");
        prop_assert_eq!(peeked.retry_after_us(), Some(left_us));
    }
    session.set(admitted_us);
    prop_assert!(session.peek(cost).allowed());
    session.set(now_us);
    Ok(Some(admitted_us))
}

proptest! {
    #[test]
    fn retry_after_is_exact(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 0..=16), cost in cost(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let cost = cost.of(&policy);
        let decision = session.peek(cost);
        if decision.allowed() {
            prop_assert_eq!(decision.retry_after_us(), Some(0));
            return Ok(());
        }
        prop_assert_eq!(decision.retry_after_us().is_none(), cost > capacity(&policy));
        if let Some(admitted_us) = assert_retry_after(&session, cost, &decision)? {
            let mut at_once = session.twin();
            at_once.set(admitted_us);
            prop_assert!(at_once.check(cost).allowed());
            if !counts_denied(&policy) {
                // A denied check changes no state either: a request that came too early does not delay the next one.
                session.set(admitted_us - 1);
                prop_assert_eq!(session.check(cost).retry_after_us(), Some(1));
                session.set(admitted_us);
                prop_assert!(session.check(cost).allowed());
            }
        }
    }

    #[test]
    fn retry_after_is_exact_after_denied_checks(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 0..=12), cost in cost(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let cost = cost.of(&policy);
        for _ in 0..3 {
            let decision = session.check(cost);
            if !decision.allowed() {
                assert_retry_after(&session, cost, &decision)?;
            }
        }
    }

    #[test]
    fn delay_decreases_as_time_passes(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 0..=12), cost in cost(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let cost = cost.of(&policy);
        let (peeked, view) = (session.peek(cost), session.view());
        prop_assert_eq!(view.delay_us(), 0);
        if peeked.allowed() && peeked.delay_us() > 0 {
            // The delay is at most the time until the queue is empty, and one microsecond less after one microsecond.
            prop_assert!(peeked.delay_us() <= view.reset_after_us());
            session.go(Move::By(1), cost);
            let later = session.peek(cost);
            prop_assert_eq!(later.delay_us(), peeked.delay_us() - 1);
        }
    }
}

proptest! {
    #[test]
    fn key_is_unused_after_reset_after(
        policy in policy(), start_us in start_us(),
        before in steps(any_move(), 1..=12), after in steps(any_move(), 1..=12),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&before);
        let (now_us, used_for_us) = (session.now_us(), session.view().reset_after_us());
        if now_us.saturating_add(used_for_us) > ManualClock::MAX_US {
            return Ok(());
        }
        if used_for_us > 0 {
            session.set(now_us + used_for_us - 1);
            let view = session.view();
            prop_assert_eq!(view.reset_after_us(), 1);
            let remaining = view.quotas().iter().map(|view| view.remaining);
            let full = remaining.eq(policy.quotas().iter().map(Quota::capacity));
            prop_assert!(!full, "units count as used, and none are missing");
        }
        session.set(now_us + used_for_us);
        // If the clock went back beyond this time, the usage would count again.
        session.forbid_earlier_times();
        let mut unseen = session.unseen();
        prop_assert_eq!(session.view(), unseen.view());
        prop_assert_eq!(session.view().remaining(), capacity(&policy));
        for step in after {
            let (done, answer) = session.step(step);
            prop_assert_eq!(answer, unseen.repeat(done));
        }
    }

    #[test]
    fn removal_of_expired_states_changes_no_answer(
        policy in policy(), start_us in start_us(), steps in steps(forward(), 1..=16),
    ) {
        let (mut kept, mut cleaned) = (Session::new(&policy, start_us), Session::new(&policy, start_us));
        for step in steps {
            let (done, answer) = kept.step(step);
            cleaned.set(kept.now_us());
            // Each new key removes a few expired states.
            for new_key in 0_u8..8 {
                let _ = cleaned.limiter().peek(Request::new(&[new_key])).unwrap();
            }
            prop_assert_eq!(answer, cleaned.repeat(done));
        }
    }
}
