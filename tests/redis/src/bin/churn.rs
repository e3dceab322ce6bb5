//! Makes, uses and drops limiters, and prints the threads, descriptors and KiB of memory that it held before and after.
//!
//! Usage: `polylimit-churn URL COUNT`. It ends when its input does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use polylimit::{Limiter, Outage, Policy, Source};
use tokio::runtime::{Builder, Runtime};

const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, count] = arguments.as_slice() else { panic!("usage: polylimit-churn URL COUNT") };
    let lasting = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // What is made once by a process is there after these.
    (0..20).for_each(|i| use_one(url, i, &lasting));
    let before = settled(|_| true);
    (0..count.parse().unwrap()).for_each(|i| use_one(url, i, &lasting));
    let after = settled(|held| held.threads <= before.threads && held.descriptors <= before.descriptors);
    for held in [before, after] {
        print!("{} {} {} ", held.threads, held.descriptors, held.kib);
    }
    println!();
    io::read_to_string(io::stdin()).unwrap();
}

/// Makes a limiter and uses it in one of the ways in which it can be.
fn use_one(url: &str, i: usize, lasting: &Runtime) {
    let policy = Policy::parse("churn", "1000000/hour").unwrap();
    let limiter = Limiter::builder().store(url).policy(policy).outage("churn", Outage::Deny).build().unwrap();
    let decision = match i % 5 {
        // Not at all.
        0 => return,
        1 => limiter.blocking().check("user"),
        2 => lasting.block_on(limiter.check("user")),
        3 => Builder::new_current_thread().enable_all().build().unwrap().block_on(limiter.check("user")),
        // Has a thread of its own drive the connection.
        _ => lasting.block_on(async { limiter.blocking().check("user") }),
    };
    assert_eq!(decision.unwrap().source(), Source::Store);
}

struct Held {
    threads: usize,
    descriptors: usize,
    kib: usize,
}

/// What this process holds once it holds no more than it should, or after a while.
fn settled(enough: impl Fn(&Held) -> bool) -> Held {
    let start = Instant::now();
    // Threads and sockets of the last limiter may be on their way out.
    let mut best = held();
    while start.elapsed() < Duration::from_millis(300) || (!enough(&best) && start.elapsed() < PATIENCE) {
        std::thread::sleep(Duration::from_millis(20));
        best = held();
    }
    best
}

fn held() -> Held {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    Held { threads: field("Threads:"), descriptors, kib: field("VmRSS:") }
}
