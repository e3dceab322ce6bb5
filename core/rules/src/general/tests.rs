//! What the conformance cases do not say: clocks that go back, how long states live, and that every way to a decision gives the same.

use std::sync::Arc;

use super::*;
use crate::algorithm::Rules;
use crate::codec::States;
use crate::decision::{Cause, Decision};
use crate::groups::{Group, GroupTable};
use crate::penalty::Penalty;
use crate::policy::Policy;
use crate::reservation::id::ReservationId;
use crate::transition::Applied;

const NOW_US: u64 = 1_790_000_000_000_000;
const SECOND: u64 = 1_000_000;

/// A policy without groups of each kind, all with a capacity of 10 and a period of 10 s.
const QUOTAS: [&str; 9] = [
    "10/10s token_bucket",
    "10/10s leaky_bucket burst=10",
    "10/10s token_bucket step=5",
    "10/10s fixed_window",
    "10/10s fixed_window aligned",
    "10/10s",
    "10/10s sliding_log",
    "10/10s token_bucket; 10/10s sliding_log",
    "10/10s fixed_window; 10/10s; 3 concurrent",
];

struct Key {
    rules: PolicyRules,
    states: States,
}

impl Key {
    fn of_policy(policy: &Policy) -> Self {
        let states = policy.quotas().iter().map(State::fresh).collect();
        Self { rules: PolicyRules::new(policy), states }
    }

    fn of(quotas: &str) -> Self {
        Self::of_policy(&Policy::parse("p", quotas).unwrap())
    }

    fn ask(&mut self, operation: Operation, cost: u64, now_us: u64) -> (Decision, Applied) {
        let request = KeyOperation { now_us, operation, cost, headroom: 0, hold: None };
        self.rules.decide(&mut self.states, request, None)
    }

    fn ask_for(&mut self, operation: Operation, cost: u64, now_us: u64, hold: &Hold) -> (Decision, Applied) {
        let request = KeyOperation { now_us, operation, cost, headroom: 0, hold: Some(hold) };
        self.rules.decide(&mut self.states, request, None)
    }

    fn shown(&self) -> String {
        format!("{:?}", self.states)
    }

    fn left(&self, now_us: u64) -> u64 {
        self.rules.view(&self.states, now_us).remaining()
    }
}

fn hold(id: &str, ttl_us: u64) -> Hold {
    Hold { id: ReservationId::new(id).unwrap(), ttl_us, remember_us: 0 }
}

fn penalized(quotas: &str) -> Policy {
    let (denials, within_us, block_us) = (2, 60 * SECOND, 5 * SECOND);
    let penalty = Penalty { denials, within_us, block_us, max_us: 60 * SECOND, forget_us: 30 * SECOND };
    Policy::parse("p", quotas).unwrap().with_penalty(Some(penalty))
}

fn grouped(quotas: &str) -> Policy {
    let group = |name: &str, weight, minimum| Group { name: name.into(), weight, minimum, maximum: 100 };
    let table = Arc::new(GroupTable::new([group("a", 2, 30), group("b", 3, 20)]).unwrap());
    Policy::parse("p", quotas).unwrap().with_groups(Some(&table)).unwrap()
}

fn in_group(policy: &Policy, name: &str) -> PolicyRules {
    let groups = policy.groups().unwrap().of(Some(name));
    PolicyRules::new(&policy.clone().shared_by(&groups).unwrap())
}

/// A denial writes what the clock moves back, and nothing else.
#[test]
fn denial_is_written_only_where_the_clock_went_back() {
    let grouped_quotas = ["10/10s token_bucket", "10 concurrent; 10/10s token_bucket"];
    let keys =
        QUOTAS.map(Key::of).into_iter().chain(grouped_quotas.map(|quotas| Key::of_policy(&grouped(quotas))));
    for mut key in keys {
        let _ = key.ask(Operation::Charge, 10, NOW_US);
        let before = key.shown();
        for (operation, cost) in [(Operation::Check, 11), (Operation::Take, 1), (Operation::Charge, 0)] {
            let (_, applied) = key.ask(operation, cost, NOW_US);
            assert!(!applied.written && key.shown() == before, "{operation:?} {before}");
        }
        // A claim of a group is written at its first denial.
        let (decision, applied) = key.ask(Operation::Check, 1, NOW_US);
        assert!(!decision.allowed && (!applied.written || key.rules.groups.is_some()), "{before}");
        let before = key.shown();
        let (decision, _) = key.ask(Operation::Peek, 1, NOW_US - 3 * SECOND);
        assert!(!decision.allowed && key.shown() == before, "{before}");
        let (_, applied) = key.ask(Operation::Check, 11, NOW_US - 3 * SECOND);
        let is_frozen = key.shown() == before;
        assert_eq!(applied.written, !is_frozen, "{before}");
        // By the clock that went back it is as full as before, and once the state was moved it is so for no longer.
        assert_eq!(key.left(NOW_US - 3 * SECOND), 0, "{before}");
        let (_, applied) = key.ask(Operation::Check, 11, NOW_US - 3 * SECOND);
        assert!(!applied.written, "{before}");
    }
}

/// Units that are used stay used for as long as they would have been, from the time to which the clock went back.
#[test]
fn clock_that_goes_back_refills_nothing_and_loses_nothing() {
    for quotas in QUOTAS {
        for back_us in [1, SECOND, 4 * SECOND, 25 * SECOND] {
            let mut key = Key::of(quotas);
            let _ = key.ask(Operation::Check, 4, NOW_US - 2 * SECOND);
            let _ = key.ask(Operation::Check, 3, NOW_US);
            let left = key.left(NOW_US);
            let back = NOW_US - back_us;
            assert!(key.left(back) <= left, "{quotas} {back_us}");
            let most = key.left(back);
            // A charge of nothing moves the state.
            let (_, applied) = key.ask(Operation::Charge, 0, back);
            assert_eq!(key.left(back), most, "{quotas} {back_us}");
            let (_, again) = key.ask(Operation::Charge, 0, back);
            assert!(!again.written, "{quotas} {back_us} {applied:?}");
            let view = key.rules.view(&key.states, back);
            assert!(view.reset_after_us() <= 20 * SECOND, "{quotas} {back_us} {view:?}");
            assert_eq!(key.left(back + view.reset_after_us()), 10, "{quotas} {back_us}");
        }
    }
}

