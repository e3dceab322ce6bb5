//! What was used stays used when a limit becomes small and large again.

use std::time::Duration;

use polylimit::{Limiter, ManualClock, Outage, Policy, Request};
use polylimit_test_servers::{Kind, Server};

use super::servers::patient;

#[test]
fn a_log_keeps_more_than_its_limit_allows() {
    let server = Server::start(Kind::Redis, &[]);
    let url = patient(&server.url());
    let policy = |limit: u64| Policy::parse("p", &format!("{limit}/minute sliding_log")).unwrap();
    let remaining = ["memory:", &url].map(|url| {
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let builder = Limiter::builder().store(url).clock(clock).policy(policy(1_000_000_000_000));
        let builder = if url == "memory:" { builder } else { builder.outage("p", Outage::Deny) };
        let limiter = builder.build().unwrap().blocking();
        limiter.charge(Request::new("user").cost(500_000_000_000)).unwrap();
        limiter.asynchronous().set_policy(policy(100)).unwrap();
        limiter.refund("user").unwrap();
        limiter.asynchronous().set_policy(policy(1_000_000_000_000)).unwrap();
        limiter.peek("user").unwrap().remaining()
    });
    assert_eq!(remaining[0], remaining[1]);
}

#[test]
fn what_ran_out_under_numbers_in_between_does_not_come_back() {
    let server = Server::start(Kind::Redis, &[]);
    let redis = patient(&server.url());
    // 20 units are used. Under the numbers in between they are refilled within 3 s, and under those after them within 10.
    let remaining = |url: &str, in_between_for: u64| {
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let policy =
            |limit: u64| Policy::parse("p", &format!("{limit}/second token_bucket burst=20 step=1")).unwrap();
        let limiter = Limiter::builder().store(url).clock(clock.clone()).policy(policy(1)).build().unwrap();
        let blocking = limiter.blocking();
        blocking.reset("user").unwrap();
        blocking.charge(Request::new("user").cost(20)).unwrap();
        limiter.set_policy(policy(8)).unwrap();
        clock.advance(Duration::from_secs(in_between_for)).unwrap();
        limiter.set_policy(policy(2)).unwrap();
        blocking.peek("user").unwrap().remaining()
    };
    for (in_between_for, expected) in [(2, 4), (3, 20)] {
        for url in ["memory:", &redis] {
            assert_eq!(remaining(url, in_between_for), expected, "{url} after {in_between_for} s");
        }
    }
}

#[test]
fn what_ran_out_before_a_limit_of_nothing_does_not_come_back() {
    let server = Server::start(Kind::Redis, &[]);
    let redis = patient(&server.url());
    let policy =
        |stepped: &str| Policy::parse("p", &format!("{stepped} token_bucket step=1; 1000/day")).unwrap();
    let remaining = ["memory:", &redis].map(|url| {
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let builder = Limiter::builder().store(url).clock(clock.clone()).policy(policy("10/second"));
        let limiter = builder.build().unwrap();
        let blocking = limiter.blocking();
        blocking.charge(Request::new("user").cost(20)).unwrap();
        clock.advance(Duration::from_secs(3)).unwrap();
        limiter.set_policy(policy("0/second")).unwrap();
        // Its states are written under these numbers.
        blocking.charge("user").unwrap();
        limiter.set_policy(policy("2/second")).unwrap();
        blocking.peek("user").unwrap().remaining()
    });
    assert_eq!(remaining, [2, 2]);
}
