//! The numbers of a simulation equal those of a limiter that a loop drives by hand.

use polylimit::{Limiter, ManualClock, Policy, Request};

use super::*;
use crate::traffic::parse_traffic;

const START_US: u64 = 1_767_225_600_000_000;

fn limits(quotas: &str) -> Limits {
    let policy = Policy::parse("api", quotas).unwrap();
    Limits { label: quotas.to_owned(), kind: Kind::Policy(policy) }
}

fn scenario(traffic: &str, duration_us: u64) -> Scenario {
    Scenario::generated(parse_traffic(traffic).unwrap(), 42, START_US, duration_us)
}

/// All requests of clients that do not react, in order.
fn arrivals(scenario: &Scenario) -> Vec<Attempt> {
    let mut arrivals = Vec::new();
    scenario
        .run(|attempt| {
            arrivals.push(*attempt);
            Ok(Verdict::ADMITTED)
        })
        .unwrap();
    arrivals
}

#[test]
fn the_numbers_are_those_of_the_memory_store() {
    let scenario = scenario(
        "40 clients 2/s poisson zipf=1.1; batch: 3 clients burst=20 every=5s cost=2; bot: 1 client 30/s from=20s to=80s",
        120_000_000,
    );
    let arrivals = arrivals(&scenario);
    assert!(arrivals.len() > 10_000);
    for quotas in [
        "100/minute",
        "60/minute token_bucket burst=20",
        "10/10s leaky_bucket burst=30",
        "30/20s fixed_window; 60/minute",
        "100/minute sliding_log",
        "50/minute aligned fixed_window count_denied",
    ] {
        let course = scenario.course(&limits(quotas)).unwrap();
        let clock = ManualClock::new(START_US).unwrap();
        let policy = Policy::parse("other-name", quotas).unwrap();
        let limiter =
            Limiter::builder().policy(policy.clone()).clock(clock.clone()).build().unwrap().blocking();
        let mut by_hand = vec![(0, 0); scenario.keys.len()];
        let mut admitted: Vec<Vec<(u64, u64)>> = vec![Vec::new(); scenario.keys.len()];
        let mut delayed = 0;
        for arrival in &arrivals {
            clock.set(START_US + arrival.time_us).unwrap();
            let client = arrival.client as usize;
            let decision = limiter.check(Request::new(&*scenario.keys[client]).cost(arrival.cost)).unwrap();
            if decision.allowed() {
                by_hand[client].0 += 1;
                admitted[client].push((arrival.time_us, arrival.cost));
                delayed += u64::from(decision.delay_us() > 0);
            } else {
                by_hand[client].1 += 1;
            }
        }
        let of_key: Vec<_> = course.tally.keys.iter().map(|key| (key.admitted, key.denied)).collect();
        assert_eq!(of_key, by_hand, "{quotas}");
        assert_eq!(course.tally.waits.len(), delayed, "{quotas}");
        for (quota, most) in policy.quotas().iter().zip(course.tally.most_admitted()) {
            let period_us = u64::try_from(quota.period().as_micros()).unwrap();
            let found = admitted.iter().map(|times| most_in(times, period_us)).max().unwrap();
            assert_eq!(most.unwrap().0, found, "{quota}");
            assert!(found <= quota.most_admitted(quota.period()), "{quota}");
        }
    }
}

/// The most units in any span, looked for from each start.
fn most_in(times: &[(u64, u64)], span_us: u64) -> u64 {
    let from = |at: usize| {
        let rest = times[at..].iter().take_while(|(time_us, _)| time_us - times[at].0 < span_us);
        rest.map(|(_, cost)| cost).sum::<u64>()
    };
    (0..times.len()).map(from).max().unwrap_or(0)
}

#[test]
fn a_request_that_waits_as_told_is_admitted_then() {
    let scenario = scenario("3 clients 2/s poisson denied=wait", 600_000_000);
    let course = scenario.course(&limits("30/minute sliding_log")).unwrap();
    let counts = course.tally.counts;
    // Each client waits for its own key only, so the second attempt succeeds.
    assert!(counts.denied > 100);
    assert_eq!(counts.requests, counts.admitted + course.ends.unfinished);
    assert_eq!(counts.denied - course.ends.unfinished, course.tally.waits.len());
}

#[test]
fn retries_make_a_storm() {
    let denied = |reaction: &str| {
        let scenario = scenario(&format!("20 clients 1/s poisson denied={reaction}"), 300_000_000);
        scenario.course(&limits("20/minute")).unwrap().tally.counts.denied
    };
    assert!(denied("retry=100ms") > 2 * denied("hammer"));
    assert!(denied("wait") < denied("hammer"));
    assert_eq!(denied("leave"), 20);
}

#[test]
fn demand_is_what_no_limit_would_stop() {
    let scenario = scenario("1 client burst=20 every=30s denied=leave", 3_600_000_000);
    let demand = scenario.demand().unwrap();
    let most: Vec<_> = demand.most_admitted().into_iter().map(|most| most.unwrap()).collect();
    assert_eq!(most, [(20, 0), (40, 0), (2_400, 0)]);
    assert_eq!((demand.counts.admitted, demand.counts.denied), (2_400, 0));
}

#[test]
fn a_document_decides_about_generated_clients() {
    let text = "polylimit = 1\n[policies.login]\nquotas = \"5/minute\"\npenalty = { denials = 3, within = \"1h\", block = \"10m\" }";
    let kind = Kind::Document { text: text.to_owned(), policy: Some("login".to_owned()) };
    let limits = Limits { label: "login".to_owned(), kind };
    let course = scenario("1 client 1/s", 600_000_000).course(&limits).unwrap();
    assert_eq!(course.tally.counts.admitted, 5);
    assert!(course.tally.keys[0].longest_block_us > 590_000_000);
}
