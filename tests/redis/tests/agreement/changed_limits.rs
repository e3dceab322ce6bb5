//! What was used stays used when a limit becomes small and large again.

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
        let limiter = builder.outage("p", Outage::Deny).build().unwrap().blocking();
        limiter.charge(Request::new("user").cost(500_000_000_000)).unwrap();
        limiter.asynchronous().set_policy(policy(100)).unwrap();
        limiter.refund("user").unwrap();
        limiter.asynchronous().set_policy(policy(1_000_000_000_000)).unwrap();
        limiter.peek("user").unwrap().remaining()
    });
    assert_eq!(remaining[0], remaining[1]);
}
