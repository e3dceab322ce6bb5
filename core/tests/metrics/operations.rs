//! What each operation counts, in every store.

use std::time::Duration;

use polylimit::raw::{Answer, Call};
use polylimit::reservation::ReserveOptions;
use polylimit::{Limiter, Request};

use super::{Place, count, policy, samples};

fn limiter(place: &Place) -> Limiter {
    limiter_with(place, "1 concurrent; 100/hour")
}

/// Only where no policy has slots, a policy is found without a lookup.
fn limiter_with(place: &Place, slots: &str) -> Limiter {
    let policies = [
        policy("bucket", "10/minute token_bucket"),
        policy("window", "10/minute"),
        policy("both", "3/minute; 100/hour fixed_window"),
        policy("slots", slots),
        // Behind the policies that are found without a lookup.
        policy("fifth", "10/minute token_bucket"),
    ];
    policies.into_iter().fold(place.builder(), polylimit::LimiterBuilder::policy).build().unwrap()
}

fn places_and_slots() -> impl Iterator<Item = (Place, &'static str)> {
    ["1 concurrent; 100/hour", "100/hour"]
        .into_iter()
        .flat_map(|slots| Place::all().map(|place| (place, slots)))
}

#[test]
fn decisions_are_counted_with_their_units_and_what_denied() {
    for (place, slots) in places_and_slots() {
        let limiter = limiter_with(&place, slots);
        let blocking = limiter.blocking();
        let check =
            |name, key, cost| blocking.check(Request::new(key).policy(name).cost(cost)).unwrap().allowed();
        for name in ["bucket", "window", "fifth"] {
            assert!(check(name, "a", 1) && check(name, "a", 7) && check(name, "a", 1));
            assert!(check(name, "a", 0) && !check(name, "a", 2) && !check(name, "a", 20));
        }
        // Only the first of the quotas denies, then both.
        assert!(check("both", "a", 3) && !check("both", "a", 1) && !check("both", "b", 101));
        assert!(check("both", "a", 0) && check("both", "c", 1) && check("both", "c", 1));
        assert!(check("both", "c", 0));
        let by_store = |name: &str| {
            let made = |result| count(&limiter, "decisions_total", &[name, result, "store"]);
            let cached = count(&limiter, "decisions_total", &[name, "denied", "denial_cache"]);
            (made("allowed"), made("denied") + cached)
        };
        for name in ["bucket", "window", "fifth"] {
            assert_eq!(by_store(name), (4, 2), "{name} {}", place.name());
            assert_eq!(count(&limiter, "units_total", &[name, "allowed"]), 9, "{name} {}", place.name());
            assert_eq!(count(&limiter, "units_total", &[name, "denied"]), 22, "{name} {}", place.name());
            // Of 10 units 1 is left, and then also for a request that costs nothing.
            assert_eq!(count(&limiter, "near_limit_total", &[name]), 2, "{name} {}", place.name());
        }
        assert_eq!(by_store("both"), (5, 2), "{}", place.name());
        assert_eq!(count(&limiter, "near_limit_total", &["both"]), 2);
        assert_eq!(
            samples(&limiter, "denials_total"),
            [
                "bucket,10/minute token_bucket 2",
                "window,10/minute 2",
                "both,3/minute 2",
                "both,100/hour fixed_window 1",
                "fifth,10/minute token_bucket 2",
            ],
            "{}",
            place.name()
        );
        let causes = ["bucket,quota 2", "window,quota 2", "both,quota 2", "fifth,quota 2"];
        assert_eq!(samples(&limiter, "denial_causes_total"), causes);
    }
}

#[test]
fn every_way_to_check_counts_once() {
    for place in Place::all() {
        let limiter = limiter(&place);
        let blocking = limiter.blocking();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for name in ["bucket", "both", "fifth"] {
            let request = |key| Request::new(key).policy(name);
            let _ = blocking.check(request("blocking")).unwrap();
            runtime.block_on(async { limiter.check(request("future")).await.map(drop) }).unwrap();
            for decision in blocking.check_many(["many", "more"].map(request)) {
                assert!(decision.unwrap().allowed());
            }
            let many = runtime.block_on(limiter.check_many(["many", "more"].map(request)));
            assert!(many.into_iter().all(|decision| decision.unwrap().allowed()));
            assert_eq!(blocking.check_together(&["a", "b"].map(request)).unwrap().len(), 2);
            let Answer::Decision(_) = blocking.raw().call(&Call::Check(request("call"))).unwrap() else {
                panic!()
            };
            runtime.block_on(limiter.raw().call(&Call::Check(request("async call")))).unwrap();
            runtime.block_on(limiter.start(&Call::Check(request("started")))).unwrap();
            assert_eq!(count(&limiter, "decisions_total", &[name]), 11, "{name} {}", place.name());
            assert_eq!(count(&limiter, "operations_total", &[name]), 11, "{name} {}", place.name());
            let acquired = runtime.block_on(limiter.acquire(request("acquire"), Duration::from_secs(1)));
            assert!(acquired.unwrap().allowed());
            let _ = blocking.acquire(request("acquire").cost(50), Duration::ZERO).unwrap();
            assert_eq!(count(&limiter, "decisions_total", &[name]), 13, "{name} {}", place.name());
            assert_eq!(count(&limiter, "operations_total", &[name, "acquire"]), 2, "{name}");
            assert_eq!(count(&limiter, "operations_total", &[name, "check"]), 11, "{name}");
        }
    }
}

