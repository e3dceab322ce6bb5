//! Contends for one key at a time, along with other processes: 64 callers at once, tasks and threads mixed.
//!
//! Usage: `polylimit-contender URL LIMIT`. It reads the number of a round in a line, has every caller ask for the key of
//! that round, and prints how many were admitted. It ends when its input does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]

use std::io::{BufRead, stdin};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use polylimit::{Decision, Limiter, Outage, Policy, Request};
use tokio::task::JoinSet;

/// The kinds of quotas, by the round. Their periods are so long that nothing comes back while a round lasts.
const KINDS: [&str; 5] = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"];
const TASKS: usize = 56;
const THREADS: usize = 4;
/// How often each thread asks, one question after the other.
const EACH: usize = 2;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, limit] = arguments.as_slice() else { panic!("usage: polylimit-contender URL LIMIT") };
    let mut builder = Limiter::builder().store(url);
    for kind in KINDS {
        let policy = Policy::parse(kind, &format!("{limit}/52w {kind}")).unwrap();
        builder = builder.policy(policy).outage(kind, Outage::Deny);
    }
    let limiter = builder.build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (counts, counted) = channel();
    let threads: Vec<Sender<usize>> = (0..THREADS).map(|_| start_thread(&limiter, &counts)).collect();
    for line in stdin().lock().lines() {
        let round: usize = line.unwrap().parse().unwrap();
        for thread in &threads {
            thread.send(round).unwrap();
        }
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            tasks.spawn_on(ask(limiter.clone(), round), runtime.handle());
        }
        let of_tasks: usize = runtime.block_on(tasks.join_all()).into_iter().sum();
        let of_threads: usize = counted.iter().take(THREADS).sum();
        println!("{}", of_tasks + of_threads);
    }
}

fn start_thread(limiter: &Limiter, counts: &Sender<usize>) -> Sender<usize> {
    let (orders, ordered): (_, Receiver<usize>) = channel();
    let (limiter, counts) = (limiter.blocking(), counts.clone());
    thread::spawn(move || {
        for round in ordered {
            let key = key(round);
            let asked = (0..EACH).map(|_| admitted(&limiter.check(request(&key, round)).unwrap()));
            counts.send(asked.sum()).unwrap();
        }
    });
    orders
}

async fn ask(limiter: Limiter, round: usize) -> usize {
    admitted(&limiter.check(request(&key(round), round)).await.unwrap())
}

fn key(round: usize) -> String {
    format!("round:{round}")
}

fn request(key: &str, round: usize) -> Request<'_> {
    Request::new(key).policy(KINDS[round % KINDS.len()])
}

fn admitted(decision: &Decision) -> usize {
    assert!(!decision.source().is_outage(), "{decision:?}");
    usize::from(decision.allowed())
}
