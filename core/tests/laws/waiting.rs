//! A denied request is admitted when it was told to come again, and not one microsecond earlier.

use polylimit::{Decision, ManualClock};
use proptest::prelude::*;

use super::quotas::{capacity, counts_denied, policy};
use super::session::Session;
use super::steps::{Move, any_move, cost, start_us, steps};

/// Checks what a denial of that cost said, by peeks; they leave no trace. Says when the request will be admitted.
fn told_the_truth(session: &Session, cost: u64, denied: &Decision) -> Result<Option<u64>, TestCaseError> {
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
    fn a_wait_is_exact(
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
        if let Some(admitted_us) = told_the_truth(&session, cost, &decision)? {
            let mut at_once = session.twin();
            at_once.set(admitted_us);
            prop_assert!(at_once.check(cost).allowed());
            if !counts_denied(&policy) {
                // A denied check leaves no trace either: who came too early is admitted on time.
                session.set(admitted_us - 1);
                prop_assert_eq!(session.check(cost).retry_after_us(), Some(1));
                session.set(admitted_us);
                prop_assert!(session.check(cost).allowed());
            }
        }
    }

    #[test]
    fn a_wait_is_exact_for_whoever_was_charged_for_asking(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 0..=12), cost in cost(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let cost = cost.of(&policy);
        for _ in 0..3 {
            let decision = session.check(cost);
            if !decision.allowed() {
                told_the_truth(&session, cost, &decision)?;
            }
        }
    }

    #[test]
    fn a_turn_in_a_queue_does_not_depend_on_who_asks_when(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 0..=12), cost in cost(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let cost = cost.of(&policy);
        let (peeked, view) = (session.peek(cost), session.view());
        prop_assert_eq!(view.delay_us(), 0);
        if peeked.allowed() && peeked.delay_us() > 0 {
            // Turns come no later than everybody is served, and one microsecond later they are one nearer.
            prop_assert!(peeked.delay_us() <= view.reset_after_us());
            session.go(Move::By(1), cost);
            let later = session.peek(cost);
            prop_assert_eq!(later.delay_us(), peeked.delay_us() - 1);
        }
    }
}
