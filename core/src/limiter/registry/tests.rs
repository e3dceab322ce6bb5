use std::time::Duration;

use super::*;
use polylimit_rules::decision::Decision;
use polylimit_runtime::clock::{Clock, ManualClock};
use polylimit_store::charge::Charge;
use polylimit_store_memory::MemoryStore;

/// A registry that keeps a few texts, and forgets unused ones at once.
fn small(most: usize) -> Registry {
    Registry {
        bounds: TextBounds { most, idle: Duration::MAX, in_flight: Duration::ZERO },
        ..Registry::default()
    }
}

fn memory() -> Store {
    Store::Memory(MemoryStore::new(1 << 16, Clock::system()))
}

fn text(number: usize) -> String {
    format!("{}/minute", number + 1)
}

/// The first texts, which stay.
fn name_first(registry: &Registry, store: &Store) {
    for number in 0..MAX_COUNTED {
        registry.id(Some(&text(number)), store).unwrap();
    }
}

fn asked(id: PolicyId, action: Action) -> Charge<'static> {
    Charge::new(id, b"k", action, 1)
}

#[test]
fn least_recently_used_texts_go_and_no_id_is_given_again() {
    let (registry, store) = (small(64), memory());
    name_first(&registry, &store);
    let first = registry.id(Some("1/minute"), &store).unwrap();
    let often = registry.id(Some("1/hour"), &store).unwrap();
    let mut ids = std::collections::HashSet::new();
    for number in 0..10_000_u64 {
        let id = registry.id(Some(&format!("{}/day", number + 1)), &store).unwrap();
        assert!(ids.insert(id), "{id:?}");
        assert_eq!(registry.id(Some("1/hour"), &store).unwrap(), often);
        assert_eq!(registry.policy_of(id).unwrap().quotas()[0].limit(), number + 1);
    }
    assert_eq!(registry.id(Some("1/minute"), &store).unwrap(), first);
    let policies = registry.policies();
    assert!(policies.len() <= MAX_COUNTED + 2 * 64, "{}", policies.len());
    assert!(policies.is_sorted_by_key(|(id, _)| *id));
    // A text that is named again has the same policy under another id.
    let again = registry.id(Some("1/day"), &store).unwrap();
    assert!(!ids.contains(&again));
    assert_eq!(registry.policy_of(again).unwrap().name(), "1|day");
    let gone = ids.iter().filter(|id| registry.policy_of(**id).is_none()).count();
    assert!(gone >= 9_800, "{gone}");
}

#[test]
fn texts_in_use_and_policies_of_the_program_stay() {
    let (registry, store) = (small(16), memory());
    name_first(&registry, &store);
    let named =
        registry.set(&Policy::parse("named", "7/hour").unwrap(), PolicyOptions::default(), &store).unwrap();
    let by_program = registry.policy_for(Some("8/hour"), Some("/login"), &store).unwrap();
    let by_request = registry.policy_in_request(Some("8/hour"), Some("/search"), &store).unwrap();
    let held = registry.id(Some("9/hour"), &store).unwrap();
    let holder = registry.hold(held);
    assert!(holder.is_some() && registry.hold(PolicyId(0)).is_none());
    for number in 0..1_000 {
        registry.id(Some(&format!("{}/day", number + 1)), &store).unwrap();
    }
    assert_eq!(registry.find(Some("named")), Some(named));
    assert!(registry.find(Some(by_program.name())).is_some());
    assert_eq!(registry.find(Some(by_request.name())), None);
    assert_eq!(registry.find(Some("9/hour")), Some(held));
    registry.keep(&by_request, &store).unwrap();
    assert_eq!(registry.policy(by_request.name()).unwrap(), by_request);
    drop(holder);
    for number in 1_000..2_000 {
        registry.id(Some(&format!("{}/day", number + 1)), &store).unwrap();
    }
    assert_eq!((registry.find(Some("9/hour")), registry.policy_of(held)), (None, None));
}

