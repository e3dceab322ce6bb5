//! The table of leases, without a server.

use std::thread;

use super::world::{ID, LONG, OTHER, START_US, World, YEAR, check, deps, until};
use crate::lease::*;
use polylimit_runtime::clock::Clock;
use polylimit_store::lease_size::Lease;

/// Keys that are all in the shard of the first one.
fn keys_of_a_shard(leases: &Leases) -> impl Iterator<Item = String> + use<'_> {
    let shard = |key: &str| std::ptr::from_ref(leases.shard(leases.hash(check(key))));
    let first = shard("0");
    (0_u32..).map(|key| key.to_string()).filter(move |key| shard(key) == first)
}

#[test]
fn full_shard_leases_no_more_keys_until_one_is_idle() {
    let world = World::without_server();
    let leases = &world.leases;
    let (policy, decision) = (world.policy(ID), world.fresh());
    let admit = |key: &str| leases.admitted(check(key), &policy, &decision, leases.now_us());
    let mut keys = keys_of_a_shard(leases);
    let first = keys.next().unwrap();
    let channel = admit(&first).unwrap();
    for _ in 1..MAX_IN_SHARD {
        assert!(admit(&keys.next().unwrap()).is_some());
    }
    let held = || leases.keys_held.load(Ordering::Relaxed);
    let shard = || leases.shard(leases.hash(check(&first))).lock();
    assert_eq!((held(), shard().table.len()), (MAX_IN_SHARD, MAX_IN_SHARD));
    let more = keys.next().unwrap();
    assert_eq!((admit(&more), held()), (None, MAX_IN_SHARD));
    assert!(admit(&first) == Some(channel));
    // Leases that were not used for their age make room, all at once; here all but the first.
    world.clock.set(START_US + 50_000).unwrap();
    assert!(admit(&first).is_some());
    world.clock.set(START_US + 100_000).unwrap();
    assert!(admit(&more).is_some());
    assert_eq!((held(), shard().table.len()), (2, 2));
    // A policy without a lease, and one of too small a capacity for it.
    for (quotas, lease) in [(YEAR, None), ("15/s", Some(Lease::auto()))] {
        let policy = world.set_policy(OTHER, quotas, lease);
        assert_eq!(leases.admitted(Charge { id: OTHER, ..check("0") }, &policy, &decision, 0), None);
    }
}

#[test]
fn memory_of_dropped_leases_is_given_back() {
    let world = World::without_server();
    let leases = &world.leases;
    let policy = world.policy(ID);
    for (kept, expected) in [(100, 224), (448, 1_792), (447, 896)] {
        let mut shard = leases.shards[0].lock();
        shard.table = HashTable::with_capacity(1_024);
        assert_eq!(shard.table.capacity(), 1_792);
        for number in 0..kept {
            let lease_key = LeaseKey { id: ID, key: Box::default(), hash: number };
            let (quotas, now_us) = (policy.policy.quotas(), leases.now_us());
            let lease = KeyLease::new(lease_key, Channel::FIRST, 1, 100_000, quotas, now_us);
            shard.table.insert_unique(number, lease, |lease| lease.lease_key.hash);
        }
        leases.keys_held.store(1, Ordering::Relaxed);
        drop(shard);
        assert!(leases.over().is_empty());
        let shard = leases.shards[0].lock();
        assert_eq!(shard.table.len() as u64, kept);
        assert_eq!(shard.table.capacity(), expected, "{kept}");
        assert!(shard.table.iter().all(|lease| {
            shard.table.find(lease.lease_key.hash, |it| it.lease_key.hash == lease.lease_key.hash).is_some()
        }));
    }
}

#[test]
fn take_without_connections_fails_at_once() {
    let world = World::without_server();
    let leases = &world.leases;
    let (policy, decision) = (world.policy(ID), world.fresh());
    for _ in 0..3 {
        assert!(leases.admitted(check("key"), &policy, &decision, leases.now_us()).is_some());
        assert!(!leases.holds(check("key")) && !leases.returning.load(Ordering::Relaxed));
        assert_eq!(leases.taking.load(Ordering::Relaxed), 0);
    }
    assert_eq!(world.units(), [0, 0, 0]);
    // After a move to other connections the refunding task starts there.
    leases.returning.store(true, Ordering::Relaxed);
    leases.moved();
    assert!(!leases.returning.load(Ordering::Relaxed));
}

#[test]
fn keys_are_spread_over_the_shards() {
    let world = World::without_server();
    let leases = &world.leases;
    let hashes =
        [check("a"), check("b"), Charge { id: OTHER, ..check("a") }].map(|charge| leases.hash(charge));
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[0] == leases.hash(check("a")));
    let shard = |hash: u64| std::ptr::from_ref(leases.shard(hash));
    for (hash, expected) in [(0, 0), (1, 0), (3 << 48, 3), (67 << 48, 3)] {
        assert!(std::ptr::eq(shard(hash), &raw const leases.shards[expected]), "{hash}");
    }
}

#[test]
fn units_expire_by_the_manual_clock_or_the_time_since_the_start() {
    let world = World::without_server();
    assert_eq!(world.leases.now_us(), START_US);
    let leases = Leases::new(deps("redis://127.0.0.1:1?doctor_after=0", Clock::system()));
    thread::sleep(Duration::from_millis(1));
    let first_us = leases.now_us();
    assert!(first_us > 1 && first_us < micros(LONG), "{first_us}");
    until("time passes", || leases.now_us() > first_us);
    leases.deps.access.leave();
}
