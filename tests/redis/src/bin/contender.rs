//! Contends with other processes for one key at a time, by 64 concurrent callers: tasks and threads.
//!
//! Usage: `polylimit-contender URL LIMIT`. For each line of input, the number of a round, every caller checks the key of that
//! round, and the program prints how many requests were admitted. It ends at the end of its input.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]

use std::io::{BufRead, stdin};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use polylimit::storage::Outage;
use polylimit::{Decision, Limiter, Policy, Request};
use tokio::task::JoinSet;

/// The algorithm of a round. The periods are so long that no units are refilled during a round.
const KINDS: [&str; 5] = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"];
const TASKS: usize = 56;
const THREADS: usize = 4;
/// The sequential requests of each thread in a round.
const REQUESTS_PER_THREAD: usize = 2;

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
    let (counts, receive_counts) = channel();
    let threads: Vec<Sender<usize>> = (0..THREADS).map(|_| start_thread(&limiter, &counts)).collect();
    for line in stdin().lock().lines() {
        let round: usize = line.unwrap().parse().unwrap();
        for thread in &threads {
            thread.send(round).unwrap();
        }
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            tasks.spawn_on(check(limiter.clone(), round), runtime.handle());
        }
        let of_tasks: usize = runtime.block_on(tasks.join_all()).into_iter().sum();
        let of_threads: usize = receive_counts.iter().take(THREADS).sum();
        println!("{}", of_tasks + of_threads);
    }
}

fn start_thread(limiter: &Limiter, counts: &Sender<usize>) -> Sender<usize> {
    let (rounds, receive_rounds): (_, Receiver<usize>) = channel();
    let (limiter, counts) = (limiter.blocking(), counts.clone());
    thread::spawn(move || {
        for round in receive_rounds {
            let key = key(round);
            let admitted = (0..REQUESTS_PER_THREAD)
                .map(|_| count_admitted(&limiter.check(request(&key, round)).unwrap()));
            counts.send(admitted.sum()).unwrap();
        }
    });
    rounds
}

async fn check(limiter: Limiter, round: usize) -> usize {
    count_admitted(&limiter.check(request(&key(round), round)).await.unwrap())
}

fn key(round: usize) -> String {
    format!("round:{round}")
}

fn request(key: &str, round: usize) -> Request<'_> {
    Request::new(key).policy(KINDS[round % KINDS.len()])
}

fn count_admitted(decision: &Decision) -> usize {
    assert!(!decision.source().is_outage(), "{decision:?}");
    usize::from(decision.allowed())
}