/// The general transition decides what the short ways decide.
#[test]
fn every_way_gives_the_same_decision() {
    for quotas in QUOTAS {
        for cost in [0, 1, 3, 10, 11] {
            let mut key = Key::of(quotas);
            for step in 0..24 {
                let now_us = NOW_US + step * 700_000 - (step % 5) * 900_000;
                let operation = [
                    Operation::Check,
                    Operation::Peek,
                    Operation::Take,
                    Operation::Charge,
                    Operation::Refund,
                ];
                let operation = operation[usize::try_from(step % 5).unwrap()];
                let request = KeyOperation { now_us, operation, cost, headroom: 0, hold: None };
                let mut other = key.states.clone();
                let general = key.rules.decide_general(&mut other, request, None);
                let short = key.ask(operation, cost, now_us);
                assert_eq!(general, short, "{quotas} {request:?}");
                assert_eq!(key.shown(), format!("{other:?}"), "{quotas} {request:?}");
                let view = key.rules.view(&key.states, now_us);
                assert_eq!(view, key.rules.view_general(&key.states, now_us), "{quotas} {request:?}");
                assert_eq!(short.0.quotas().len(), key.rules.quotas.len());
                let is_single = key.rules.quotas.len() == 1;
                assert_eq!(short.0.several.is_none(), is_single, "{quotas} {request:?}");
            }
        }
    }
}

#[test]
fn headroom_is_left_for_others() {
    for quotas in QUOTAS {
        for headroom in [1, 20, 99] {
            let mut key = Key::of(quotas);
            let kept = 10_u64 * u64::from(headroom);
            let kept = kept.div_ceil(100);
            for cost in 1..=10 {
                let request =
                    |operation| KeyOperation { now_us: NOW_US, operation, cost, headroom, hold: None };
                let (peeked, _) = key.rules.decide(&mut key.states, request(Operation::Peek), None);
                assert_eq!(peeked.allowed, cost + kept <= 10, "{quotas} {headroom} {cost}");
                let mut states = key.states.clone();
                assert_eq!(
                    key.rules.decide(&mut states, request(Operation::Check), None).0.allowed,
                    peeked.allowed
                );
                let mut states = key.states.clone();
                let applied = key.rules.apply_alone(&mut states, request(Operation::Check));
                assert_eq!(
                    (applied.allowed, applied.spent),
                    (peeked.allowed, if peeked.allowed { cost } else { 0 })
                );
            }
        }
    }
}

#[test]
fn denial_and_admission_say_what_each_quota_does() {
    let mut key = Key::of("4/10s fixed_window excess=2; 10/10s token_bucket");
    assert!(!key.ask(Operation::Check, 4, NOW_US).0.crossed());
    let (decision, _) = key.ask(Operation::Check, 2, NOW_US);
    assert!(decision.allowed() && decision.crossed() && decision.over() == 2);
    let (decision, _) = key.ask(Operation::Check, 1, NOW_US);
    let verdicts: Vec<bool> = decision.verdicts().map(|verdict| verdict.allowed).collect();
    assert!(!decision.allowed() && !decision.crossed());
    assert_eq!((verdicts, decision.quotas().len()), (vec![false, true], 2));
    let (decision, _) = key.ask(Operation::Check, 20, NOW_US);
    assert_eq!(
        (decision.retry_after_us(), decision.waits_us().as_slice()),
        (None, &[Decision::NEVER; 2][..])
    );
}

#[test]
fn states_live_as_long_as_they_say_something() {
    let expiry = |key: &Key, now_us: u64| {
        let expiry = key.rules.expiry(&key.states, now_us);
        (expiry.after_us, expiry.when_full_us)
    };
    // A block lasts 5 s, and its level counts for 30 s after it.
    let mut key = Key::of_policy(&penalized("2/hour fixed_window"));
    let _ = key.ask(Operation::Charge, 2, NOW_US);
    let resets_us = key.rules.view(&key.states, NOW_US).reset_after_us();
    assert_eq!(expiry(&key, NOW_US), (resets_us, resets_us));
    assert_eq!(key.ask(Operation::Check, 1, NOW_US).0.cause, Some(Cause::Quota));
    assert_eq!(key.ask(Operation::Check, 1, NOW_US).0.cause, Some(Cause::Blocked));
    let mut blocked = Key::of_policy(&penalized("2/s fixed_window"));
    blocked.states.extend(key.states.iter().skip(1).cloned());
    assert_eq!(expiry(&blocked, NOW_US), (35 * SECOND, 5 * SECOND));
    assert_eq!(expiry(&blocked, NOW_US + 6 * SECOND), (29 * SECOND, 0));
    let view = blocked.rules.view(&blocked.states, NOW_US);
    assert_eq!((view.remaining(), view.reset_after_us()), (blocked.left(NOW_US), 5 * SECOND));
    // Denials that are counted, before there is a block.
    let mut counted = Key::of_policy(&penalized("2/s fixed_window"));
    let _ = counted.ask(Operation::Charge, 2, NOW_US);
    let _ = counted.ask(Operation::Check, 1, NOW_US);
    assert_eq!(expiry(&counted, NOW_US).0, 60 * SECOND);
    // A commit that is remembered.
    let mut key = Key::of("10/s token_bucket");
    let reserve = Hold { remember_us: 40 * SECOND, ..hold("r", 2 * SECOND) };
    let _ = key.ask_for(Operation::Reserve, 5, NOW_US, &reserve);
    let end = Hold::of_end(reserve.id);
    assert!(key.ask_for(Operation::Commit, 5, NOW_US, &end).0.allowed);
    assert_eq!(expiry(&key, NOW_US), (40 * SECOND, 500_000));
    assert_eq!(expiry(&key, NOW_US + SECOND), (39 * SECOND, 0));
    // The claim of a group that waits.
    let policy = grouped("10/s token_bucket");
    let mut key = Key::of_policy(&policy);
    let _ = key.ask(Operation::Charge, 10, NOW_US);
    assert!(!key.ask(Operation::Check, 1, NOW_US).0.allowed);
    let State::Grouped(state) = &key.states[0] else { panic!("{:?}", key.states) };
    let claim_us = state.claims_end_after_us(NOW_US);
    assert!(claim_us > SECOND, "{claim_us}");
    assert_eq!(expiry(&key, NOW_US).0, claim_us);
    assert_eq!(expiry(&key, NOW_US + 1).0, claim_us - 1);
}

