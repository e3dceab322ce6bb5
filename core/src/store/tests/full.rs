//! Which records of blocks a store keeps: while there is room, those that still matter; and a block itself in any case.

use super::{Asked, Subject};
use polylimit_rules::decision::{Cause, Degradation};
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::ManualClock;

const START_US: u64 = 1_790_000_000_000_000;
const SECOND_US: u64 = 1_000_000;

/// One unit a second, and a block of 2, 4, 8 ... seconds after each denial.
fn policy() -> Policy {
    let penalty = Penalty {
        denials: 1,
        within_us: SECOND_US,
        block_us: 2 * SECOND_US,
        max_us: 60 * SECOND_US,
        forget_us: 1_000 * SECOND_US,
    };
    Policy::parse("p", "1/s fixed_window").unwrap().with_penalty(Some(penalty))
}

fn subjects(clock: &ManualClock) -> Vec<Subject> {
    let mut subjects = Subject::all(&[policy()], clock);
    subjects.remove(0);
    subjects
}

/// Is denied once; returns how long the key is blocked.
fn denied(subject: &mut Subject, key: &str) -> u64 {
    let _ = subject.ask(&Asked::plain(key, Operation::Check, 1));
    let (decision, _) = subject.ask(&Asked::plain(key, Operation::Check, 1));
    assert_eq!(decision.cause(), Some(Cause::Blocked));
    decision.retry_after_us().unwrap() / SECOND_US
}

fn fill(subject: &mut Subject, from: u32, keys: u32) -> bool {
    let is_full = |number: u32| {
        let (decision, _) = subject.ask(&Asked::plain(&format!("key {number}"), Operation::Check, 1));
        decision.degraded() == Some(Degradation::StoreFull)
    };
    (from..from + keys).any(is_full)
}

#[test]
fn level_outlives_the_block_and_other_keys_while_there_is_room() {
    let clock = ManualClock::new(START_US).unwrap();
    for mut subject in subjects(&clock) {
        clock.set(START_US).unwrap();
        assert_eq!(denied(&mut subject, "k"), 2);
        clock.set(START_US + 1_001 * SECOND_US).unwrap();
        assert!(!fill(&mut subject, 0, 500));
        assert_eq!(denied(&mut subject, "k"), 4);
        // The second block has ended after 1,005 s, and is forgotten after 2,005 s.
        clock.set(START_US + 2_005 * SECOND_US).unwrap();
        assert_eq!(denied(&mut subject, "k"), 2);
    }
}

#[test]
fn expired_states_of_few_keys_are_found_by_a_clock_that_goes_back() {
    let clock = ManualClock::new(START_US).unwrap();
    for _ in 0..200 {
        for mut subject in subjects(&clock) {
            clock.set(START_US).unwrap();
            for key in ["a", "b", "c", "d"] {
                let _ = subject.ask(&Asked::plain(key, Operation::Check, 1));
            }
            clock.set(START_US + 2_000 * SECOND_US).unwrap();
            fill(&mut subject, 0, 12);
            clock.set(START_US).unwrap();
            for key in ["a", "b", "c", "d"] {
                let (decision, _) = subject.ask(&Asked::plain(key, Operation::Peek, 1));
                assert_eq!(decision.remaining(), 0, "{key}");
            }
        }
    }
}

#[test]
fn full_store_forgets_levels_and_no_block() {
    let clock = ManualClock::new(START_US).unwrap();
    let mut subjects = subjects(&clock);
    for subject in &mut subjects {
        clock.set(START_US).unwrap();
        assert_eq!(denied(subject, "denied"), 2);
        let _ = subject.ask(&Asked::block("blocked", 1_000 * SECOND_US));
        clock.set(START_US + 50 * SECOND_US).unwrap();
        // All keys of a round have expired when the next one comes.
        let mut from = 0;
        while !fill(subject, from, 20_000) {
            from += 20_000;
        }
        clock.set(START_US + 90 * SECOND_US).unwrap();
        for round in 1..=20 {
            clock.set(START_US + (90 + 2 * round) * SECOND_US).unwrap();
            fill(subject, from + 20_000 * u32::try_from(round).unwrap(), 20_000);
        }
        clock.set(START_US + 140 * SECOND_US).unwrap();
        let (decision, _) = subject.ask(&Asked::plain("blocked", Operation::Peek, 1));
        assert_eq!((decision.cause(), decision.remaining()), (Some(Cause::Blocked), 0));
        assert_eq!(decision.retry_after_us(), Some(860 * SECOND_US));
        assert_eq!(denied(subject, "denied"), 2);
    }
}

#[test]
fn keys_without_a_state_of_their_own_do_not_block_each_other() {
    let clock = ManualClock::new(START_US).unwrap();
    for mut subject in subjects(&clock) {
        clock.set(START_US).unwrap();
        let mut keys = 0;
        while !fill(&mut subject, keys, 1_000) {
            keys += 1_000;
        }
        for key in ["a", "b"] {
            let (decision, _) = subject.ask(&Asked::plain(key, Operation::Check, 1));
            assert_eq!(decision.degraded(), Some(Degradation::StoreFull));
            assert!(decision.cause() != Some(Cause::Blocked));
        }
        let (usage, _) = subject.ask(&Asked::block("a", 1_000 * SECOND_US));
        assert_eq!(usage.degraded(), Some(Degradation::StoreFull));
        let (decision, _) = subject.ask(&Asked::plain("a", Operation::Peek, 0));
        assert!(decision.cause().is_none());
    }
}
