//! A policy of several quotas that one of them denies spends nothing from the others.

use polylimit::{Decision, Limiter, ManualClock, Outage, Quota, Request};
use polylimit_test_servers::{Kind, Server};

use super::policies::random_policy_of;
use super::random::Random;
use super::servers::{Servers, patient};

fn stored(decision: &Decision) -> bool {
    assert!(!decision.source().is_outage(), "{decision:?}");
    decision.allowed()
}

#[test]
fn what_is_denied_is_spent_nowhere() {
    let servers = Servers::start();
    let mut random = Random::new(3);
    let mut denied = 0;
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
            assert_eq!(stored(&decision), stored(&before), "{policy}");
            for ((was, is), quota) in before.quotas().iter().zip(after.quotas()).zip(policy.quotas()) {
                let spent = if decision.allowed() { cost } else { 0 };
                assert_eq!(is.remaining, was.remaining - spent, "{quota} of {policy}");
                if !decision.allowed() {
                    assert_eq!(is, was, "{quota} of {policy}");
                }
            }
            denied += usize::from(!decision.allowed());
            if random.once_in(3) {
                clock.advance(random.pick(policy.quotas()).period() / random.pick(&[2, 10, 100])).unwrap();
            }
        }
    }
    assert!(denied > 500, "only {denied} were denied");
}

#[test]
fn what_is_denied_is_written_nowhere() {
    let server = Server::start(Kind::Redis, &[]);
    // The last one denies; each of the others has a state of its own, the log even a key.
    let quotas = "100/day token_bucket; 90/day leaky_bucket; 80/day token_bucket step=8; 70/day fixed_window; \
                  60/day buckets=4; 50/day sliding_log; 3/week sliding_log";
    let policy = polylimit::Policy::parse("p", quotas).unwrap();
    let builder = Limiter::builder().store(&patient(&server.url())).policy(policy);
    let limiter = builder.outage("p", Outage::Deny).build().unwrap().blocking();
    for _ in 0..3 {
        assert!(stored(&limiter.check("user").unwrap()));
    }
    let keys: Vec<String> = server.query(&["KEYS", "*"]);
    assert_eq!(keys.len(), 3, "{keys:?}");
    let bytes = || keys.iter().map(|key| server.query(&["GET", key])).collect::<Vec<Vec<u8>>>();
    let before = bytes();
    for cost in [1, 2, 3, 50, 100, 101] {
        assert!(!stored(&limiter.check(Request::new("user").cost(cost)).unwrap()));
        for decision in limiter.check_many(vec![Request::new("user").cost(cost); 20]) {
            assert!(!stored(&decision.unwrap()));
        }
        assert_eq!(limiter.take(Request::new("user").cost(cost)).unwrap().taken(), 0);
    }
    assert_eq!(bytes(), before);
}
