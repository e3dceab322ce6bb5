//! The memory of a key in this process while a layer keeps it, and after the layer has dropped it.

use std::time::Duration;

use polylimit::redis::Lease;
use polylimit::{Limiter, Policy, blocking};
use polylimit_test_servers::Server;

use crate::allocated::held;

pub(crate) fn report(server: &Server, is_quick: bool) {
    // Leases last longer than two requests for every key take.
    let (keys, leased_for) = if is_quick { (1_000, 2) } else { (20_000, 10) };
    let leased_for = Duration::from_secs(leased_for);
    println!(
        "bytes a key in the process, of {keys} keys such as user:123456, tables and spare room included\n"
    );
    println!("| layer | active | idle |\n|---|---:|---:|");
    row("denial cache", &limiter(server, "1/day", None).blocking(), keys, Duration::ZERO);
    let lease = Lease::new(8, leased_for).unwrap();
    let until_idle = leased_for + Duration::from_secs(1);
    row("leased", &limiter(server, "1000000/day", Some(lease)).blocking(), keys, until_idle);
}

fn row(layer: &str, limiter: &blocking::Limiter, keys: usize, until_idle: Duration) {
    // Opens the connection and its buffers before the first measurement.
    let _ = limiter.check("user").unwrap();
    let before = held();
    for number in 0..keys {
        for _ in 0..2 {
            let _ = limiter.check(format!("user:{number}").as_str()).unwrap();
        }
    }
    let active = held() - before;
    // A reset removes a cached denial; leases end with their time.
    for number in 0..keys {
        let _ = limiter.reset(format!("user:{number}").as_str()).unwrap();
    }
    std::thread::sleep(until_idle);
    println!("| {layer} | {} | {} |", active / keys, held().saturating_sub(before) / keys);
}

/// A limiter with one policy on an empty server.
pub(crate) fn limiter(server: &Server, quota: &str, lease: Option<Lease>) -> Limiter {
    let policy = Policy::parse("footprint", quota).unwrap();
    let url = format!("{}?deadline=10s&outage=deny&denial_cache_max=1h", server.url());
    let builder = Limiter::builder().store(&url).policy(policy);
    let limiter = lease.into_iter().fold(builder, |builder, lease| builder.lease("footprint", lease));
    server.command(&["FLUSHALL"]);
    limiter.build().unwrap()
}