#[test]
fn other_operations_are_counted_by_kind_with_their_units() {
    for place in Place::all() {
        let limiter = limiter(&place);
        let blocking = limiter.blocking();
        for name in ["window", "fifth"] {
            let request = Request::new("a").policy(name);
            let _ = blocking.peek(request).unwrap();
            assert_eq!(blocking.take(request.cost(12)).unwrap().taken(), 10);
            let _ = (blocking.charge(request.cost(5)).unwrap(), blocking.refund(request.cost(4)).unwrap());
            let _ = (blocking.reset(request).unwrap(), blocking.reset(request).unwrap());
            let _ = blocking.admin().block(request, Duration::from_secs(1)).unwrap();
            assert!(!blocking.check(request).unwrap().allowed());
        }
        let slots = Request::new("a").policy("slots").cost(3);
        let first = blocking.reserve(slots, ReserveOptions::default()).unwrap();
        let second = blocking.reserve(slots, ReserveOptions::default()).unwrap();
        assert!(first.allowed() && !second.allowed());
        blocking.commit(slots, first.id(), Some(2)).unwrap();
        blocking.cancel(slots, second.id()).unwrap();
        // A commit of what was reserved names no units.
        let third = blocking.reserve(slots, ReserveOptions::default()).unwrap();
        blocking.commit(slots, third.id(), None).unwrap();
        let operations: Vec<_> = ["window", "fifth"]
            .into_iter()
            .flat_map(|name| {
                ["check 1", "peek 1", "take 1", "charge 1", "refund 1", "reset 2", "block 1"]
                    .map(|counted| format!("{name},{counted}"))
            })
            .collect();
        let mut counted = samples(&limiter, "operations_total");
        let of_slots = counted.split_off(7);
        assert_eq!(counted, operations[..7], "{}", place.name());
        assert_eq!(
            of_slots[..3],
            ["slots,reserve 3", "slots,commit 2", "slots,cancel 1"],
            "{}",
            place.name()
        );
        assert_eq!(of_slots[3..], operations[7..], "{}", place.name());
        assert_eq!(
            samples(&limiter, "operation_units_total"),
            [
                "window,take 10",
                "window,charge 5",
                "window,refund 4",
                "slots,commit 2",
                "fifth,take 10",
                "fifth,charge 5",
                "fifth,refund 4"
            ],
            "{}",
            place.name()
        );
        let causes = ["window,blocked 1", "slots,concurrency 1", "fifth,blocked 1"];
        assert_eq!(samples(&limiter, "denial_causes_total"), causes, "{}", place.name());
        assert_eq!(samples(&limiter, "denials_total"), ["slots,1 concurrent 1"], "{}", place.name());
    }
}

#[test]
fn policies_beyond_those_with_counts_of_their_own_are_counted_together() {
    let limiter = Limiter::builder().policy(policy("other", "4/minute")).build().unwrap();
    let blocking = limiter.blocking();
    for number in 1..1_100 {
        limiter.set_policy(policy(&format!("policy-{number}"), "4/minute token_bucket; 9/hour")).unwrap();
    }
    for name in ["other", "policy-1", "policy-1023", "policy-1024", "policy-1099"] {
        let request = Request::new("a").policy(name).cost(2);
        assert!(blocking.check(request).unwrap().allowed() && blocking.check(request).unwrap().allowed());
        assert!(!blocking.check(request).unwrap().allowed());
    }
    let allowed = |name| count(&limiter, "decisions_total", &[name, "allowed"]);
    assert_eq!(["other", "policy-1", "policy-1023", "policy-1024"].map(allowed), [6, 2, 2, 0]);
    assert_eq!(count(&limiter, "near_limit_total", &["other"]), 3);
    let quota = |name, quota| count(&limiter, "denials_total", &[name, quota]);
    assert_eq!(quota("policy-1023", "4/minute token_bucket"), 1);
    assert_eq!((quota("other", "4/minute"), quota("policy-1024", "")), (3, 0));
    // No label has two samples.
    for family in limiter.metrics() {
        let mut labels: Vec<_> = family.samples.iter().map(|sample| &sample.labels).collect();
        let samples = labels.len();
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), samples, "{}", family.name);
    }
}

#[test]
fn quotas_of_a_changed_policy_have_their_new_limits() {
    for place in Place::all() {
        let limiter = place.builder().policy(policy("api", "2/minute")).build().unwrap();
        let blocking = limiter.blocking();
        assert_eq!(samples(&limiter, "quota_limit_units"), ["api,2/minute 2"]);
        assert_eq!(samples(&limiter, "quota_period_seconds"), ["api,2/minute 60"]);
        assert!(!blocking.check(Request::new("a").cost(3)).unwrap().allowed());
        limiter.set_policy(policy("api", "3/minute; 4/2h; 9 concurrent")).unwrap();
        let limits = ["api,3/minute 3", "api,4/2h 4", "api,9 concurrent 9"];
        assert_eq!(samples(&limiter, "quota_limit_units"), limits);
        assert_eq!(samples(&limiter, "quota_period_seconds"), ["api,3/minute 60", "api,4/2h 7200"]);
        assert!(blocking.check(Request::new("b").policy("1/s")).unwrap().allowed());
        assert!(samples(&limiter, "decisions_total").contains(&"1|second,allowed,store 1".to_owned()));
    }
}
