//! Past `reset_after` a key is as new, whether or not its state is still there.

use polylimit::{ManualClock, Quota, Request};
use proptest::prelude::*;

use super::quotas::{capacity, policy};
use super::session::Session;
use super::steps::{any_move, forward, start_us, steps};

proptest! {
    #[test]
    fn past_reset_after_a_key_is_as_new(
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
            prop_assert!(!full, "something counts as used, and nothing is missing");
        }
        session.set(now_us + used_for_us);
        // Where the clock goes back behind this time, what was used comes back with it.
        session.no_way_back();
        let mut unseen = session.unseen();
        prop_assert_eq!(session.view(), unseen.view());
        prop_assert_eq!(session.view().remaining(), capacity(&policy));
        for step in after {
            let (done, answer) = session.step(step);
            prop_assert_eq!(answer, unseen.repeat(done));
        }
    }

    #[test]
    fn cleaning_changes_no_answer(
        policy in policy(), start_us in start_us(), steps in steps(forward(), 1..=16),
    ) {
        let (mut kept, mut cleaned) = (Session::new(&policy, start_us), Session::new(&policy, start_us));
        for step in steps {
            let (done, answer) = kept.step(step);
            cleaned.set(kept.now_us());
            // Every key that was not seen before cleans up a little.
            for stranger in 0_u8..8 {
                let _ = cleaned.limiter().peek(Request::new(&[stranger])).unwrap();
            }
            prop_assert_eq!(answer, cleaned.repeat(done));
        }
    }
}
