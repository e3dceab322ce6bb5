//! Makes, uses and drops limiters. Prints the threads, descriptors and KiB of memory of the process before and after.
//!
//! Usage: `polylimit-churn URL COUNT`. The program ends at the end of its input.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use polylimit::decision::Source;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy};
use tokio::runtime::{Builder, Runtime};

const TIMEOUT: Duration = Duration::from_secs(10);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, count] = arguments.as_slice() else { panic!("usage: polylimit-churn URL COUNT") };
    let shared_runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Warm-up: resources that a process allocates once.
    (0..20).for_each(|i| use_one(url, i, &shared_runtime));
    let before = settled_resources(|_| true);
    (0..count.parse().unwrap()).for_each(|i| use_one(url, i, &shared_runtime));
    let after =
        settled_resources(|now| now.threads <= before.threads && now.descriptors <= before.descriptors);
    for resources in [before, after] {
        print!("{} {} {} ", resources.threads, resources.descriptors, resources.kib);
    }
    println!();
    io::read_to_string(io::stdin()).unwrap();
}

/// Makes a limiter and uses it from one kind of caller.
fn use_one(url: &str, i: usize, shared_runtime: &Runtime) {
    let policy = Policy::parse("churn", "1000000/hour").unwrap();
    let limiter = Limiter::builder().store(url).policy(policy).outage("churn", Outage::Deny).build().unwrap();
    let decision = match i % 5 {
        0 => return,
        1 => limiter.blocking().check("user"),
        2 => shared_runtime.block_on(limiter.check("user")),
        3 => Builder::new_current_thread().enable_all().build().unwrap().block_on(limiter.check("user")),
        // A thread of the limiter drives the connection of a blocking call inside a runtime.
        _ => shared_runtime.block_on(async { limiter.blocking().check("user") }),
    };
    assert_eq!(decision.unwrap().source(), Source::Store);
}

struct Resources {
    threads: usize,
    descriptors: usize,
    kib: usize,
}

/// The resources of this process when they are few enough, or after the timeout.
fn settled_resources(enough: impl Fn(&Resources) -> bool) -> Resources {
    let start = Instant::now();
    // Threads and sockets of the last limiter may still be closing.
    let mut last = resources();
    while start.elapsed() < Duration::from_millis(300) || (!enough(&last) && start.elapsed() < TIMEOUT) {
        std::thread::sleep(Duration::from_millis(20));
        last = resources();
    }
    last
}

fn resources() -> Resources {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    Resources { threads: field("Threads:"), descriptors, kib: field("VmRSS:") }
}
