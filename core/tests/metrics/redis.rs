//! What only a store in Redis counts.

use std::time::Duration;

use polylimit::metrics::SampleValue;
use polylimit::storage::Outage;
use polylimit::{Limiter, Request};

use super::{Place, count, policy, samples};

fn limiter(place: &Place) -> Limiter {
    let Place::Redis(server) = place else { panic!("another store") };
    let builder = Limiter::builder().store(&format!("{}?deadline=10s&breaker_failures=1", server.url()));
    let builder = builder.policy(policy("api", "2/day")).policy(policy("leased", "100000/day"));
    builder.option("lease.leased", "100").outage("api", Outage::Deny).build().unwrap()
}

/// The observations, their sum, and the counts of the buckets.
fn durations(limiter: &Limiter) -> (u64, f64, Vec<(f64, u64)>) {
    let families = limiter.metrics();
    let family = families.iter().find(|family| family.name == "polylimit_store_duration_seconds").unwrap();
    let SampleValue::Histogram { buckets, sum, count } = &family.samples[0].value else { panic!() };
    (*count, *sum, buckets.clone())
}

#[test]
fn answers_of_the_denial_cache_and_of_leases_have_their_source() {
    let place = Place::redis();
    let limiter = limiter(&place);
    let blocking = limiter.blocking();
    let api = Request::new("a").policy("api");
    while blocking.check(api).unwrap().allowed() {}
    let many = [0; 10].map(|_| api);
    assert!(blocking.check_many(many).into_iter().all(|decision| !decision.unwrap().allowed()));
    assert!(!blocking.check(api).unwrap().allowed());
    let source = |name, source| count(&limiter, "decisions_total", &[name, "", source]);
    assert_eq!((source("api", "store"), source("api", "denial_cache")), (3, 11));
    assert_eq!(count(&limiter, "denial_cache_answers_total", &[]), 11);
    assert_eq!(count(&limiter, "denials_total", &["api"]), 12);
    let denied_units = |source| count(&limiter, "units_total", &["api", "denied", source]);
    assert_eq!((denied_units("store"), denied_units("denial_cache")), (1, 11));
    assert!(!blocking.check(api.cost(5)).unwrap().allowed());
    assert_eq!(denied_units("store") + denied_units("denial_cache"), 1 + 11 + 5);
    let mut checks = 0;
    while source("leased", "lease") < 50 {
        assert!(blocking.check(Request::new("a").policy("leased").cost(2)).unwrap().allowed());
        checks += 1;
        assert!(checks < 40_000, "{:?}", limiter.stats());
    }
    assert_eq!(source("leased", "lease") + source("leased", "store"), checks);
    assert_eq!(count(&limiter, "units_total", &["leased"]), 2 * checks);
    assert_eq!(count(&limiter, "lease_answers_total", &[]), 50);
    assert_eq!(samples(&limiter, "lease_units").is_empty(), limiter.stats().lease_units_held == 0);
}

#[test]
fn every_call_has_a_duration() {
    let place = Place::redis();
    let limiter = limiter(&place);
    for _ in 0..20 {
        let _ = limiter.blocking().peek(Request::new("a").policy("api")).unwrap();
    }
    let (count, sum, buckets) = durations(&limiter);
    // A call that sends the script follows one that the server does not know.
    assert_eq!(count, limiter.stats().calls);
    assert!(count >= 20 && sum > 0.0 && sum < 60.0);
    assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
}

#[test]
fn an_outage_shows() {
    let place = Place::redis();
    let limiter = limiter(&place);
    let blocking = limiter.blocking();
    let check = || blocking.check(Request::new("a").policy("api")).unwrap();
    assert!(check().allowed());
    assert_eq!(samples(&limiter, "store_up"), ["1"]);
    let Place::Redis(server) = &place else { panic!() };
    server.kill();
    while !check().source().is_outage() {}
    let _ = blocking.refund(Request::new("a").policy("leased")).unwrap();
    assert!(samples(&limiter, "store_up").is_empty());
    let denied = count(&limiter, "decisions_total", &["api", "denied", "deny"]);
    assert!(denied >= 1);
    assert_eq!(count(&limiter, "store_outage_answers_total", &["deny"]), denied);
    assert_eq!(count(&limiter, "store_outage_answers_total", &["fallback"]), 1);
    assert_eq!(count(&limiter, "degraded_total", &["api"]), denied);
    assert_eq!(count(&limiter, "degraded_total", &["leased"]), 1);
    // No quota denied, and the outage policy has no cause.
    assert_eq!(count(&limiter, "denials_total", &["api"]), 0);
    assert_eq!(count(&limiter, "denial_causes_total", &["api", "outage"]), denied);
    assert_eq!(count(&limiter, "near_limit_total", &["api"]), 0);
}

#[test]
fn a_call_without_a_reply_counts_until_it_was_given_up() {
    let place = Place::redis();
    let Place::Redis(server) = &place else { panic!() };
    let builder = Limiter::builder().store(&format!("{}?deadline=200ms", server.url()));
    let limiter = builder.policy(policy("api", "2/day")).build().unwrap();
    let blocking = limiter.blocking();
    while blocking.peek("a").unwrap().source().is_outage() {}
    let answered = durations(&limiter).0;
    server.stop();
    assert!(blocking.peek("a").unwrap().source().is_outage());
    server.cont();
    let (count, sum, _) = durations(&limiter);
    assert_eq!(count, answered + 1);
    assert!(sum >= Duration::from_millis(200).as_secs_f64(), "{sum}");
}
