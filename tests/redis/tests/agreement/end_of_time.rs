//! The latest times that a clock can show: a sum of such a time and a span is more than a double holds exactly.

use polylimit::{Limiter, ManualClock, Outage, Policy, Request};
use polylimit_test_servers::{Kind, Server};

/// Each alone, and beside another one: there the scripts read their states in another way.
const QUOTAS: [&str; 7] = [
    "1000/86399999ms token_bucket",
    "1000/day token_bucket",
    "999983/day token_bucket",
    "8/day token_bucket step=2",
    "5/h fixed_window",
    "1001/366d buckets=5",
    "9/366d sliding_log",
];

#[test]
fn decisions_are_exact() {
    let server = Server::start(Kind::Redis, &[]);
    for quotas in
        QUOTAS.into_iter().map(str::to_owned).chain(QUOTAS.map(|quota| format!("{quota}; 7/m buckets=1")))
    {
        let clock = ManualClock::new(ManualClock::MAX_US - 3).unwrap();
        let limiter = |store: &str| {
            let policy = Policy::parse("end", &quotas).unwrap();
            let builder = Limiter::builder().store(store).policy(policy).clock(clock.clone());
            let builder = if store == "memory:" { builder } else { builder.outage("end", Outage::Deny) };
            builder.build().unwrap().blocking()
        };
        let limiters = [limiter("memory:"), limiter(&server.url())];
        for passed_us in [0, 1, 2, 0, 0] {
            let now_us = (clock.now_us() + passed_us).min(ManualClock::MAX_US);
            clock.set(now_us).unwrap();
            let [memory, redis] = limiters.each_ref().map(|limiter| {
                let request = Request::new(quotas.as_str()).cost(2);
                (limiter.charge(quotas.as_str()).unwrap(), limiter.check(request).unwrap())
            });
            assert_eq!(memory, redis, "{quotas} at {now_us}");
        }
    }
}
