//! The Redis store in every topology, over every kind of connection and from every kind of caller, on real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what a test cannot do fails it")]

mod cluster;
mod connections;
mod doctor;
mod load;
mod many_limiters;
mod noise;
mod patience;
mod quiet;
mod read_only;
mod rights;
mod run_queue;
mod runtimes;
mod sentinel;
mod shards;
mod sharing;

use polylimit::{Limiter, Outage, Policy};

/// A limiter of one policy, `p`, that denies what the store does not answer, and asks it each time.
fn limiter(url: &str, quotas: &str) -> Limiter {
    let policy = Policy::parse("p", quotas).unwrap();
    Limiter::builder()
        .store(&with(url, "denial_cache_max=0&doctor_after=0"))
        .policy(policy)
        .outage("p", Outage::Deny)
        .build()
        .unwrap()
}

/// The URL with one more parameter.
fn with(url: &str, parameter: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{parameter}")
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("user:{i}")).collect()
}

/// A runtime of one thread.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