#[test]
fn what_is_empty_is_dropped() {
    let mut key = Key::of("10/s token_bucket; 2 concurrent");
    let first = hold("a", 10 * SECOND);
    assert!(key.ask_for(Operation::Reserve, 1, NOW_US, &first).0.allowed && key.states.len() == 3);
    let _ = key.ask_for(Operation::Cancel, 0, NOW_US, &Hold::of_end(first.id));
    assert_eq!(key.states.len(), 2);
    let mut key = Key::of_policy(&penalized("2/s fixed_window"));
    let block = Hold::of_block(5 * SECOND);
    let _ = key.ask_for(Operation::Block, 0, NOW_US, &block);
    assert_eq!((key.states.len(), key.ask(Operation::Check, 1, NOW_US).0.cause), (2, Some(Cause::Blocked)));
    let _ = key.ask_for(Operation::Block, 0, NOW_US, &Hold::of_block(0));
    assert_eq!(key.states.len(), 1);
    // A shorter block changes nothing, and is not written.
    let (_, applied) = key.ask_for(Operation::Block, 0, NOW_US, &block);
    assert!(applied.written);
    let (_, applied) = key.ask_for(Operation::Block, 0, NOW_US, &block);
    assert!(!applied.written);
    let (_, applied) = key.ask_for(Operation::Block, 0, NOW_US, &Hold::of_block(SECOND));
    assert!(!applied.written);
    let (_, applied) = key.ask_for(Operation::Block, 0, NOW_US, &Hold::of_block(6 * SECOND));
    assert!(applied.written);
    let (_, applied) = key.ask_for(Operation::Block, 0, NOW_US + 2 * SECOND, &Hold::of_block(4 * SECOND));
    assert!(!applied.written);
    // A block by hand has no level that would be remembered.
    assert_eq!(key.rules.expiry(&key.states, NOW_US).after_us, 6 * SECOND);
}

#[test]
fn reserve_with_the_id_of_a_commit_needs_no_units_in_a_denied_request() {
    let mut key = Key::of("2/hour token_bucket; 1 concurrent");
    let reserve = Hold { remember_us: 3_600 * SECOND, ..hold("r", 10 * SECOND) };
    assert!(key.ask_for(Operation::Reserve, 2, NOW_US, &reserve).0.allowed);
    assert!(key.ask_for(Operation::Commit, 2, NOW_US, &Hold::of_end(reserve.id)).0.allowed);
    let operation = KeyOperation {
        now_us: NOW_US,
        operation: Operation::Reserve,
        cost: 2,
        headroom: 0,
        hold: Some(&reserve),
    };
    let before = key.shown();
    assert!(key.rules.would_admit(&mut key.states, operation));
    let view = key.rules.view_admitted(&mut key.states, operation, None);
    assert!(view.allowed && !view.repeated, "{view:?}");
    let slot = KeyOperation { cost: 0, ..operation }.as_peek();
    assert_eq!(view, key.rules.decide(&mut key.states.clone(), slot, None).0);
    // Another id needs them.
    let other = hold("s", 10 * SECOND);
    assert!(!key.rules.would_admit(&mut key.states, KeyOperation { hold: Some(&other), ..operation }));
    assert_eq!(key.shown(), before);
    // One that is there needs no slot either.
    assert!(key.ask_for(Operation::Reserve, 2, NOW_US, &reserve).0.allowed);
    let view = key.rules.view_admitted(&mut key.states, operation, None);
    assert!(view.allowed, "{view:?}");
}

/// Groups whose table or quota was changed, and clocks that go back.
#[test]
fn groups_keep_what_they_use_when_their_numbers_change() {
    let policy = grouped("100/10s token_bucket");
    let mut key = Key::of_policy(&policy);
    let (a, b) = (in_group(&policy, "a"), in_group(&policy, "b"));
    let ask = |key: &mut Key, rules: &PolicyRules, operation, cost, now_us| {
        let request = KeyOperation { now_us, operation, cost, headroom: 0, hold: None };
        rules.decide(&mut key.states, request, None)
    };
    let left = |key: &Key, rules: &PolicyRules, now_us: u64| rules.view(&key.states, now_us).remaining();
    // Of 100 units 15 are a's own, 10 are b's, and 75 are lent.
    assert_eq!((left(&key, &a, NOW_US), left(&key, &b, NOW_US)), (90, 85));
    let _ = ask(&mut key, &a, Operation::Check, 40, NOW_US);
    let _ = ask(&mut key, &b, Operation::Check, 10, NOW_US);
    assert_eq!((left(&key, &a, NOW_US), left(&key, &b, NOW_US)), (50, 50));
    // By a clock that went back nothing is refilled.
    let back = NOW_US - 5 * SECOND;
    assert_eq!((left(&key, &a, back), left(&key, &b, back)), (50, 50));
    let mut moved = Key { rules: a.clone(), states: key.states.clone() };
    assert!(ask(&mut moved, &a, Operation::Charge, 0, back).1.written);
    assert!(!ask(&mut moved, &a, Operation::Charge, 0, back).1.written);
    assert_eq!((left(&moved, &a, back), left(&moved, &b, back)), (50, 50));
    // Without groups in the table, all that was used is borrowed from what is lent.
    let other = |groups: Vec<Group>| {
        let table = Arc::new(GroupTable::new(groups).unwrap());
        let policy = Policy::parse("p", "100/10s token_bucket").unwrap().with_groups(Some(&table)).unwrap();
        PolicyRules::new(&policy)
    };
    let idle = other(vec![]);
    assert_eq!(left(&key, &idle, NOW_US), 50);
    assert_eq!(left(&key, &idle, NOW_US + SECOND), 60);
    // One group has lost its minimum, the other has kept it.
    let one = other(vec![Group { name: "b".into(), weight: 1, minimum: 20, maximum: 100 }]);
    assert_eq!(left(&key, &one, NOW_US), 50);
    // A quota of another limit counts the same units.
    let larger = PolicyRules::new(&grouped("200/10s token_bucket"));
    assert!(left(&key, &larger, NOW_US) > 80, "{}", left(&key, &larger, NOW_US));
    // The room beyond the capacity.
    let quota = &a.quotas[0];
    assert_eq!(quota.rules.room(&key.states[0], NOW_US), 800 - 25);
    assert_eq!(a.groups.as_ref().unwrap().table.others(), 2);
}

