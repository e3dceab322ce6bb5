//! The edges of the semantics on real servers: policies of several quotas that one of them denies, limits that change, and
//! the latest times that a clock can show.

use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::decision::Usage;
use polylimit::reservation::{Reservation, ReservationId, ReserveOptions};
use polylimit::storage::Outage;
use polylimit::{Decision, Limiter, Policy, Quota, Request};
use polylimit_test_servers::{Kind, Row, Server};

use super::generators::{Random, random_policy_of};
use super::servers::{Servers, generous};

fn is_admitted_by_store(decision: &Decision) -> bool {
    assert!(!decision.source().is_outage(), "{decision:?}");
    decision.allowed()
}

#[test]
fn denied_policy_spends_from_no_quota() {
    let servers = Servers::start();
    let mut random = Random::new(3);
    let (mut decisions, mut denied) = (0, 0);
    for (case, url) in servers.urls().iter().cycle().take(150).enumerate() {
        let policy = random_policy_of("several", 2 + random.below(3), &mut random);
        if policy.quotas().iter().any(|quota| quota.count_denied() || quota.limit() == 0) {
            continue;
        }
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let builder = Limiter::builder().store(url).clock(clock.clone()).policy(policy.clone());
        let limiter = builder.outage("several", Outage::Deny).build().unwrap().blocking();
        let key = format!("case {case}");
        let least = policy.quotas().iter().map(Quota::capacity).min().unwrap();
        for _ in 0..30 {
            let cost = random.pick(&[1, 2, least / 3 + 1, least / 2 + 1, least, least + 1]);
            let request = Request::new(&key).cost(cost);
            let before = limiter.peek(request).unwrap();
            let decision = limiter.check(request).unwrap();
            let after = limiter.peek(request).unwrap();
            assert_eq!(is_admitted_by_store(&decision), is_admitted_by_store(&before), "{policy}");
            for ((was, is), quota) in before.quotas().iter().zip(after.quotas()).zip(policy.quotas()) {
                let spent = if decision.allowed() { cost } else { 0 };
                assert_eq!(is.remaining, was.remaining - spent, "{quota} of {policy}");
                if !decision.allowed() {
                    assert_eq!(is, was, "{quota} of {policy}");
                }
            }
            decisions += 1;
            denied += u64::from(!decision.allowed());
            if random.once_in(3) {
                clock.advance(random.pick(policy.quotas()).period() / random.pick(&[2, 10, 100])).unwrap();
            }
        }
    }
    assert!(denied > 500, "only {denied} were denied");
    Row::new("F58", "policies of two to four quotas")
        .decisions(decisions)
        .admitted(decisions - denied)
        .measured(format!("{denied} denials that spent nothing"))
        .record();
}

#[test]
fn denied_policy_writes_no_state() {
    let server = Server::start(Kind::Redis, &[]);
    // The last quota denies. Each of the others has a state of its own, and the log a key of its own.
    let quotas = "100/day token_bucket; 90/day leaky_bucket; 80/day token_bucket step=8; 70/day fixed_window; \
                  60/day buckets=4; 50/day sliding_log; 3/week sliding_log";
    let policy = Policy::parse("p", quotas).unwrap();
    let builder = Limiter::builder().store(&generous(&server.url())).policy(policy);
    let limiter = builder.outage("p", Outage::Deny).build().unwrap().blocking();
    for _ in 0..3 {
        assert!(is_admitted_by_store(&limiter.check("user").unwrap()));
    }
    let keys: Vec<String> = server.query(&["KEYS", "*"]);
    assert_eq!(keys.len(), 3, "{keys:?}");
    let bytes = || keys.iter().map(|key| server.query(&["GET", key])).collect::<Vec<Vec<u8>>>();
    let before = bytes();
    for cost in [1, 2, 3, 50, 100, 101] {
        assert!(!is_admitted_by_store(&limiter.check(Request::new("user").cost(cost)).unwrap()));
        for decision in limiter.check_many(vec![Request::new("user").cost(cost); 20]) {
            assert!(!is_admitted_by_store(&decision.unwrap()));
        }
        assert_eq!(limiter.take(Request::new("user").cost(cost)).unwrap().taken(), 0);
    }
    assert_eq!(bytes(), before);
}

