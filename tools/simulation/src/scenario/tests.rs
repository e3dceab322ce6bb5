//! The numbers of a simulation equal those of a limiter that a loop drives by hand.

use polylimit::clock::ManualClock;
use polylimit::{Limiter, Policy, Request};

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

/// What a loop finds that lets clients react as docs/simulation.md says, with a limiter of its own.
#[derive(Debug, Default, PartialEq, Eq)]
struct ByHand {
    /// Admitted and denied attempts of each client.
    of_key: Vec<(u64, u64)>,
    requests: u64,
    waited: u64,
    longest_wait_us: u64,
    unfinished: u64,
}

/// A client that sends a request each second from a time on, and repeats a denied one `repeats` later, or after the wait that it receives;
/// meanwhile it sends nothing, and what follows is moved by the time that it has waited.
fn by_hand(starts_us: &[u64], quotas: &str, duration_us: u64, repeats: Option<u64>) -> ByHand {
    const GAP_US: u64 = 1_000_000;
    struct Client {
        next_us: u64,
        /// When the request was first made that is being repeated.
        first_us: Option<u64>,
    }
    let clock = ManualClock::new(START_US).unwrap();
    let policy = Policy::parse("by-hand", quotas).unwrap();
    let limiter = Limiter::builder().policy(policy).clock(clock.clone()).build().unwrap().blocking();
    let mut found = ByHand { of_key: vec![(0, 0); starts_us.len()], ..ByHand::default() };
    let mut clients: Vec<Client> =
        starts_us.iter().map(|start_us| Client { next_us: *start_us, first_us: None }).collect();
    loop {
        let (number, client) =
            clients.iter_mut().enumerate().min_by_key(|(number, client)| (client.next_us, *number)).unwrap();
        let now_us = client.next_us;
        if now_us >= duration_us {
            break;
        }
        clock.set(START_US + now_us).unwrap();
        let decision = limiter.check(&format!("key {number}")).unwrap();
        let first_us = client.first_us.unwrap_or(now_us);
        found.requests += u64::from(client.first_us.is_none());
        if decision.allowed() {
            found.of_key[number].0 += 1;
            found.waited += u64::from(now_us > first_us);
            found.longest_wait_us = found.longest_wait_us.max(now_us - first_us);
            *client = Client { next_us: now_us + GAP_US, first_us: None };
        } else {
            found.of_key[number].1 += 1;
            let wait_us = repeats.or(decision.retry_after_us()).unwrap();
            *client = Client { next_us: now_us + wait_us, first_us: Some(first_us) };
        }
    }
    found.unfinished = clients.iter().filter(|client| client.first_us.is_some()).count() as u64;
    found
}

#[test]
fn clients_that_wait_or_retry_get_what_a_loop_gives_them() {
    const DURATION_US: u64 = 300_000_000;
    for quotas in ["30/minute sliding_log", "30/minute token_bucket burst=4", "10/20s fixed_window; 100/4m"] {
        for (reaction, repeats) in
            [("wait", None), ("retry=100ms", Some(100_000)), ("retry=7s", Some(7_000_000))]
        {
            let scenario = scenario(&format!("4 clients 1/s even denied={reaction}"), DURATION_US);
            // Each client begins at a random point of its first gap: what it sends first, whatever is decided.
            let mut starts_us = vec![None; 4];
            for arrival in arrivals(&scenario) {
                let _ = starts_us[arrival.client as usize].get_or_insert(arrival.time_us);
            }
            let starts_us: Vec<u64> = starts_us.into_iter().map(Option::unwrap).collect();
            let course = scenario.course(&limits(quotas)).unwrap();
            let tally = &course.tally;
            let simulated = ByHand {
                of_key: tally.keys.iter().map(|key| (key.admitted, key.denied)).collect(),
                requests: tally.counts.requests,
                waited: tally.waits.len(),
                longest_wait_us: tally.longest_wait_us,
                unfinished: course.ends.unfinished,
            };
            let expected = by_hand(&starts_us, quotas, DURATION_US, repeats);
            assert!(expected.waited > 10 && expected.requests > 200, "{expected:?}");
            assert_eq!(simulated, expected, "{quotas}, {reaction}");
        }
    }
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
