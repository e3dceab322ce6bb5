//! Floods of distinct keys on the memory store: its memory stays within a bound, and a limited key stays limited. The only
//! test of its process, since it measures the memory of the process.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use polylimit::decision::Degradation;
use polylimit::{Limiter, Policy};
use polylimit_test_servers::Row;

/// How many keys a flood has, in the short and in the long form.
const KEYS: [u64; 2] = [1_000_000, 10_000_000];
/// The most bytes that the store needs for a key of a token bucket, tables and spare room included.
const BYTES_PER_KEY: u64 = 128;
/// Memory that does not depend on the number of keys.
const OTHER_BYTES: u64 = 8 << 20;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Sends a flood of keys to a store for this number of keys, and checks a key that is limited before, during and after it.
fn flood(keys: u64, max_keys: u64) {
    let policy = Policy::parse("api", "1/day token_bucket").unwrap();
    let max = usize::try_from(max_keys).unwrap();
    let limiter = Limiter::builder().policy(policy).max_keys(max).build().unwrap().blocking();
    let before = resident_bytes();
    assert!(limiter.check("limited").unwrap().allowed());
    let mut full = 0;
    for number in 0..keys {
        let decision = limiter.check(&format!("flood:{number}")).unwrap();
        full += u64::from(decision.degraded() == Some(Degradation::StoreFull));
        if number % (keys / 100) == 0 {
            let denial = limiter.check("limited").unwrap();
            assert!(!denial.allowed() && denial.degraded().is_none(), "{denial:?}");
        }
    }
    let (grown, most) = (resident_bytes().saturating_sub(before), max_keys * BYTES_PER_KEY + OTHER_BYTES);
    let held = limiter.asynchronous().admin().keys().unwrap() as u64;
    assert!(held <= max_keys, "{held} keys, {max_keys} are the most");
    // The shards fill up one by one, so that some keys find no room before the last one is full.
    assert!(
        held + full > keys && held > keys.min(max_keys) * 9 / 10,
        "{held} keys held, {full} without room"
    );
    assert!(grown <= most, "{grown} bytes more, {most} are the most");
    Row::new("S3", format!("{keys} keys on a memory store for {max_keys}"))
        .decisions(keys)
        .bound(1, 1)
        .measured(format!(
            "memory grew by {} MiB, at most {} MiB; {held} keys held; a limited key stayed limited",
            grown >> 20,
            most >> 20
        ))
        .record();
}

#[test]
fn flood_of_keys_stays_within_its_memory_and_a_limited_key_stays_limited() {
    let keys = KEYS[usize::from(Row::is_long())];
    // The smaller one first: what it leaves behind would hide growth.
    flood(keys, keys / 10);
    flood(keys, keys + 1);
}
