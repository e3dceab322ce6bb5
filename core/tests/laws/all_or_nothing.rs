//! A policy that is denied by one quota spends from none.

use polylimit::Request;
use proptest::prelude::*;

use super::quotas::{capacity, policy_of_several};
use super::session::Session;
use super::steps::{any_move, cost, forward, start_us, steps};

proptest! {
    #[test]
    fn a_denial_spends_nothing_but_where_denials_count(
        policy in policy_of_several(), start_us in start_us(),
        before in steps(forward(), 1..=12), cost in cost(), after in steps(any_move(), 1..=8),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&before);
        let mut silent = session.twin();
        let cost = cost.of(&policy);
        let (view, keys) = (session.view(), session.limiter().asynchronous().keys());
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
        prop_assert_eq!(session.limiter().asynchronous().keys(), keys);
        for step in after {
            let (done, answer) = session.step(step);
            prop_assert_eq!(answer, silent.repeat(done), "it was remembered that something was denied");
        }
    }

    #[test]
    fn an_admission_spends_from_every_quota(
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
