//! The memory that a key takes in Redis, next to the layouts of peers.

use polylimit::{Limiter, Policy};
use polylimit_test_servers::Server;
use tokio::runtime::Runtime;

use crate::contender::REDIS_RATE;

const KEY: &str = "user:12345";

pub(crate) fn report(server: &Server, runtime: &Runtime) {
    println!("\nBytes a key in Redis (MEMORY USAGE, and what the expiry takes)\n");
    println!("| what is kept | peer | bytes | polylimit | ratio |");
    println!("|---|---|---:|---:|---:|");
    for (quota, units, peer, bytes) in [
        ("100/minute token_bucket", 1, "redis_rate", redis_rate(server)),
        ("100/minute buckets=1", 1, "two counters", two_counters(server)),
        ("100/minute sliding_log", 100, "sorted set of 100", sorted_set(server)),
    ] {
        server.command(&["FLUSHALL"]);
        let limiter = Limiter::builder()
            .store(&format!("{}?deadline=1s&outage=deny", server.url()))
            .policy(Policy::parse("api", quota).unwrap())
            .build()
            .unwrap();
        for _ in 0..units {
            let decision = runtime.block_on(limiter.check(KEY)).unwrap();
            assert!(decision.allowed() && decision.source() == polylimit::decision::Source::Store);
        }
        let ours = all(server);
        println!("| {quota} | {peer} | {bytes} | {ours} | {:.2} |", ours as f64 / bytes as f64);
    }
}

/// The memory of all keys together.
fn all(server: &Server) -> u64 {
    let keys: Vec<String> = server.query(&["KEYS", "*"]);
    keys.iter().map(|key| server.query::<u64>(&["MEMORY", "USAGE", key])).sum()
}

fn redis_rate(server: &Server) -> u64 {
    server.command(&["FLUSHALL"]);
    let key = format!("rate:{KEY}");
    server.command(&["EVAL", REDIS_RATE, "1", &key, "100", "100", "60", "1"]);
    all(server)
}

fn two_counters(server: &Server) -> u64 {
    server.command(&["FLUSHALL"]);
    for window in ["29832480", "29832481"] {
        server.command(&["SET", &format!("ratelimit:{KEY}:{window}"), "57", "EX", "120"]);
    }
    all(server)
}

fn sorted_set(server: &Server) -> u64 {
    server.command(&["FLUSHALL"]);
    let key = format!("ratelimit:{KEY}");
    for at in 0..100 {
        let at_us = (1_789_948_800_000_000_u64 + at * 1_003).to_string();
        server.command(&["ZADD", &key, &at_us, &at_us]);
    }
    server.command(&["PEXPIRE", &key, "60000"]);
    all(server)
}
