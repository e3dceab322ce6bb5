//! Damaged files cause an error or are repaired, and never cause a crash.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use polylimit::{ErrorKind, Request, blocking};

use super::agreement::Random;
use super::child::QUOTA;
use super::{Store, times};

const SIZE: u64 = 1 << 20;

fn fill(limiter: &blocking::Limiter, keys: u64) {
    for key in 0..keys {
        let _ = limiter.check(Request::new(&format!("key:{key}")).cost(1 + key % 100)).unwrap();
    }
}

fn writable(store: &Store) -> File {
    OpenOptions::new().read(true).write(true).open(&store.0).unwrap()
}

#[test]
fn truncated_file_that_is_not_in_use_keeps_its_remaining_entries() {
    for length in [4_096, 100_000, SIZE / 2 + 1, SIZE - 1] {
        let store = Store::new();
        fill(&store.limiter(QUOTA), 2_000);
        writable(&store).set_len(length).unwrap();
        let limiter = store.limiter(QUOTA);
        fill(&limiter, 2_000);
        assert_eq!(limiter.asynchronous().admin().keys(), Some(2_000));
    }
}

#[test]
fn file_truncated_while_in_use_is_refused() {
    let store = Store::new();
    let limiter = store.limiter(QUOTA);
    let _ = limiter.check("key").unwrap();
    writable(&store).set_len(SIZE / 2).unwrap();
    let error = store.limiter(QUOTA).check("key").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed);
    assert!(error.to_string().contains("it was truncated while it is in use"), "{error}");
    // The open limiter would fault on the missing pages, so the file is restored first.
    writable(&store).set_len(SIZE).unwrap();
}

#[test]
fn damaged_header_of_a_file_in_use_is_refused() {
    let store = Store::new();
    let limiter = store.builder(QUOTA).local_size(2 << 20).build().unwrap().blocking();
    let _ = limiter.check("key").unwrap();
    writable(&store).write_all_at(&SIZE.to_ne_bytes(), 16).unwrap();
    let error = store.limiter_of_any_size(QUOTA).check("key").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed);
    assert!(error.to_string().contains("its header was damaged while it is in use"), "{error}");
    assert_eq!(limiter.check("key").unwrap().remaining(), 98);
}

#[test]
fn states_of_an_earlier_boot_are_dropped() {
    let store = Store::new();
    fill(&store.limiter(QUOTA), 100);
    writable(&store).write_all_at(&[1; 16], 32).unwrap();
    let limiter = store.limiter(QUOTA);
    assert_eq!(limiter.check("key:50").unwrap().remaining(), 99);
    assert_eq!(limiter.asynchronous().admin().keys(), Some(1));
}

#[test]
fn lock_of_a_dead_owner_is_taken_over() {
    let store = Store::new();
    let limiter = store.limiter(QUOTA);
    let _ = limiter.check("key").unwrap();
    // The lock of the only shard.
    for owner in [1_u64, 7, u64::MAX, 0x1234_0000_0000_0001] {
        writable(&store).write_all_at(&owner.to_ne_bytes(), 8 * (512 + 4 * 1024)).unwrap();
        let started = Instant::now();
        assert!(limiter.check("key").unwrap().allowed());
        assert!(started.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(limiter.peek("key").unwrap().remaining(), 95);
}

#[test]
fn random_damage_causes_no_crash() {
    let mut random = Random(4_711);
    for round in 0..times("POLYLIMIT_LOCAL_DAMAGES", 60) {
        let store = Store::new();
        let in_use = round % 2 == 0;
        let mut limiter = store.limiter("5/m; 9/h sliding_log; 3/m token_bucket");
        fill(&limiter, 500);
        if !in_use {
            limiter = store.limiter(QUOTA);
        }
        let file = writable(&store);
        let shards_at = 8 * (512 + 4 * 1024);
        for _ in 0..=random.below(200) {
            // Small numbers look like block numbers.
            let word = if random.below(2) == 0 { random.below(9_000) } else { random.below(u64::MAX) };
            let at = match random.below(3) {
                0 => shards_at + 8 * (1 + random.below(15)),
                1 => shards_at + 8 * random.below(8_192) + 8,
                _ => shards_at + 8 + random.below(SIZE - shards_at - 16),
            };
            file.write_all_at(&word.to_ne_bytes(), at).unwrap();
        }
        for key in 0..1_500 {
            let key = format!("key:{key}");
            for answer in [limiter.check(&key).map(|_| ()), limiter.refund(&key).map(|_| ())] {
                if let Err(error) = answer {
                    assert_eq!(error.kind(), ErrorKind::StoreFailed, "{error}");
                }
            }
        }
    }
}

#[test]
fn circular_references_are_detected_quickly() {
    let patterns: [fn(u64) -> u64; 4] = [
        |_| 1,
        |at| 1 + at % 6_000,
        |at| 1 + at * 7_919 % 6_007,
        |at| ((1 + at % 6_000) << 32) | (1 + at * 7_919 % 6_007),
    ];
    for (number, pattern) in patterns.into_iter().enumerate() {
        let store = Store::new();
        fill(&store.limiter(QUOTA), 2_000);
        let shards = (512 + 4 * 1024) * 8;
        let bytes: Vec<u8> = (0..(SIZE - shards) / 8).flat_map(|at| pattern(at).to_ne_bytes()).collect();
        writable(&store).write_all_at(&bytes, shards).unwrap();
        let limiter = store.limiter(QUOTA);
        let before = cpu_time();
        assert_eq!(limiter.check("key").unwrap().remaining(), 99);
        let taken = cpu_time().checked_sub(before).unwrap();
        assert!(taken < Duration::from_secs(3), "{number}: {taken:?}");
    }
}

/// The processor time of this thread, which does not depend on the load of the machine.
fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let us = |time: TimeVal| Duration::from_micros(time.num_microseconds().try_into().unwrap());
    us(usage.user_time()) + us(usage.system_time())
}
