//! What taking, charging, refunding and resetting do to what remains.

use proptest::prelude::*;

use super::quotas::{capacity, policy};
use super::session::Session;
use super::steps::{Cost, Operation, any_move, cost, forward, start_us, steps};

fn costs() -> impl Strategy<Value = Cost> {
    prop_oneof![3 => cost(), 1 => (1_000_u64..=8_000).prop_map(Cost::Part)]
}

proptest! {
    #[test]
    fn a_take_takes_what_there_is(
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
    fn a_charge_spends_whether_it_fits_or_not(
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
    fn a_refund_undoes_a_charge(
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
        untouched.no_way_back();
        session.adjust(Operation::Charge, cost);
        session.adjust(Operation::Refund, cost);
        prop_assert_eq!(session.view(), untouched.view());
        for step in after {
            let (done, answer) = untouched.step(step);
            prop_assert_eq!(session.repeat(done), answer);
        }
    }

    #[test]
    fn a_refund_gives_back_no_more_than_is_used(
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
    fn a_reset_forgets(
        policy in policy(), start_us in start_us(),
        before in steps(any_move(), 1..=12), after in steps(any_move(), 1..=8),
    ) {
        let mut session = Session::new(&policy, start_us);
        session.run(&before);
        let usage = session.adjust(Operation::Reset, 0);
        prop_assert_eq!((usage.remaining(), usage.reset_after_us()), (capacity(&policy), 0));
        prop_assert_eq!(session.limiter().asynchronous().keys(), Some(0));
        let mut unseen = session.unseen();
        for step in after {
            let (done, answer) = session.step(step);
            prop_assert_eq!(answer, unseen.repeat(done));
        }
    }
}
