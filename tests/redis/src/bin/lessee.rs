//! Checks one key under a leased policy, writes a dot for each admitted request, and finally returns the units that it has
//! not spent.
//!
//! Usage: `polylimit-lessee URL QUOTA LEASE REQUESTS`. The program starts when its input has a line.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]

use std::io::{self, Write};

use polylimit::storage::Outage;
use polylimit::{Limiter, Policy};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, quota, lease, requests] = arguments.as_slice() else {
        panic!("usage: polylimit-lessee URL QUOTA LEASE REQUESTS")
    };
    let policy = Policy::parse("leased", quota).unwrap();
    let builder = Limiter::builder().store(url).policy(policy).outage("leased", Outage::Deny);
    let limiter = builder.lease("leased", lease.parse().unwrap()).build().unwrap().blocking();
    io::stdin().read_line(&mut String::new()).unwrap();
    let mut output = io::stdout();
    for _ in 0..requests.parse().unwrap() {
        let decision = limiter.check("key").unwrap();
        assert!(!decision.source().is_outage(), "{decision:?}");
        if decision.allowed() {
            // Unbuffered, since the test may kill this process.
            output.write_all(b".").unwrap();
            output.flush().unwrap();
        }
    }
    limiter.asynchronous().close();
}
