//! Leases with a server: takes, refunds, and what becomes of units.

use std::thread;

use super::server::Fault;
use super::world::{ID, OTHER, START_US, World, YEAR, check, give_back, until};
use crate::lease::*;
use crate::routing::listener::LeasedKeys;
use crate::script::reply::SeenStates;
use polylimit_rules::codec::States;
use polylimit_rules::policy::Policy;
use polylimit_store::charge::PolicyOptions;

#[test]
fn busy_key_is_leased_and_unspent_units_are_returned_when_they_expire() {
    let world = World::new(YEAR);
    assert!(!world.leases.holds(check("k")) && world.leases.units(check("k")) == 0);
    assert_eq!(world.leases.answer(check("k")).map(|decision| decision.allowed), None);
    let checks = world.lease(check("k"), 100);
    let stats = world.leases.stats();
    assert!(stats.answered > 20 && stats.answered < checks, "{stats:?}");
    assert_eq!(world.used(check("k")), checks + stats.held);
    assert!(world.leases.holds(check("k")) && !world.leases.holds(check("l")));
    assert_eq!((world.leases.units(check("k")), world.leases.units(check("l"))), (stats.held, 0));
    // The lease pays for checks of this key and policy only, and for nothing that a check with headroom may not have.
    for other in [
        check("l"),
        Charge { id: OTHER, ..check("k") },
        Charge { cost: 0, ..check("k") },
        Charge { headroom: 1, ..check("k") },
        check("k").peek(),
    ] {
        assert!(world.leases.answer(other).is_none(), "{other:?}");
    }
    let decision = world.leases.answer(Charge { cost: 3, ..check("k") }).unwrap();
    assert_eq!((decision.allowed, decision.source.name()), (true, "lease"));
    world.settle();
    let (held, spent) = (world.leases.stats().held, checks + 3);
    assert_eq!(world.leases.stats().answered, stats.answered + 1);
    world.clock.set(START_US + 99_999).unwrap();
    assert_eq!((world.leases.over().len(), world.units()), (0, [held, 0, 0]));
    world.clock.set(START_US + 100_000).unwrap();
    world.until_units([0, held, 0]);
    assert_eq!(world.used(check("k")), spent);
    // The key was not used since, so its lease goes, too.
    until("the lease is dropped", || world.leases.keys_held.load(Ordering::Relaxed) == 0);
    let counted = world.leases.deps.access.stats();
    assert!(counted.applied > 0 && (counted.unknown, counted.not_applied) == (0, 0), "{counted:?}");
}

#[test]
fn operation_on_a_key_waits_for_its_take_and_returns_its_units() {
    let world = World::new(YEAR);
    let spent = world.lease(check("key"), 1);
    let (held, called) = (world.leases.stats().held, world.server.called("key"));
    world.server.inject(Fault::Hold, "key");
    world.begin_take(check("key"), 5);
    let giving = give_back(&world, "key");
    until("the take has arrived", || world.server.called("key") > called);
    thread::sleep(Duration::from_millis(20));
    assert!(!giving.is_finished() && world.units()[1] == 0);
    world.server.heal();
    giving.join().unwrap();
    assert_eq!(world.units(), [0, held + 5, 0]);
    assert_eq!(world.used(check("key")), spent);
}

#[test]
fn takes_of_other_keys_are_not_waited_for() {
    let world = World::new(YEAR);
    world.lease(check("key"), 1);
    world.lease(check("other"), 1);
    let (held, called) = (world.leases.units(check("key")), world.server.called("key"));
    world.server.inject(Fault::Hold, "other");
    world.begin_take(check("other"), 5);
    let giving = give_back(&world, "key");
    until("the refund has arrived", || world.server.called("key") > called);
    world.server.heal();
    giving.join().unwrap();
    assert_eq!(world.units()[1], held);
    // Of a key without a lease there is nothing to return.
    give_back(&world, "none").join().unwrap();
    assert_eq!(world.server.called("none"), 0);
}

#[test]
fn units_of_calls_without_an_answer_are_lost_where_they_may_have_been_taken() {
    let world = World::new(YEAR);
    world.lease(check("key"), 1);
    let [held, ..] = world.units();
    let counted = || {
        let stats = world.leases.deps.access.stats();
        [stats.unknown, stats.permanent]
    };
    world.server.inject(Fault::Refuse, "key");
    world.begin_take(check("key"), 5);
    world.settle();
    assert_eq!((world.units(), counted()), ([held, 0, 0], [0, 1]));
    world.server.heal();
    world.server.inject(Fault::Lose, "key");
    world.begin_take(check("key"), 5);
    world.settle();
    assert_eq!((world.units(), counted()), ([held, 0, 5], [1, 1]));
    // A refund that may have arrived is lost as well.
    give_back(&world, "key").join().unwrap();
    assert_eq!((world.units(), counted()), ([0, 0, 5 + held], [2, 1]));
    world.server.heal();
}