#[test]
fn slots_of_groups_are_claimed_for_a_time() {
    let policy = grouped("10 concurrent");
    let mut key = Key::of_policy(&policy);
    let (a, b) = (in_group(&policy, "a"), in_group(&policy, "b"));
    let reserve = |key: &mut Key, rules: &PolicyRules, id: &str, now_us| {
        let hold = hold(id, 3_600 * SECOND);
        let request =
            KeyOperation { now_us, operation: Operation::Reserve, cost: 0, headroom: 0, hold: Some(&hold) };
        rules.decide(&mut key.states, request, None)
    };
    // What is not kept for b is a's.
    let most = a.grouped_slots().unwrap().capacity();
    for at in 0..most {
        assert!(reserve(&mut key, &a, &format!("a{at}"), NOW_US).0.allowed, "{at}");
    }
    let (denied, applied) = reserve(&mut key, &a, "late", NOW_US);
    assert!(!denied.allowed && applied.written && denied.cause == Some(Cause::Concurrency));
    let state = |key: &Key| match &key.states[0] {
        State::Grouped(state) => (**state).clone(),
        other => panic!("{other:?}"),
    };
    assert!(!state(&key).holds_nothing());
    let claim_us = state(&key).claims_end_after_us(NOW_US);
    assert!(claim_us > 0);
    // By a clock that went back the claim lasts no longer than it was made for.
    let back = NOW_US - 20 * SECOND;
    let mut moved = Key { rules: a.clone(), states: key.states.clone() };
    assert!(!moved.ask(Operation::Charge, 0, NOW_US).1.written);
    assert!(moved.ask(Operation::Charge, 0, NOW_US - 1).1.written);
    assert!(
        moved.ask(Operation::Charge, 0, back).1.written && !moved.ask(Operation::Charge, 0, back).1.written
    );
    assert_eq!(state(&moved).claims_end_after_us(back), claim_us);
    // The claim of a group that is gone is forgotten with the next one.
    let table = Arc::new(
        GroupTable::new([Group { name: "b".into(), weight: 1, minimum: 20, maximum: 100 }]).unwrap(),
    );
    let others = Policy::parse("p", "10 concurrent").unwrap().with_groups(Some(&table)).unwrap();
    let mut gone = Key { rules: PolicyRules::new(&others), states: key.states.clone() };
    let own = gone.rules.clone();
    assert!(
        !reserve(&mut gone, &own, "other", NOW_US).0.allowed
            && !reserve(&mut gone, &own, "next", NOW_US).0.allowed
    );
    assert_eq!(state(&gone).parts.len(), 1);
    for at in most..10 {
        assert!(reserve(&mut key, &b, &format!("b{at}"), back).0.allowed, "{at}");
        assert_eq!(state(&key).claims_end_after_us(back), claim_us);
    }
    assert!(!reserve(&mut key, &b, "late", back).0.allowed);
    // When it has ended, it is forgotten with the next change.
    let later = back + claim_us;
    let cancel = Hold::of_end(ReservationId::new("a0").unwrap());
    let request = KeyOperation {
        now_us: later,
        operation: Operation::Cancel,
        cost: 0,
        headroom: 0,
        hold: Some(&cancel),
    };
    assert!(a.decide(&mut key.states, request, None).0.allowed);
    assert!(state(&key).parts.is_empty(), "{:?}", state(&key));
}

