//! A peek says what a check would, and leaves no trace.

use proptest::prelude::*;

use super::quotas::{counts_denied, policy};
use super::session::Session;
use super::steps::{Operation, any_move, cost, start_us, steps};

proptest! {
    #[test]
    fn a_peek_leaves_no_trace(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 1..=16), cost in cost(),
    ) {
        let (mut peeked, mut unpeeked) = (Session::new(&policy, start_us), Session::new(&policy, start_us));
        let cost = cost.of(&policy);
        for step in steps {
            let first = peeked.peek(cost);
            prop_assert_eq!(first, peeked.peek(cost));
            let (done, answer) = peeked.step(step);
            prop_assert_eq!(&answer, &unpeeked.repeat(done));
            prop_assert_eq!(peeked.limiter().asynchronous().keys(), unpeeked.limiter().asynchronous().keys());
        }
    }

    #[test]
    fn a_peek_says_what_a_check_would(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 1..=16),
    ) {
        let mut session = Session::new(&policy, start_us);
        for step in steps {
            let cost = step.cost.of(&policy);
            session.go(step.to, cost);
            let peeked = session.peek(cost);
            prop_assert_eq!(peeked.allowed(), cost <= peeked.remaining());
            if step.operation != Operation::Check {
                session.perform(step.operation, cost);
                continue;
            }
            let checked = session.check(cost);
            prop_assert_eq!(checked.allowed(), peeked.allowed());
            if checked.allowed() {
                // Exact for every algorithm: what was just spent counts in full, whatever else slides or drains.
                prop_assert_eq!(checked.remaining(), peeked.remaining() - cost);
                prop_assert_eq!(checked.retry_after_us(), Some(0));
                prop_assert_eq!(checked.delay_us(), peeked.delay_us());
            } else if !counts_denied(&policy) {
                prop_assert_eq!(checked, peeked);
            } else {
                prop_assert!(checked.remaining() <= peeked.remaining());
            }
        }
    }

    #[test]
    fn what_remains_can_be_spent_and_not_one_unit_more(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 0..=16),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let remaining = session.view().remaining();
        prop_assert!(session.peek(remaining).allowed());
        prop_assert!(remaining == 1_000_000_000_000 || !session.peek(remaining + 1).allowed());
        prop_assert_eq!(session.check(remaining).remaining(), 0);
    }
}