#[test]
fn units_that_may_be_of_others_are_not_refunded() {
    let world = World::new("100000/50ms fixed_window aligned");
    world.lease(check("key"), 8);
    let (held, called) = (world.leases.stats().held, world.server.called("key"));
    world.clock.set(START_US + 49_999).unwrap();
    world.until_units([0, 0, held]);
    assert_eq!(world.server.called("key"), called);
}

#[test]
fn policy_that_is_gone_voids_its_takes() {
    let world = World::new(YEAR);
    world.lease(check("key"), 1);
    let ([held, ..], called) = (world.units(), world.server.called("key"));
    world.server.inject(Fault::Hold, "key");
    world.begin_take(check("key"), 5);
    until("the take has arrived", || world.server.called("key") > called);
    world.leases.deps.policies.forget(ID);
    world.server.heal();
    world.settle();
    assert_eq!(world.units(), [held, 0, 5]);
}

#[test]
fn closing_returns_all_units_and_takes_no_more() {
    let world = World::new(YEAR);
    let keys = ["a", "b", "c"];
    for key in keys {
        world.lease(check(key), 1);
    }
    let [held, ..] = world.units();
    world.server.inject(Fault::Hold, "{a}");
    world.begin_take(check("a"), 5);
    let closing = thread::spawn({
        let leases = Arc::clone(&world.leases);
        move || leases.give_back_all()
    });
    until("it is closed", || world.leases.closed.load(Ordering::Acquire));
    thread::sleep(Duration::from_millis(20));
    assert!(!closing.is_finished() && world.units()[1] == 0);
    world.server.heal();
    closing.join().unwrap();
    assert_eq!((world.units(), world.leases.keys_held.load(Ordering::Relaxed)), ([0, held + 5, 0], 0));
    for key in keys {
        assert!(!world.leases.holds(check(key)));
    }
    let called = world.server.called("");
    world.admitted(check("a"));
    world.admitted(check("a"));
    world.settle();
    assert_eq!(world.server.called(""), called + 2);
    // A second time there is nothing left to do.
    world.leases.give_back_all();
    assert_eq!(world.units(), [0, held + 5, 0]);
}

#[test]
fn refunds_leave_room_for_operations_of_callers() {
    let world = World::with_options(YEAR, "&max_in_flight=4");
    let keys = (0..10).map(|key| format!("key{key}")).collect::<Vec<_>>();
    for key in &keys {
        world.lease(check(key), 1);
    }
    let ([held, ..], called) = (world.units(), world.server.called(""));
    world.server.inject(Fault::Hold, "key");
    world.clock.set(START_US + 100_000).unwrap();
    until("half of the permits are used", || world.server.called("") == called + 2);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(world.server.called(""), called + 2);
    world.server.heal();
    world.until_units([0, held, 0]);
}

#[test]
fn changed_quotas_return_units_that_are_worth_the_same() {
    for (changed, is_same) in [("90000/52w fixed_window", true), ("90000/51w fixed_window", false)] {
        let world = World::new(YEAR);
        world.set_policy(OTHER, YEAR, world.policy(ID).lease);
        let others = Charge { id: OTHER, ..check("key") };
        world.lease(check("key"), 1);
        world.lease(check("second"), 1);
        world.lease(others, 1);
        let [all, ..] = world.units();
        let (kept, called) = (world.leases.units(others), world.server.called("p0:"));
        world.server.inject(Fault::Hold, "p0:");
        world.begin_take(check("key"), 5);
        until("the take has arrived", || world.server.called("p0:") > called);
        world.change_policy(ID, changed);
        world.server.heal();
        world.settle();
        // The units of the take in flight are void.
        world.until_units(if is_same { [kept, all - kept, 5] } else { [kept, 0, all - kept + 5] });
    }
    // Without leases nothing happens.
    let world = World::new(YEAR);
    world.change_policy(ID, "90000/51w fixed_window");
    assert_eq!(world.units(), [0, 0, 0]);
}

#[test]
fn units_are_worth_the_same_under_quotas_of_the_same_identity_and_rate() {
    for (before, after, expected) in [
        ("10/s fixed_window", "20/s fixed_window", true),
        ("10/s fixed_window", "10/m fixed_window", false),
        ("10/s fixed_window; 99/m fixed_window", "10/s fixed_window", true),
        ("10/s fixed_window", "10/s fixed_window; 99/m fixed_window", false),
        // A unit of a bucket is worth the time that its repayment takes.
        ("10/s token_bucket", "10/s token_bucket burst=20", true),
        ("10/s token_bucket", "20/s token_bucket", false),
        ("10/s token_bucket step=2", "20/s token_bucket step=2", true),
    ] {
        let [before, after] = [before, after].map(|quotas| Policy::parse("p", quotas).unwrap());
        assert_eq!(crate::lease::refund::keeps_units(&before, &after), expected, "{before:?} {after:?}");
    }
}

