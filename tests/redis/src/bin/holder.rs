//! Holds reservations of one key at the same time as other processes, and counts in Redis how many all of them hold at a time.
//!
//! Usage: `polylimit-holder STORE COUNTER LIMIT CALLERS ROUNDS`. `COUNTER` is the URL of a Redis server for the count. Each caller
//! reserves a slot of `LIMIT concurrent` this number of times, waiting in line, and holds it for up to two milliseconds. The program
//! prints the most holders that it has seen. With 0 rounds it reserves one slot, prints `held`, and keeps it until it is killed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]

use std::thread;
use std::time::Duration;

use polylimit::reservation::ReserveOptions;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy, blocking};
use polylimit_test_servers::redis::{Client, cmd};

const KEY: &str = "held";
const COUNT: &str = "holders";
const TTL: Duration = Duration::from_secs(60);
/// The ttl of a slot whose holder is killed.
const SHORT_TTL: Duration = Duration::from_secs(3);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, counter, limit, callers, rounds] = arguments.as_slice() else {
        panic!("usage: polylimit-holder STORE COUNTER LIMIT CALLERS ROUNDS")
    };
    let policy = Policy::parse("slots", &format!("{limit} concurrent")).unwrap();
    let builder = Limiter::builder().store(store).policy(policy);
    // Nothing but the store may hand out a slot.
    let is_redis = store.starts_with("redis");
    let builder = if is_redis { builder.outage("slots", Outage::Deny) } else { builder };
    let limiter = builder.build().unwrap().blocking();
    let (callers, rounds): (usize, usize) = (callers.parse().unwrap(), rounds.parse().unwrap());
    if rounds == 0 {
        let held = limiter.reserve(KEY, ReserveOptions::default().ttl(SHORT_TTL)).unwrap();
        assert!(held.allowed(), "{held:?}");
        println!("held");
        thread::sleep(TTL);
        return;
    }
    let callers: Vec<_> = (0..callers)
        .map(|number| {
            let (limiter, counter) = (limiter.clone(), counter.clone());
            thread::spawn(move || hold(&limiter, &counter, rounds, number as u64))
        })
        .collect();
    let most = callers.into_iter().map(|caller| caller.join().unwrap()).max();
    println!("{}", most.unwrap_or(0));
}

/// The most holders that a caller has counted while it was one of them.
fn hold(limiter: &blocking::Limiter, counter: &str, rounds: usize, seed: u64) -> i64 {
    let mut connection = Client::open(counter).unwrap().get_connection().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut most = 0;
    for _ in 0..rounds {
        let options = ReserveOptions::default().ttl(TTL).timeout(TTL);
        let held = limiter.reserve(KEY, options).unwrap();
        assert!(held.allowed(), "{held:?}");
        most = most.max(cmd("INCR").arg(COUNT).query(&mut connection).unwrap());
        thread::sleep(Duration::from_micros(random.u64(..2_000)));
        let _: i64 = cmd("DECR").arg(COUNT).query(&mut connection).unwrap();
        let left = if random.bool() { held.commit_blocking(1) } else { held.cancel_blocking() };
        assert!(left.unwrap().found());
    }
    most
}
