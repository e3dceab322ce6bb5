//! Properties of the operations: a peek changes nothing and predicts the check; take, charge, refund and reset change what
//! remains as documented; a policy that one quota denies spends from none.

use polylimit::Request;
use proptest::prelude::*;

use super::generators::{
    Cost, Operation, any_move, capacity, cost, counts_denied, forward, policy, policy_of_several, start_us,
    steps,
};
use super::session::Session;

proptest! {
    #[test]
    fn peek_changes_no_state(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 1..=16), cost in cost(),
    ) {
        let (mut peeked, mut unpeeked) = (Session::new(&policy, start_us), Session::new(&policy, start_us));
        let cost = cost.of(&policy);
        for step in steps {
            let first = peeked.peek(cost);
            prop_assert_eq!(first, peeked.peek(cost));
            let (done, answer) = peeked.step(step);
            prop_assert_eq!(&answer, &unpeeked.repeat(done));
            prop_assert_eq!(peeked.limiter().asynchronous().admin().keys(), unpeeked.limiter().asynchronous().admin().keys());
        }
    }

    #[test]
    fn peek_predicts_the_check(
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
    fn exactly_the_remaining_units_can_be_spent(
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

fn costs() -> impl Strategy<Value = Cost> {
    prop_oneof![3 => cost(), 1 => (1_000_u64..=8_000).prop_map(Cost::Part)]
}

proptest! {
    #[test]
    fn take_takes_at_most_the_remaining_units(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 0..=12), cost in costs(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let (view, cost) = (session.view(), cost.of(&policy));
        let usage = session.adjust(Operation::Take, cost);
        prop_assert_eq!(usage.taken(), cost.min(view.remaining()));
        for (was, is) in view.quotas().iter().zip(usage.quotas()) {
            prop_assert_eq!(is.remaining, was.remaining - usage.taken());
        }
    }

    #[test]
    fn charge_spends_beyond_what_remains(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 0..=12), cost in costs(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let (view, cost) = (session.view(), cost.of(&policy));
        let usage = session.adjust(Operation::Charge, cost);
        prop_assert_eq!(usage.taken(), 0);
        for (was, is) in view.quotas().iter().zip(usage.quotas()) {
            prop_assert_eq!(is.remaining, was.remaining.saturating_sub(cost));
        }
    }

    #[test]
    fn refund_undoes_a_charge(
        policy in policy(), start_us in start_us(), steps in steps(forward(), 0..=12), cost in costs(),
        after in steps(any_move(), 1..=6),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let cost = cost.of(&policy);
        // Where nothing remains, how much is used beyond the capacity cannot be seen, nor whether a charge saturates.
        let saturates = policy.quotas().iter().zip(session.view().quotas()).any(|(quota, view)| {
            quota.limit() > 0 && (view.remaining == 0 || cost > view.remaining + 7 * quota.capacity())
        });
        if saturates {
            return Ok(());
        }
        let mut untouched = session.twin();
        untouched.forbid_earlier_times();
        session.adjust(Operation::Charge, cost);
        session.adjust(Operation::Refund, cost);
        prop_assert_eq!(session.view(), untouched.view());
        for step in after {
            let (done, answer) = untouched.step(step);
            prop_assert_eq!(session.repeat(done), answer);
        }
    }

    #[test]
    fn refund_returns_at_most_the_used_units(
        policy in policy(), start_us in start_us(), steps in steps(any_move(), 1..=12), cost in costs(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&steps);
        let (view, cost) = (session.view(), cost.of(&policy));
        let usage = session.adjust(Operation::Refund, cost);
        for ((was, is), quota) in view.quotas().iter().zip(usage.quotas()).zip(policy.quotas()) {
            prop_assert!(is.remaining >= was.remaining);
            prop_assert!(is.remaining <= quota.capacity().min(was.remaining + cost));
        }
        // At most 61 sub-windows, each with at most 8 times the limit, which is at most the largest cost.
        for _ in 0..61 * 8 {
            if session.view().reset_after_us() == 0 {
                break;
            }
            session.adjust(Operation::Refund, polylimit::Request::MAX_COST);
        }
        prop_assert_eq!(session.view(), session.unseen().view());
    }

    #[test]
    fn reset_removes_the_state(
        policy in policy(), start_us in start_us(),
        before in steps(any_move(), 1..=12), after in steps(any_move(), 1..=8),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&before);
        let usage = session.adjust(Operation::Reset, 0);
        prop_assert_eq!((usage.remaining(), usage.reset_after_us()), (capacity(&policy), 0));
        prop_assert_eq!(session.limiter().asynchronous().admin().keys(), Some(0));
        let mut unseen = session.unseen();
        for step in after {
            let (done, answer) = session.step(step);
            prop_assert_eq!(answer, unseen.repeat(done));
        }
    }
}

proptest! {
    #[test]
    fn denied_check_spends_only_where_denied_requests_count(
        policy in policy_of_several(), start_us in start_us(),
        before in steps(forward(), 1..=12), cost in cost(), after in steps(any_move(), 1..=8),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&before);
        let mut silent = session.twin();
        let cost = cost.of(&policy);
        let (view, keys) = (session.view(), session.limiter().asynchronous().admin().keys());
        let cost = if session.peek(cost).allowed() { view.remaining() + 1 } else { cost };
        if cost > Request::MAX_COST {
            return Ok(());
        }
        let denied = session.check(cost);
        prop_assert!(!denied.allowed());
        let mut changed = false;
        for (at, quota) in policy.quotas().iter().enumerate() {
            let (was, is) = (view.quotas()[at], denied.quotas()[at]);
            if quota.count_denied() && cost <= capacity(&policy) {
                prop_assert_eq!(is.remaining, was.remaining.saturating_sub(cost));
                changed = true;
            } else {
                prop_assert_eq!(is, was);
            }
        }
        let now = session.view();
        prop_assert_eq!(denied.quotas(), now.quotas());
        if changed {
            return Ok(());
        }
        prop_assert_eq!(session.limiter().asynchronous().admin().keys(), keys);
        for step in after {
            let (done, answer) = session.step(step);
            prop_assert_eq!(answer, silent.repeat(done), "the denied request has changed the state");
        }
    }

    #[test]
    fn admitted_check_spends_from_every_quota(
        policy in policy_of_several(), start_us in start_us(),
        before in steps(any_move(), 0..=12), cost in cost(),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&before);
        let view = session.view();
        let cost = cost.of(&policy).min(view.remaining());
        let admitted = session.check(cost);
        for (was, is) in view.quotas().iter().zip(admitted.quotas()) {
            prop_assert_eq!(is.remaining, was.remaining - cost);
        }
        let least = admitted.quotas().iter().map(|view| view.remaining).min().unwrap();
        prop_assert_eq!(admitted.remaining(), least);
        let longest_us = admitted.quotas().iter().map(|view| view.reset_after_us).max().unwrap();
        prop_assert_eq!(admitted.reset_after_us(), longest_us);
    }
}
