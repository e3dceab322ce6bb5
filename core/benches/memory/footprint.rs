//! The memory that a key takes, measured by the growth of a separate process.

use std::process::Command;

use polylimit::clock::Clock;
use polylimit::{Limiter, Policy, blocking};

use crate::contender::Contender;

const FLAG: &str = "--footprint";
const LIMITERS: [&str; 5] =
    ["governor", "100/h token_bucket", "100/h", "100/h sliding_log", "100/h buckets=60"];

/// The limiter that this process should measure, if it was started for a measurement.
pub(crate) fn asked_for() -> Option<String> {
    std::env::args().skip_while(|argument| argument != FLAG).nth(1)
}

/// Measures every limiter in its own process, so that none gets memory that another has freed.
pub(crate) fn report(keys: usize, quick: bool) {
    println!("bytes a key, of {keys} keys such as user:123456, tables and spare room included\n");
    println!("| limiter | bytes a key |\n|---|---:|");
    for limiter in LIMITERS {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args([FLAG, limiter]);
        if quick {
            command.arg("--quick");
        }
        let output = command.output().expect("it starts");
        println!("| {limiter} | {} |", String::from_utf8_lossy(&output.stdout).trim());
    }
}

/// Measures one limiter and prints its bytes per key.
pub(crate) fn print(limiter: &str, keys: usize) {
    let bytes = match limiter {
        "governor" => {
            let governor = Contender::bare(true);
            bytes_a_key(keys, |key| assert!(governor.decide(key)))
        }
        quota => {
            let limiter = of_quota(quota);
            bytes_a_key(keys, |key| assert!(limiter.check(key).is_ok()))
        }
    };
    println!("{bytes}");
}

fn of_quota(quota: &str) -> blocking::Limiter {
    let policy = Policy::parse("bench", quota).expect("a quota");
    Limiter::builder().policy(policy).clock(Clock::coarse()).build().expect("a limiter").blocking()
}

fn bytes_a_key(keys: usize, mut decide: impl FnMut(&String)) -> usize {
    let before = resident_bytes();
    for number in 0..keys {
        decide(&format!("user:{number}"));
    }
    resident_bytes().saturating_sub(before) / keys
}

/// The resident set, from Linux's `/proc/self/statm`: pages of 4 KiB.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