#[test]
fn reservation_of_a_key_leaves_the_others_where_they_are() {
    let server = Server::start(Kind::Redis, &[]);
    let policies = ["100/hour token_bucket", "5 concurrent; 100/hour; 1000/day fixed_window"];
    for (number, quotas) in policies.into_iter().enumerate() {
        let policy = Policy::parse("jobs", quotas).unwrap();
        let url = format!("{}&prefix=p{number}", generous(&server.url()));
        // By the server's clock, a reservation may renew the key's time to live, which writes all of it.
        let builder = Limiter::builder().store(&url).clock(ManualClock::new(1_700_000_000_000_000).unwrap());
        let limiter = builder.policy(policy).build().unwrap().blocking();
        let reserve = || limiter.reserve("k", ReserveOptions::default().max_age(Duration::ZERO)).unwrap();
        let kept = [reserve(), reserve()];
        let calls_of = |command: &str| {
            let stats: String = server.query(&["INFO", "commandstats"]);
            let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
            let calls =
                line.and_then(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok());
            calls.unwrap_or(0)
        };
        let (gets, sets, parts) = (calls_of("get"), calls_of("set"), calls_of("setrange"));
        let third = reserve();
        assert!(kept.iter().all(Reservation::allowed) && third.allowed());
        // The general transition reads the key again, and writes all of it.
        let calls = (calls_of("get"), calls_of("set"), calls_of("setrange"));
        assert_eq!(calls, (gets + 1, sets, parts + 2), "{quotas}");
        assert!(third.commit_blocking(1).unwrap().found());
        assert_eq!(calls_of("get"), gets + 2, "{quotas}");
    }
}

#[test]
fn key_remembers_its_latest_thousand_commits() {
    let servers = Servers::start();
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let policy = Policy::parse("jobs", "10000/day fixed_window").unwrap();
    let builder = Limiter::builder().store(&servers.urls()[0]).clock(clock.clone()).policy(policy);
    let limiter = builder.outage("jobs", Outage::Deny).build().unwrap().blocking();
    let id = |number: u32| ReservationId::new(number.to_string()).unwrap();
    for number in 0..1_002 {
        // The time of one of the first would pass before that of the others.
        let remember = Duration::from_secs(if number == 7 { 3_000 } else { 3_600 });
        let options = ReserveOptions::default().id(id(number)).remember(remember).max_age(Duration::ZERO);
        let left = limiter.reserve("k", options).unwrap().commit_blocking(1).unwrap();
        assert!(left.found() && !left.repeated(), "{number}: {left:?}");
        if number % 100 == 0 {
            clock.advance(Duration::from_secs(1)).unwrap();
        }
    }
    let known = |number| limiter.commit("k", id(number), None).as_ref().is_ok_and(Usage::repeated);
    let forgotten: Vec<_> = (0..1_002).filter(|number| !known(*number)).collect();
    assert_eq!(forgotten, [0, 7]);
    assert_eq!(limiter.peek("k").unwrap().remaining(), 10_000 - 1_002);
    clock.advance(Duration::from_secs(3_600)).unwrap();
    assert!(!(0..1_002).any(known));
}

#[test]
fn sliding_log_keeps_usage_above_a_lowered_limit() {
    let server = Server::start(Kind::Redis, &[]);
    let url = generous(&server.url());
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
fn units_refilled_under_an_intermediate_limit_stay_refilled() {
    let server = Server::start(Kind::Redis, &[]);
    let redis = generous(&server.url());
    // 20 units are used. They are refilled within 3 s under the intermediate limit, and within 10 s under the last one.
    let remaining = |url: &str, intermediate_s: u64| {
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let policy =
            |limit: u64| Policy::parse("p", &format!("{limit}/second token_bucket burst=20 step=1")).unwrap();
        let limiter = Limiter::builder().store(url).clock(clock.clone()).policy(policy(1)).build().unwrap();
        let blocking = limiter.blocking();
        blocking.reset("user").unwrap();
        blocking.charge(Request::new("user").cost(20)).unwrap();
        limiter.set_policy(policy(8)).unwrap();
        clock.advance(Duration::from_secs(intermediate_s)).unwrap();
        limiter.set_policy(policy(2)).unwrap();
        blocking.peek("user").unwrap().remaining()
    };
    for (intermediate_s, expected) in [(2, 4), (3, 20)] {
        for url in ["memory:", &redis] {
            assert_eq!(remaining(url, intermediate_s), expected, "{url} after {intermediate_s} s");
        }
    }
}

#[test]
fn units_refilled_before_a_limit_of_zero_stay_refilled() {
    let server = Server::start(Kind::Redis, &[]);
    let redis = generous(&server.url());
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
        // This writes the states under the limit of 0.
        blocking.charge("user").unwrap();
        limiter.set_policy(policy("2/second")).unwrap();
        blocking.peek("user").unwrap().remaining()
    });
    assert_eq!(remaining, [2, 2]);
}

/// At the latest times, the sum of a time and a span is more than a double holds exactly. Each quota is tested alone and
/// next to another one, since the scripts read these states in different ways.
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
fn decisions_are_exact_at_the_latest_clock_times() {
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
        let limiters = [limiter("memory:"), limiter(&generous(&server.url()))];
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