#[test]
fn inspection_says_what_each_quota_counts() {
    let mut key = Key::of("10/10s token_bucket; 3 concurrent; 0/s");
    key.rules = PolicyRules::new(
        &Policy::parse("p", "10/10s token_bucket; 3 concurrent; 20/10s fixed_window").unwrap(),
    );
    key.states[2] = State::fresh(&"20/10s fixed_window".parse().unwrap());
    for (id, ttl) in [("a", 5), ("b", 2), ("c", 7)] {
        assert!(key.ask_for(Operation::Reserve, 2, NOW_US, &hold(id, ttl * SECOND)).0.allowed);
    }
    let _ = key.ask(Operation::Charge, 1, NOW_US);
    let inspection = key.rules.inspect(&key.states, NOW_US, 1, 0);
    let used: Vec<u64> = inspection.quotas.iter().map(|quota| quota.used).collect();
    assert_eq!(used, [1, 3, 1]);
    let waits: Vec<Option<u64>> = inspection.quotas.iter().map(|quota| quota.retry_after_us).collect();
    assert_eq!(waits, [Some(0), Some(2 * SECOND), Some(0)]);
    let admits: Vec<bool> = inspection.quotas.iter().map(|quota| quota.admits).collect();
    assert_eq!(admits, [true, false, true]);
    assert_eq!((inspection.allowed, inspection.cause), (false, Some(Cause::Concurrency)));
    assert_eq!((inspection.held.units, inspection.held.alive), (6, 3));
    assert_eq!(inspection.reservations_end_after_us, 7 * SECOND);
    // With headroom a slot is kept, and so is free later.
    let waits = key.rules.inspect(&key.states, NOW_US, 1, 34).quotas[1].retry_after_us;
    assert_eq!(waits, Some(7 * SECOND));
    assert_eq!(key.rules.inspect(&key.states, NOW_US, 11, 0).quotas[0].retry_after_us, None);

    let mut key = Key::of_policy(&penalized("2/hour fixed_window"));
    let inspection = key.rules.inspect(&key.states, NOW_US, 1, 0);
    assert_eq!((inspection.blocked_for_us, inspection.expires_after_us), (0, Some(0)));
    let _ = key.ask(Operation::Charge, 2, NOW_US);
    let _ = key.ask(Operation::Check, 1, NOW_US);
    assert_eq!(key.rules.inspect(&key.states, NOW_US, 1, 0).record.count, 1);
    let _ = key.ask(Operation::Check, 1, NOW_US);
    let inspection = key.rules.inspect(&key.states, NOW_US + SECOND, 1, 0);
    assert_eq!((inspection.blocked_for_us, inspection.cause), (4 * SECOND, Some(Cause::Blocked)));
    // What no longer counts is forgotten.
    assert_eq!(key.rules.inspect(&key.states, NOW_US + 40 * SECOND, 1, 0).record.level, 0);

    let policy = grouped("100/10s token_bucket");
    let mut key = Key::of_policy(&policy);
    let _ = key.ask(Operation::Charge, 40, NOW_US);
    assert_eq!(key.rules.inspect(&key.states, NOW_US, 1, 0).quotas[0].used, 40);
    assert_eq!(key.rules.inspect(&key.states, NOW_US + SECOND, 1, 0).quotas[0].used, 30);
}

#[test]
fn penalty_counts_denials_by_quotas_only() {
    let mut key = Key::of_policy(&penalized("2/hour fixed_window; 1 concurrent"));
    let count = |key: &Key| key.rules.inspect(&key.states, NOW_US, 0, 0).record.count;
    let reserve = |key: &mut Key, id: &str, cost| {
        key.ask_for(Operation::Reserve, cost, NOW_US, &hold(id, 3_600 * SECOND))
    };
    assert!(reserve(&mut key, "a", 1).0.allowed);
    let (denied, _) = reserve(&mut key, "b", 1);
    assert_eq!((denied.cause, count(&key)), (Some(Cause::Concurrency), 0));
    // What can never be admitted is not counted, and neither is a peek.
    let (denied, _) = key.ask(Operation::Check, 3, NOW_US);
    assert_eq!((denied.cause, count(&key)), (Some(Cause::Quota), 0));
    let (denied, _) = key.ask(Operation::Peek, 2, NOW_US);
    assert_eq!((denied.cause, count(&key)), (Some(Cause::Quota), 0));
    let (denied, applied) = key.ask(Operation::Check, 2, NOW_US);
    assert_eq!((denied.cause, count(&key), applied.written), (Some(Cause::Quota), 1, true));
    let (denied, _) = key.ask(Operation::Check, 2, NOW_US);
    assert_eq!(denied.cause, Some(Cause::Blocked));
    // A blocked key takes nothing, and its denials do not count.
    let (taken, applied) = key.ask(Operation::Take, 1, NOW_US + SECOND);
    assert!(taken.allowed && applied.spent == 0);
    let (denied, applied) = key.ask(Operation::Check, 1, NOW_US + SECOND);
    assert_eq!((denied.cause, applied.written), (Some(Cause::Blocked), false));
    assert_eq!(key.ask(Operation::Peek, 1, NOW_US + SECOND).0.cause, Some(Cause::Blocked));
    // Nothing blocks a request that costs nothing.
    assert!(key.ask(Operation::Check, 0, NOW_US + SECOND).0.allowed);
    // The block ends after 5 s.
    assert_eq!(key.ask(Operation::Peek, 1, NOW_US + 5 * SECOND - 1).0.cause, Some(Cause::Blocked));
    let waits = key.ask(Operation::Check, 1, NOW_US + 2 * SECOND).0;
    assert_eq!(waits.retry_after_us(), Some(3 * SECOND));
    // A peek asks for a slot as well.
    assert_eq!(key.ask(Operation::Peek, 1, NOW_US + 5 * SECOND).0.cause, Some(Cause::Concurrency));
    assert!(key.ask(Operation::Check, 1, NOW_US + 5 * SECOND).0.allowed);
}

#[test]
fn repeated_reserve_and_commit_say_so() {
    let mut key = Key::of("10/hour token_bucket");
    let reserve = Hold { remember_us: 60 * SECOND, ..hold("r", 10 * SECOND) };
    let first = key.ask_for(Operation::Reserve, 4, NOW_US, &reserve).0;
    assert!(first.allowed && !first.repeated && first.remaining() == 6);
    let again = key.ask_for(Operation::Reserve, 4, NOW_US, &reserve).0;
    assert!(again.allowed && again.repeated && again.remaining() == 6);
    let end = Hold::of_end(reserve.id);
    let commit = key.ask_for(Operation::Commit, 4, NOW_US, &end).0;
    assert!(commit.allowed && !commit.repeated && commit.remaining() == 6);
    let commit = key.ask_for(Operation::Commit, 4, NOW_US, &end).0;
    assert!(!commit.allowed && commit.repeated && commit.remaining() == 6);
    // A reserve with the id charges nothing, nor does its commit.
    assert!(key.ask_for(Operation::Reserve, 9, NOW_US, &reserve).0.allowed && key.left(NOW_US) == 6);
    let commit = key.ask_for(Operation::Commit, 9, NOW_US, &end).0;
    assert!(commit.allowed && commit.repeated && commit.remaining() == 6);
    // After its time the id is forgotten.
    let commit = key.ask_for(Operation::Commit, 4, NOW_US + 60 * SECOND, &end).0;
    assert!(!commit.allowed && !commit.repeated);
    // One that asks for no memory is forgotten at once.
    let plain = hold("p", 10 * SECOND);
    assert!(key.ask_for(Operation::Reserve, 1, NOW_US, &plain).0.allowed);
    let end = Hold::of_end(plain.id);
    assert!(key.ask_for(Operation::Commit, 1, NOW_US, &end).0.allowed);
    let commit = key.ask_for(Operation::Commit, 1, NOW_US, &end).0;
    assert!(!commit.allowed && !commit.repeated);
}

