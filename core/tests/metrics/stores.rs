//! The families that describe the store.

use std::collections::HashSet;

use polylimit::decision::Degradation;
use polylimit::{Limiter, Request};

use super::{Place, count, policy, samples};

/// The value of the only sample of a family.
fn only(limiter: &Limiter, family: &str) -> String {
    let samples = samples(limiter, family);
    assert!(samples.len() <= 1, "{family}: {samples:?}");
    samples.first().cloned().unwrap_or_default()
}

#[test]
fn operations_of_the_store_are_counted_everywhere() {
    for place in Place::all() {
        let limiter = place.builder().policy(policy("api", "2/minute")).build().unwrap();
        let blocking = limiter.blocking();
        for _ in 0..2 {
            assert!(blocking.check("a").unwrap().allowed());
        }
        let (_, _) = (blocking.peek("a").unwrap(), blocking.refund("a").unwrap());
        assert!(blocking.check_many(["b", "c"]).into_iter().all(|decision| decision.unwrap().allowed()));
        assert_eq!(samples(&limiter, "store_operations_total"), ["applied 6"], "{}", place.name());
        assert_eq!(limiter.stats().applied, 6, "{}", place.name());
        assert_eq!(only(&limiter, "store_up"), "1");
        assert_eq!(only(&limiter, "build_info"), format!("{},{} 1", env!("CARGO_PKG_VERSION"), place.name()));
        let is_redis = matches!(place, Place::Redis(_));
        assert_eq!(only(&limiter, "keys"), if is_redis { "" } else { "3" });
        let capacity = only(&limiter, "keys_capacity");
        let deadline = only(&limiter, "store_deadline_seconds");
        assert_eq!(deadline, if is_redis { "10" } else { "" });
        match place {
            Place::Memory => assert_eq!(capacity, "1000"),
            Place::Local(_) => {
                assert!((6_000..8_000).contains(&capacity.parse::<u32>().unwrap()), "{capacity}");
            }
            Place::Redis(_) => assert_eq!(capacity, ""),
        }
        // Once it is closed, a limiter still reports what it has counted.
        limiter.close();
        assert_eq!(count(&limiter, "decisions_total", &["api"]), 4);
        assert_eq!((only(&limiter, "store_up"), only(&limiter, "keys")), (String::new(), String::new()));
    }
}

#[test]
fn decisions_of_a_full_store_are_degraded() {
    let limiter =
        Limiter::builder().policy(policy("api", "5/hour token_bucket")).max_keys(1).build().unwrap();
    for key in ["a", "b", "b", "c"] {
        assert!(limiter.blocking().check(key).unwrap().allowed());
    }
    assert_eq!(samples(&limiter, "degraded_total"), [format!("api,{} 3", Degradation::StoreFull.name())]);
    assert_eq!(count(&limiter, "decisions_total", &["api", "allowed", "store"]), 4);
}

/// Long states take more room than short ones, so that fewer keys fit.
#[test]
fn a_full_local_store_has_as_many_keys_as_its_capacity() {
    for quotas in ["5/day token_bucket", "5/day; 100/w; 1000/d token_bucket"] {
        let [_, place, _] = Place::all();
        let limiter = place.builder().policy(policy("api", quotas)).build().unwrap();
        let blocking = limiter.blocking();
        let full = (0..30_000).find(|key| {
            let decision = blocking.check(format!("user-{key}").as_str()).unwrap();
            decision.degraded() == Some(Degradation::StoreFull)
        });
        let number = |name| only(&limiter, name).parse::<u32>().unwrap();
        let (keys, capacity) = (number("keys"), number("keys_capacity"));
        assert!(
            full.is_some() && keys <= capacity && capacity - keys < capacity / 20,
            "{keys} of {capacity}"
        );
    }
}

#[test]
fn operations_that_a_local_store_cannot_apply_are_counted() {
    let [_, place, _] = Place::all();
    let Place::Local(path) = &place else { panic!() };
    std::fs::write(path, [7; 4096]).unwrap();
    let limiter = place.builder().policy(policy("api", "5/hour")).build().unwrap();
    limiter.blocking().check(Request::new("a")).unwrap_err();
    let stats = limiter.stats();
    assert_eq!((stats.applied, stats.not_applied + stats.permanent), (0, 1), "{stats:?}");
    assert_eq!(samples(&limiter, "store_up"), [] as [&str; 0]);
    assert_eq!(count(&limiter, "decisions_total", &["api"]), 0);
}

/// Every limiter has the same families, once each.
#[test]
fn families_are_the_same_for_every_store() {
    let all = Place::all().map(|place| {
        let limiter = place.builder().policy(policy("api", "2/minute")).build().unwrap();
        let names: Vec<_> = limiter.metrics().iter().map(|family| family.name).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        names
    });
    assert!(all[0] == all[1] && all[0] == all[2]);
}