#[test]
fn block_returns_the_units_of_the_keys_that_it_names() {
    let world = World::new(YEAR);
    world.set_policy(OTHER, YEAR, world.policy(ID).lease);
    let others = Charge { id: OTHER, ..check("key") };
    let block = |id, is_one: &dyn Fn(&[u8]) -> bool| Arc::clone(&world.leases).block_where(id, is_one);
    block(ID, &|_| true);
    let mut channels = ChannelSet::default();
    for charge in [check("key"), check("free"), others] {
        channels.insert(world.admitted(charge).unwrap());
        world.lease(charge, 1);
    }
    assert_eq!(world.leases.channels(), channels);
    let ([all, ..], blocked) = (world.units(), world.leases.units(check("key")));
    let called = world.server.called("p0:{key}");
    world.server.inject(Fault::Hold, "p0:{key}");
    world.begin_take(check("key"), 5);
    until("the take has arrived", || world.server.called("p0:{key}") > called);
    block(ID, &|key| key == b"key");
    world.server.heal();
    world.settle();
    // The take may have preceded the block.
    world.until_units([all - blocked, blocked, 5]);
    assert!(world.leases.units(check("key")) == 0 && world.leases.holds(check("free")));
    assert_eq!(world.leases.units(others), all - blocked - world.leases.units(check("free")));
    // Other processes' blocks of keys that are not leased any more are of no interest.
    world.clock.set(START_US + 100_000).unwrap();
    until("no key is leased", || world.leases.channels().is_empty());
}

#[test]
fn reset_drops_units_and_a_refund_makes_the_key_idle() {
    let world = World::new("100000/52w fixed_window; 100000/m token_bucket");
    world.lease(check("key"), 10);
    // The bucket repays what the store has spent for a long time, and leaves the lease as it is.
    let vast = Charge { cost: 1_000, ..check("key") };
    world.admitted(vast);
    world.settle();
    let [held, ..] = world.units();
    let at = |after_us| {
        world.clock.set(START_US + after_us).unwrap();
        assert!(world.leases.answer(vast).is_none());
        world.units()
    };
    assert_eq!(at(50_000), [held, 0, 0]);
    world.leases.spent_nothing(vast);
    let [left, ..] = at(99_000);
    assert!(left < held, "{left} of {held}");
    world.leases.forget(check("other"));
    assert_eq!(world.units(), [left, 0, 0]);
    world.leases.forget(check("key"));
    world.leases.forget(check("key"));
    assert_eq!(world.units(), [0, 0, left]);
}

/// What is taken and refunded reaches the denial cache, the fallback and the counters.
#[test]
fn units_of_leases_are_followed_in_process() {
    for outage in [Outage::Fallback, Outage::Deny] {
        let world = World::new(YEAR);
        let LeaseDeps { policies, keys, access, outage: fallback, denial_cache, .. } = &world.leases.deps;
        let policy = Policy::parse("p0", YEAR).unwrap();
        let options = PolicyOptions { outage: Some(outage), ..PolicyOptions::default() };
        policies.set(ID, &policy, options, keys, &access.clock);
        fallback.set_policy(ID, &policy);
        let of_fallback = || {
            let asked = [(Outage::Fallback, policy.quotas(), check("key").peek())];
            let answers = fallback.start(&asked, Degradation::Unreachable).unwrap();
            100_000 - answers[0].0.remaining()
        };
        world.admitted(check("key"));
        let version = denial_cache.read_version(check("key")).unwrap();
        world.begin_take(check("key"), 5);
        world.settle();
        assert_eq!(of_fallback(), if outage == Outage::Fallback { 5 } else { 0 });
        // A denial from before the take may be learned, and none from before the refund.
        let denied = || Arc::new(SeenStates { states: States::new(), now_us: START_US });
        let call = &policies.get(ID).unwrap().call;
        let learn = |version| denial_cache.learn(check("key"), version, Channel::FIRST, call, denied());
        assert!(learn(version));
        give_back(&world, "key").join().unwrap();
        assert!(!learn(version) && denial_cache.read_version(check("key")).is_some());
        assert_eq!(of_fallback(), 0);
        // A refund without an answer may still arrive.
        world.begin_take(check("key"), 5);
        world.settle();
        world.server.inject(Fault::Lose, "key");
        give_back(&world, "key").join().unwrap();
        assert!(denial_cache.read_version(check("key")).is_none());
    }
}
