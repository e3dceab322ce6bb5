//! How much memory a key takes, by the growth of this process.

use polylimit::{Limiter, Policy};

use crate::contender::Contender;

const KEYS: usize = 1_000_000;

pub(crate) fn report() {
    println!("bytes a key, of {KEYS} keys such as user:123456, tables and spare room included\n");
    println!("| limiter | bytes a key |\n|---|---:|");
    let governor = Contender::governor(true);
    println!("| governor | {} |", bytes_a_key(|key| assert!(governor.decide(key))));
    for quota in ["100/h token_bucket", "100/h", "100/h buckets=60", "100/h sliding_log"] {
        let policy = Policy::parse("bench", quota).expect("a quota");
        let limiter = Limiter::builder().policy(policy).build().expect("a limiter").blocking();
        println!("| {quota} | {} |", bytes_a_key(|key| assert!(limiter.check(key).is_ok())));
    }
}

fn bytes_a_key(mut decide: impl FnMut(&String)) -> usize {
    let before = resident_bytes();
    for number in 0..KEYS {
        decide(&format!("user:{number}"));
    }
    resident_bytes().saturating_sub(before) / KEYS
}

/// The resident set, from Linux's `/proc/self/statm`: pages of 4 KiB.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