#[test]
fn crossing_a_limit_is_said_of_the_request_that_does() {
    let mut key = Key::of("4/hour fixed_window excess=4; 1 concurrent");
    let reserve = |key: &mut Key, id: &str, cost| {
        let decision = key.ask_for(Operation::Reserve, cost, NOW_US, &hold(id, 10 * SECOND)).0;
        let _ = key.ask_for(Operation::Cancel, 0, NOW_US, &hold(id, 0));
        (decision.crossed(), decision.over())
    };
    assert_eq!(reserve(&mut key, "a", 4), (false, 0));
    assert_eq!(reserve(&mut key, "b", 5), (true, 1));
    let mut check = |cost| {
        let decision = key.ask(Operation::Check, cost, NOW_US).0;
        (decision.crossed(), decision.over())
    };
    assert_eq!((check(3), check(2), check(1)), ((false, 0), (true, 1), (false, 2)));
}

/// Numbers that are changed while units are in use.
#[test]
fn bucket_of_other_numbers_takes_as_long_to_repay() {
    for (before, after) in [
        ("10/10s token_bucket", "30/10s token_bucket"),
        ("7/9s token_bucket", "30/9s token_bucket"),
        ("30/9s token_bucket", "7/9s token_bucket"),
        ("1000000/52w token_bucket", "999983/52w token_bucket"),
        ("999983/52w token_bucket", "7/52w token_bucket"),
        ("10/10s leaky_bucket burst=10", "4/10s leaky_bucket burst=9"),
    ] {
        let mut key = Key::of(before);
        let _ = key.ask(Operation::Charge, 5, NOW_US);
        let resets_us = key.rules.view(&key.states, NOW_US).reset_after_us();
        let mut other = Key::of(after);
        other.states = key.states.clone();
        let converted_us = other.rules.view(&other.states, NOW_US).reset_after_us();
        // Rounded up to a tick of either.
        assert!(
            (resets_us..=resets_us + 2 * SECOND).contains(&converted_us),
            "{before} {resets_us} {converted_us}"
        );
        assert!(
            resets_us > 30 * SECOND || converted_us <= resets_us + 1,
            "{before} {resets_us} {converted_us}"
        );
        // A clock that goes back is noticed by the numbers with which the state was written.
        let rules = &other.rules.quotas[0].rules;
        let at = |now_us| rules.rewind(&mut other.states[0].clone(), now_us);
        assert!(!at(NOW_US) && !at(NOW_US + 1) && at(NOW_US - 40 * SECOND), "{before}");
        let own = &key.rules.quotas[0].rules;
        assert!(
            !own.rewind(&mut key.states[0].clone(), NOW_US)
                && own.rewind(&mut key.states[0].clone(), NOW_US - 40 * SECOND)
        );
    }
    let mut key = Key::of("10/10s token_bucket");
    let _ = key.ask(Operation::Charge, 5, NOW_US);
    let other = Key::of("30/10s token_bucket");
    assert!(other.rules.quotas[0].rules.rewind(&mut key.states[0].clone(), NOW_US - 1));
}

