//! The policies of a configuration: what is counted is what callers get.

use std::time::{Duration, Instant};

use polylimit::document::RequestAttributes;
use polylimit::reservation::ReserveOptions;
use polylimit::{Limiter, Request};

use super::{Place, count, samples};

const DOCUMENT: &str = r#"
    polylimit = 1
    [policies.shadow]
    quotas = "1/minute"
    mode = "shadow"
    [policies.off]
    quotas = "1/minute"
    mode = "off"
    [policies.elastic]
    quotas = "1/minute"
    elastic = { policy = "pool", key = "all" }
    [policies.pool]
    quotas = "3/minute"
    [policies.tried]
    quotas = "3/minute"
    overrides = { "user=big" = "100/minute" }
    candidate = { quotas = "1/minute", compare = 1000 }
    [[rules]]
    match = { path = "/tried" }
    apply = [{ policy = "tried", key = "user={user}" }]
    [lists]
    deny = ["key tried bad", "user bad"]
"#;

/// Whether a policy admits a key.
type Check<'a> = dyn Fn(&str, &str) -> bool + 'a;

#[test]
fn a_configured_policy_counts_its_final_answer() {
    for place in Place::all() {
        let limiter = place.builder().document(DOCUMENT).build().unwrap();
        let blocking = limiter.blocking();
        let check = |name: &str, key: &str| blocking.check(Request::new(key).policy(name)).unwrap().allowed();
        let check_many = |name: &str, key: &str| {
            let many = blocking.check_many([Request::new(key).policy(name)]);
            many.into_iter().all(|decision| decision.unwrap().allowed())
        };
        let ways: [&Check<'_>; 2] = [&check, &check_many];
        for (round, check) in ways.into_iter().enumerate() {
            let key = format!("key {round}");
            let check = |name| check(name, &key);
            assert!(check("shadow") && check("shadow") && check("shadow"));
            assert!(check("off") && check("off"));
            assert!(check("tried") && check("tried") && check("tried") && !check("tried"));
        }
        assert!(check("elastic", "a") && check("elastic", "a") && check("elastic", "a"));
        assert!(!check("elastic", "a") && !check("tried", "bad"));
        let name = place.name();
        let made = |name, result| count(&limiter, "decisions_total", &[name, result]);
        assert_eq!((made("shadow", "allowed"), made("shadow", "denied")), (6, 0), "{name}");
        assert_eq!(samples(&limiter, "shadowed_total"), ["shadow 4"], "{name}");
        assert_eq!(count(&limiter, "decisions_total", &["off", "allowed", "configuration"]), 4, "{name}");
        assert_eq!((made("tried", "allowed"), made("tried", "denied")), (6, 3), "{name}");
        assert_eq!(count(&limiter, "denial_causes_total", &["tried", "deny_list"]), 1, "{name}");
        assert_eq!(count(&limiter, "denials_total", &["tried", "3/minute"]), 2, "{name}");
        assert_eq!((made("elastic", "allowed"), made("elastic", "denied")), (3, 1), "{name}");
        assert_eq!(samples(&limiter, "elastic_total"), ["elastic 2"], "{name}");
        assert_eq!((made("pool", "allowed"), made("pool", "denied")), (2, 1), "{name}");
        let compared = samples(&limiter, "shadow_decisions_total");
        assert_eq!(
            compared,
            ["tried,allowed,allowed 2", "tried,allowed,denied 4", "tried,denied,denied 2"],
            "{name}"
        );
        // The policy of a comparison is not one that callers know.
        assert!(samples(&limiter, "quota_limit_units").iter().all(|sample| !sample.contains('~')), "{name}");
        let info = samples(&limiter, "policies_version_info");
        let version = limiter.admin().configuration().unwrap();
        assert_eq!(info, [format!("document,{},{} 1", version.version, version.digest)]);
    }
}

#[test]
fn a_request_counts_for_its_policies_and_as_one() {
    for place in Place::all() {
        let limiter = place.builder().document(DOCUMENT).build().unwrap();
        let terms = ReserveOptions::default().terms().unwrap();
        let decide = |path: &str, user: &str| {
            let request = RequestAttributes::new().path(path).attribute("user", user);
            limiter.blocking().decide(&request, &terms).unwrap().allowed
        };
        for _ in 0..5 {
            assert!(decide("/tried", "big") && !decide("/tried", "bad") && decide("/free", "small"));
        }
        for allowed in [true, true, true, false] {
            assert_eq!(decide("/tried", "small"), allowed);
        }
        let name = place.name();
        let requests = samples(&limiter, "requests_total");
        assert_eq!(requests, ["allowed,none 13", "denied,deny_list 5", "denied,quota 1"], "{name}");
        let made = |result| count(&limiter, "decisions_total", &["tried", result]);
        assert_eq!((made("allowed"), made("denied")), (8, 1), "{name}");
        // Nearly used up by the override's numbers is another thing than by the policy's own.
        assert_eq!(count(&limiter, "near_limit_total", &["tried"]), 1, "{name}");
    }
}

/// No cache answers what is compared, also as a part of a charge whose other parts are not.
#[test]
fn candidate_is_compared_in_a_charge_of_several_plans() {
    const DOCUMENT: &str = r#"
        polylimit = 1
        [policies.tried]
        quotas = "2/minute"
        plans = { gold = "3/minute" }
        candidate = { quotas = "1/minute", compare = 1000 }
    "#;
    for place in Place::all() {
        let limiter = place.builder().document(DOCUMENT).build().unwrap();
        let blocking = limiter.blocking();
        let free = Request::new("a").policy("tried");
        let gold = free.plan("gold");
        let allowed = [(); 5].map(|()| blocking.check(gold).unwrap().allowed());
        assert_eq!(allowed, [true, true, true, false, false]);
        for (requests, compared) in [([gold, free], 1), ([free, gold], 2)] {
            let denied = blocking.check_together(&requests).unwrap();
            assert!(denied.iter().all(|decision| !decision.allowed()));
            let counts = limiter.admin().candidate_counts("tried").unwrap();
            assert_eq!(counts.only_live_denies + counts.both_deny, compared, "{}", place.name());
        }
    }
}

#[test]
fn operations_on_keys_are_counted_once_whether_the_store_answers_or_not() {
    for place in Place::all() {
        let limiter = place.builder().document(DOCUMENT).build().unwrap();
        let blocking = limiter.blocking();
        for name in ["off", "tried"] {
            let request = Request::new("a").policy(name);
            let _ = (blocking.peek(request).unwrap(), blocking.take(request).unwrap());
            let _ = (blocking.charge(request).unwrap(), blocking.refund(request).unwrap());
        }
        let counted = samples(&limiter, "operations_total");
        let expected = ["off", "tried"].map(|name| {
            ["peek", "take", "charge", "refund"].map(|operation| format!("{name},{operation} 1"))
        });
        assert_eq!(counted, expected.as_flattened(), "{}", place.name());
    }
}

/// In Redis, what policies spend is collected for their pool; this process charges it before it calls the pool itself.
#[test]
fn pool_in_redis_is_charged_for_what_its_policies_spend() {
    const DOCUMENT: &str = r#"
        polylimit = 1
        [policies.elastic]
        quotas = "1/52w fixed_window"
        elastic = { policy = "pool", key = "all" }
        [policies.pool]
        quotas = "9/52w fixed_window"
        [policies.other]
        quotas = "9/52w fixed_window"
    "#;
    let place = Place::redis();
    let Place::Redis(server) = &place else { panic!() };
    let store = format!("{}?deadline=10s", server.url());
    let [one, two] = [(); 2].map(|()| Limiter::builder().store(&store).document(DOCUMENT).build().unwrap());
    let spend = |key| assert!(one.blocking().check(Request::new(key).policy("elastic")).unwrap().allowed());
    let left =
        |limiter: &Limiter| limiter.blocking().peek(Request::new("all").policy("pool")).unwrap().remaining();
    spend("a");
    assert!(one.blocking().check(Request::new("all").policy("other")).unwrap().allowed());
    assert_eq!(left(&one), 8);
    assert_eq!(count(&one, "operations_total", &["other", "charge"]), 0);
    spend("b");
    let until = Instant::now() + Duration::from_secs(60);
    while left(&two) != 7 {
        assert!(Instant::now() < until, "the pool is not charged");
        std::thread::sleep(Duration::from_millis(1));
    }
}