#[test]
fn text_whose_keys_have_states_in_memory_stays_until_there_are_too_many() {
    let manual = ManualClock::new(1_000_000).unwrap();
    let (registry, clock) = (small(32), Clock::from(manual));
    let store = Store::Memory(MemoryStore::new(1 << 16, clock));
    name_first(&registry, &store);
    let check = |text: &str| -> Decision {
        let id = registry.id(Some(text), &store).unwrap();
        let request = asked(id, Action::Apply(Operation::Check));
        store.try_start(request).unwrap().unwrap().0
    };
    assert!(check("1/hour").allowed && !check("1/hour").allowed);
    for number in 0..200 {
        registry.id(Some(&format!("{}/day", number + 1)), &store).unwrap();
    }
    assert!(!check("1/hour").allowed);
    for number in 0..1_000 {
        assert!(check(&format!("{}/day", number + 1)).allowed);
    }
    let policies = registry.policies();
    assert!(policies.len() <= MAX_COUNTED + 2 * 32 + 1, "{}", policies.len());
    // A forgotten policy is unused when it is named again, and the states of its keys make room.
    assert!(check("1/hour").allowed && !check("1/hour").allowed);
}

#[test]
fn idle_texts_go_although_there_are_few() {
    let registry = Registry {
        bounds: TextBounds { idle: Duration::ZERO, in_flight: Duration::ZERO, ..TextBounds::default() },
        ..Registry::default()
    };
    let store = memory();
    name_first(&registry, &store);
    for number in 0..100 {
        registry.id(Some(&format!("{}/day", number + 1)), &store).unwrap();
    }
    assert!(registry.policies().len() < MAX_COUNTED + 20);
}

#[test]
fn operation_under_a_forgotten_policy_is_an_error_in_every_store_of_this_process() {
    let policy = Policy::parse("p", "1/minute").unwrap();
    let store = memory();
    let id = PolicyId::new(1, MAX_COUNTED);
    store.set_policy(id, &policy, PolicyOptions::default());
    let ask = |id, action| {
        let request = asked(id, action);
        store.try_start(request).unwrap()
    };
    let check = Action::Apply(Operation::Check);
    assert!(ask(id, check).is_ok());
    store.forget_policy(id);
    for action in [check, Action::Apply(Operation::Take), Action::Reset] {
        assert_eq!(ask(id, action).unwrap_err().kind(), ErrorKind::Internal);
    }
    // A later policy in its slot has nothing of it.
    let later = PolicyId::new(2, MAX_COUNTED);
    store.set_policy(later, &policy, PolicyOptions::default());
    assert!(ask(later, check).unwrap().0.allowed);
    assert_eq!(ask(id, check).unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn forked_child_knows_the_same_policies_under_the_same_ids() {
    let (registry, store) = (small(64), memory());
    name_first(&registry, &store);
    let ids: Vec<_> =
        (0..500).map(|number| registry.id(Some(&format!("{}/day", number + 1)), &store).unwrap()).collect();
    let child = registry.after_fork();
    assert_eq!(child.policies(), registry.policies());
    assert_eq!(child.find(Some("500/day")), Some(ids[499]));
    let store = store.after_fork(&child.policies());
    let id = child.id(Some("501/day"), &store).unwrap();
    assert!(!ids.contains(&id) && child.policies().last().unwrap().0 == id);
}

#[test]
fn texts_that_threads_use_decide_while_others_are_forgotten() {
    let bounds = TextBounds { most: 64, ..TextBounds::default() };
    let (registry, store) = (Registry { bounds, ..Registry::default() }, memory());
    name_first(&registry, &store);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for hours in 1..3 {
            let (registry, store, is_over) = (&registry, &store, &is_over);
            scope.spawn(move || {
                let text = format!("1000000000/{hours}h");
                while !is_over.load(Ordering::Relaxed) {
                    let id = registry.id(Some(&text), store).unwrap();
                    let request = asked(id, Action::Apply(Operation::Check));
                    assert!(store.try_start(request).unwrap().unwrap().0.allowed);
                }
            });
        }
        let first = registry.id(Some("1/day"), &store).unwrap();
        let began = monotonic::now();
        for number in 2.. {
            let id = registry.id(Some(&format!("{number}/day")), &store).unwrap();
            assert_eq!(registry.policy_of(id).unwrap().quotas()[0].limit(), number);
            if registry.policy_of(first).is_none() {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(300), "no text is forgotten");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