/// What a log remembers, however the clock goes.
#[test]
fn log_keeps_what_counts_and_forgets_the_rest() {
    let mut key = Key::of("100/10s sliding_log");
    let entries = |key: &Key| match &key.states[0] {
        State::SlidingLog(log) => {
            log.parts().1.map(|(at_us, _)| at_us - NOW_US + 10 * SECOND).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    for at in [0, 2, 2, 5] {
        assert!(key.ask(Operation::Check, 1, NOW_US + at * SECOND).0.allowed);
    }
    // Units of one time share an entry.
    assert_eq!(entries(&key), [10, 12, 15].map(|at| at * SECOND));
    // What is ahead of a clock that went back counts from now on; what is at its time stays.
    let (_, applied) = key.ask(Operation::Charge, 0, NOW_US + 5 * SECOND);
    assert!(!applied.written);
    let _ = key.ask(Operation::Charge, 1, NOW_US + 2 * SECOND);
    assert_eq!(entries(&key), [10, 12].map(|at| at * SECOND));
    assert_eq!(key.left(NOW_US + 2 * SECOND), 95);
    assert_eq!((key.left(NOW_US + 10 * SECOND - 1), key.left(NOW_US + 10 * SECOND)), (95, 96));
    assert_eq!(key.left(NOW_US + 12 * SECOND), 100);
    let state = |key: &Key| key.states[0].clone();
    assert!(!state(&key).holds_nothing());
    let _ = key.ask(Operation::Refund, 5, NOW_US + 2 * SECOND);
    assert!(state(&key).holds_nothing());
}

/// A claim of a group counts for as long as its units take, and for a second more.
#[test]
fn claim_of_a_group_lasts_by_what_it_asked_for() {
    let policy = grouped("100/10s token_bucket");
    let (a, b) = (in_group(&policy, "a"), in_group(&policy, "b"));
    let mut key = Key::of_policy(&policy);
    let ask = |key: &mut Key, rules: &PolicyRules, operation, cost, now_us| {
        let request = KeyOperation { now_us, operation, cost, headroom: 0, hold: None };
        rules.decide(&mut key.states, request, None)
    };
    let claim = |key: &Key, now_us| match &key.states[0] {
        State::Grouped(state) => state.claims_end_after_us(now_us),
        other => panic!("{other:?}"),
    };
    let _ = ask(&mut key, &b, Operation::Charge, 85, NOW_US);
    let mut claims = Vec::new();
    for cost in [16, 25, 45, 90] {
        let mut denied = Key { rules: a.clone(), states: key.states.clone() };
        let (decision, applied) = ask(&mut denied, &a, Operation::Check, cost, NOW_US);
        assert!(!decision.allowed && applied.written, "{cost}");
        // 15 of the units are a's own: the others come at 10 a second.
        let units = cost - 15;
        claims.push(claim(&denied, NOW_US) - units * 100_000);
        // What waits keeps units for the group that does.
        let then = NOW_US + 2 * SECOND;
        let left = |key: &Key| b.view(&key.states, then).remaining();
        assert!(left(&denied) <= left(&key), "{cost}");
        // The claim is behind a clock that went back no longer than it was made for.
        let back = NOW_US - 50 * SECOND;
        let before = claim(&denied, NOW_US);
        let (_, applied) = ask(&mut denied, &a, Operation::Charge, 0, back);
        assert!(applied.written && claim(&denied, back) <= before, "{cost}");
    }
    assert!(claims.iter().all(|claim_us| *claim_us == claims[0]), "{claims:?}");
}

/// Slots: a claim goes before groups that have more than their minimum, by their weights.
#[test]
fn slots_are_kept_for_groups_that_wait() {
    let policy = grouped("20 concurrent");
    let (a, b) = (in_group(&policy, "a"), in_group(&policy, "b"));
    let mut key = Key::of_policy(&policy);
    let reserve = |key: &mut Key, rules: &PolicyRules, id: String, now_us| {
        let hold = hold(&id, 3_600 * SECOND);
        let request =
            KeyOperation { now_us, operation: Operation::Reserve, cost: 0, headroom: 0, hold: Some(&hold) };
        rules.decide(&mut key.states, request, None).0.allowed
    };
    let left = |key: &Key, rules: &PolicyRules| {
        let none = Reservations::default();
        let found = key.states.iter().find_map(|state| match state {
            State::Reservations(list) => Some(&**list),
            _ => None,
        });
        rules.slots_beside(&key.states[..1], found.unwrap_or(&none), NOW_US).unwrap()
    };
    // Of 20 slots 6 are kept for a and 4 for b, as their minimums are.
    let ((left_a, most_a), (left_b, most_b)) = (left(&key, &a), left(&key, &b));
    assert_eq!((left_a, left_b), (most_a, most_b));
    assert!(most_a > most_b && most_a < 20, "{most_a} {most_b}");
    (0..most_a).for_each(|at| assert!(reserve(&mut key, &a, format!("a{at}"), NOW_US)));
    assert_eq!(left(&key, &a).0, 0);
    let kept = left(&key, &b).0;
    assert_eq!(kept, 20 - most_a);
    (0..kept).for_each(|at| assert!(reserve(&mut key, &b, format!("b{at}"), NOW_US)));
    assert!(!reserve(&mut key, &b, "late".into(), NOW_US));
    // Both wait for the slot that comes back: b has no more than its minimum, so it is b's.
    assert!(!reserve(&mut key, &a, "more".into(), NOW_US));
    let cancel = Hold::of_end(ReservationId::new("a0").unwrap());
    let request = KeyOperation {
        now_us: NOW_US,
        operation: Operation::Cancel,
        cost: 0,
        headroom: 0,
        hold: Some(&cancel),
    };
    assert!(a.decide(&mut key.states, request, None).0.allowed);
    assert_eq!((left(&key, &a).0, left(&key, &b).0), (0, 1));
    // After its claim it is anyone's.
    let later = NOW_US + 3_000 * SECOND;
    let mut other = Key { rules: a.clone(), states: key.states.clone() };
    assert!(reserve(&mut other, &a, "later".into(), later));
    assert!(reserve(&mut key, &b, "now".into(), NOW_US));
}

/// Of several quotas any may be the one whose limit a request crosses.
#[test]
fn crossing_the_limit_of_one_quota_is_said() {
    let mut key = Key::of("1/10s fixed_window excess=9; 4/20s fixed_window excess=9");
    let crossed = [4, 1, 1].map(|cost| key.ask(Operation::Check, cost, NOW_US).0.crossed());
    assert_eq!(crossed, [true, true, false]);
}

/// Whatever a key has ahead of the clock is moved back, and that is written.
#[test]
fn what_is_moved_back_is_written() {
    let back = NOW_US - 3 * SECOND;
    for (is_committed, is_blocked) in [(true, false), (false, true), (true, true)] {
        let mut key = Key::of("3 concurrent");
        if is_committed {
            let reserve = Hold { remember_us: 40 * SECOND, ..hold("r", 10 * SECOND) };
            let _ = key.ask_for(Operation::Reserve, 0, NOW_US, &reserve);
            let _ = key.ask_for(Operation::Commit, 0, NOW_US, &Hold::of_end(reserve.id));
        }
        if is_blocked {
            let _ = key.ask_for(Operation::Block, 0, NOW_US, &Hold::of_block(5 * SECOND));
        }
        assert!(key.ask(Operation::Charge, 0, back).1.written, "{is_committed} {is_blocked}");
        assert!(!key.ask(Operation::Charge, 0, back).1.written, "{is_committed} {is_blocked}");
    }
    // A reservation and the claim of its group.
    let mut key = Key::of_policy(&grouped("10/10s token_bucket"));
    assert!(key.ask_for(Operation::Reserve, 5, NOW_US, &hold("r", 10 * SECOND)).0.allowed);
    let (decision, applied) = key.ask(Operation::Check, 8, back);
    assert!(!decision.allowed && applied.written);
    assert_eq!(key.rules.inspect(&key.states, back, 0, 0).reservations_end_after_us, 10 * SECOND);
}

#[test]
fn denial_that_costs_nothing_charges_nothing() {
    let mut key = Key::of("10/10s token_bucket count_denied; 1 concurrent");
    assert!(key.ask_for(Operation::Reserve, 0, NOW_US, &hold("a", 60 * SECOND)).0.allowed);
    let (denied, applied) = key.ask_for(Operation::Reserve, 0, NOW_US + 1, &hold("b", SECOND));
    assert_eq!((denied.cause, applied.written), (Some(Cause::Concurrency), false));
    let (denied, applied) = key.ask_for(Operation::Reserve, 1, NOW_US + 1, &hold("b", SECOND));
    assert_eq!((denied.cause, applied.written, key.left(NOW_US + 1)), (Some(Cause::Concurrency), true, 0));
}

#[test]
fn blocked_key_has_nothing_left() {
    let mut key = Key::of("10/10s token_bucket; 20/10s fixed_window");
    let _ = key.ask_for(Operation::Block, 0, NOW_US, &Hold::of_block(5 * SECOND));
    let seen = |key: &mut Key, now_us| {
        let decision = key.ask(Operation::Peek, 1, now_us).0;
        let each: Vec<u64> = decision.quotas().iter().map(|usage| usage.remaining).collect();
        (decision.remaining(), each, decision.reset_after_us())
    };
    assert_eq!(seen(&mut key, NOW_US + SECOND), (0, vec![0, 0], 4 * SECOND));
    assert_eq!(seen(&mut key, NOW_US + 5 * SECOND), (10, vec![10, 20], 0));
}

/// What forgets a penalty is the next change of the key.
#[test]
fn record_that_says_nothing_is_dropped() {
    let mut key = Key::of_policy(&penalized("2/s fixed_window"));
    let _ = key.ask(Operation::Charge, 2, NOW_US);
    let causes = [0, 0].map(|later| key.ask(Operation::Check, 1, NOW_US + later).0.cause);
    assert_eq!((causes, key.states.len()), ([Some(Cause::Quota), Some(Cause::Blocked)], 2));
    assert!(key.ask(Operation::Check, 1, NOW_US + 35 * SECOND - 1).0.allowed && key.states.len() == 2);
    assert!(key.ask(Operation::Check, 1, NOW_US + 35 * SECOND).0.allowed && key.states.len() == 1);
}

#[test]
fn operation_on_a_reservation_that_is_not_there_waits_for_nothing() {
    let mut key = Key::of("4/hour token_bucket; 1 concurrent");
    assert!(key.ask_for(Operation::Reserve, 4, NOW_US, &hold("a", 60 * SECOND)).0.allowed);
    for operation in [Operation::Commit, Operation::Cancel, Operation::Renew] {
        let decision = key.ask_for(operation, 5, NOW_US, &hold("b", SECOND)).0;
        assert!(!decision.allowed, "{operation:?}");
        assert_eq!(decision.waits_us().as_slice(), [0, 0], "{operation:?}");
        assert_eq!(decision.retry_after_us(), Some(0), "{operation:?}");
    }
}

/// A group waits under each of its quotas that denies it, and under no other.
#[test]
fn claim_is_made_where_units_are_missing() {
    // Of 100 units 90 may be a's, and of 200 units 180.
    let policy = grouped("100/10s token_bucket; 200/20s token_bucket");
    let a = in_group(&policy, "a");
    for (cost, waits) in [(80, [true, false]), (81, [true, true])] {
        let mut key = Key { rules: a.clone(), ..Key::of_policy(&policy) };
        let _ = key.ask(Operation::Charge, 100, NOW_US);
        assert_eq!(
            key.rules
                .view(&key.states, NOW_US)
                .quotas()
                .iter()
                .map(|usage| usage.remaining)
                .collect::<Vec<_>>(),
            [0, 80]
        );
        assert!(!key.ask(Operation::Check, cost, NOW_US).0.allowed);
        let claims: Vec<bool> = key
            .states
            .iter()
            .map(|state| match state {
                State::Grouped(state) => state.claims_end_after_us(NOW_US) > 0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(claims, waits, "{cost}");
    }
}

#[test]
fn inspection_says_what_never_ends() {
    // A state under a limit of 0 does not change.
    let mut frozen = Key::of("0/10s token_bucket");
    assert_eq!(frozen.rules.inspect(&frozen.states, NOW_US, 1, 0).expires_after_us, Some(0));
    let mut used = Key::of("10/10s token_bucket");
    let _ = used.ask(Operation::Check, 1, NOW_US);
    frozen.states = used.states.clone();
    let inspection = frozen.rules.inspect(&frozen.states, NOW_US, 1, 0);
    assert_eq!((inspection.expires_after_us, inspection.quotas[0].used), (None, 0));
    assert_eq!(used.rules.inspect(&used.states, NOW_US, 1, 0).expires_after_us, Some(SECOND));
    // Slots that are all left to others, of a group and of all.
    for policy in [grouped("10 concurrent"), Policy::parse("p", "10 concurrent").unwrap()] {
        let key = Key::of_policy(&policy);
        let waits = [0, 50, 99]
            .map(|headroom| key.rules.inspect(&key.states, NOW_US, 1, headroom).quotas[0].retry_after_us);
        assert_eq!(waits, [Some(0), Some(0), None]);
    }
}

/// The rules of any quota are those of its algorithm.
#[test]
fn rules_of_a_quota_explain_as_its_algorithm_does() {
    for quotas in QUOTAS {
        let mut key = Key::of(quotas);
        let _ = key.ask(Operation::Check, 3, NOW_US);
        let (rules, state) = (&key.rules.quotas[0].rules, &key.states[0]);
        let explanation = rules.explain(state, NOW_US, crate::algorithm::Outcome::Admitted { spent: 1 });
        assert!(explanation.reset_after_us > SECOND, "{quotas}");
        assert_eq!(rules.reset_after_us(state, NOW_US), explanation.reset_after_us, "{quotas}");
        let is_leaky = quotas.contains("leaky_bucket");
        assert_eq!(rules.delay_us(state, NOW_US, 1), explanation.wait_us, "{quotas}");
        assert_eq!(explanation.wait_us, if is_leaky { 2 * SECOND } else { 0 }, "{quotas}");
        assert!(!state.holds_nothing(), "{quotas}");
        let _ = key.ask(Operation::Refund, 3, NOW_US);
        assert!(key.states[0].holds_nothing(), "{quotas}");
    }
}
