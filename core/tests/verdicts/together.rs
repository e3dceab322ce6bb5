//! Requests over several policies: pools, policies in shadow, candidates and reservations in a request that is admitted as a whole.

use polylimit::decision::Source;
use polylimit::document::RequestAttributes;
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::{Decision, Limiter, Request, blocking};

use super::{clock, configured};

/// The policy `p` is elastic, `q` has four units, and `s` is in shadow.
fn with_pool() -> blocking::Limiter {
    configured(
        r#"{"p": {"quotas": "1/hour fixed_window", "elastic": {"policy": "pool", "key": "all"}},
            "pool": {"quotas": "2/day fixed_window"}, "q": {"quotas": "4/hour fixed_window"},
            "s": {"quotas": "1/hour fixed_window", "mode": "shadow"}}"#,
    )
}

#[test]
fn pool_is_charged_together_with_the_other_policies_or_not_at_all() {
    let limiter = with_pool();
    let of = |policy| Request::new("key").policy(policy);
    let left = |policy, key: &str| limiter.peek(Request::new(key).policy(policy)).unwrap().remaining();
    let both = [of("p"), of("q")];
    let shown = |decisions: Vec<Decision>| -> Vec<_> {
        let shown = decisions.iter().map(|decision| (decision.allowed(), decision.elastic()));
        shown.collect()
    };
    assert_eq!(shown(limiter.check_together(&both).unwrap()), [(true, false), (true, false)]);
    // What the policy spends itself counts in the pool, too.
    assert_eq!((left("pool", "all"), left("q", "key")), (1, 3));
    assert_eq!(shown(limiter.peek_together(&both).unwrap()), [(true, true), (true, false)]);
    // The other policy denies: nothing is taken from the pool, which would admit.
    let dear = [of("p"), of("q").cost(4)];
    assert_eq!(shown(limiter.check_together(&dear).unwrap()), [(true, true), (false, false)]);
    assert_eq!((left("pool", "all"), left("q", "key")), (1, 3));
    assert_eq!(shown(limiter.check_together(&both).unwrap()), [(true, true), (true, false)]);
    assert_eq!((left("pool", "all"), left("q", "key")), (0, 2));
    // The pool denies, so the other policy spends nothing.
    assert_eq!(shown(limiter.check_together(&both).unwrap()), [(false, false), (true, false)]);
    assert_eq!((left("pool", "all"), left("q", "key")), (0, 2));
}

#[test]
fn policy_in_shadow_spends_with_the_others_and_denies_none() {
    let limiter = with_pool();
    let of = |policy| Request::new("key").policy(policy);
    let left = |policy| limiter.peek(of(policy)).unwrap().remaining();
    let shown = |cost| -> Vec<_> {
        let decisions = limiter.check_together(&[of("q").cost(cost), of("s")]).unwrap();
        decisions.iter().map(|decision| (decision.allowed(), decision.shadowed())).collect()
    };
    assert_eq!(shown(5), [(false, false), (true, false)]);
    assert_eq!((left("q"), left("s")), (4, 1));
    assert_eq!(shown(1), [(true, false), (true, false)]);
    assert_eq!((left("q"), left("s")), (3, 0));
    assert_eq!(shown(1), [(true, false), (true, true)]);
    assert_eq!((left("q"), left("s")), (2, 0));
}

/// As `with_pool`, but what a policy spends counts in the pool only where the pool admits it. Lists deny one key of the pool, and the
/// policy `open` admits all.
fn with_pools() -> blocking::Limiter {
    let elastic = |key: &str| format!(r#"{{"policy": "pool", "key": "{key}", "counts": "elastic"}}"#);
    let document = format!(
        r#"{{"polylimit": 1, "policies": {{
            "p": {{"quotas": "5/hour fixed_window", "elastic": {}}},
            "shut": {{"quotas": "1/hour fixed_window", "elastic": {}}},
            "pool": {{"quotas": "9/day fixed_window"}},
            "q": {{"quotas": "9/hour fixed_window"}},
            "open": {{"quotas": "0/hour", "mode": "off"}},
            "slots": {{"quotas": "2 concurrent"}},
            "shadow": {{"quotas": "1 concurrent", "mode": "shadow"}},
            "tried": {{"quotas": "2/hour fixed_window", "candidate": {{"quotas": "1/hour fixed_window", "compare": 1000}}}}}},
            "rules": [{{"match": {{"path": "/p"}},
                        "apply": [{{"policy": "p", "key": "key", "cost": 5}}, {{"policy": "slots", "key": "key"}}]}},
                      {{"match": {{"path": "/shut"}},
                        "apply": [{{"policy": "shut", "key": "key"}}, {{"policy": "slots", "key": "key"}}]}},
                      {{"match": {{"path": "/slots"}},
                        "apply": [{{"policy": "slots", "key": "key"}}, {{"policy": "shadow", "key": "key"}}]}}],
            "lists": {{"deny": ["key pool shut"], "allow": ["key q friend"]}}}}"#,
        elastic("all"),
        elastic("shut"),
    );
    Limiter::builder().clock(clock()).document(&document).build().unwrap().blocking()
}

/// Of each decision, whether it admits, whether by the pool, and what is left.
fn shown(decisions: &[Decision]) -> Vec<(bool, bool, u64)> {
    decisions.iter().map(|decision| (decision.allowed(), decision.elastic(), decision.remaining())).collect()
}

#[test]
fn requests_for_one_key_are_one_charge_of_their_sum() {
    let limiter = with_pools();
    let of = |key, policy, cost| Request::new(key).policy(policy).cost(cost);
    let left = |policy, key| limiter.peek(of(key, policy, 0)).unwrap().remaining();
    let twice = [of("key", "p", 1), of("key", "p", 2)];
    assert_eq!(shown(&limiter.check_together(&twice).unwrap()), [(true, false, 2); 2]);
    // The pool admits both together, too.
    for pool in [6, 3, 0] {
        assert_eq!(shown(&limiter.check_together(&twice).unwrap()), [(true, true, 2); 2]);
        assert_eq!((left("p", "key"), left("pool", "all")), (2, pool));
    }
    assert_eq!(shown(&limiter.check_together(&twice).unwrap()), [(false, false, 2); 2]);
    // Other keys, policies and operations are other charges.
    let others = [of("key", "q", 3), of("other", "q", 4), of("key", "tried", 2)];
    let expected = [(true, false, 6), (true, false, 5), (true, false, 0)];
    assert_eq!(shown(&limiter.check_together(&others).unwrap()), expected);
    // The most headroom holds for the sum: of 6 units 5 are for others.
    for (cost, expected) in [(1, [(false, false, 1); 2]), (0, [(true, false, 0); 2])] {
        let requests = [of("key", "q", cost), of("key", "q", 1).headroom(50)];
        assert_eq!(shown(&limiter.check_together(&requests).unwrap()), expected);
    }
    let dear = [of("key", "q", Request::MAX_COST), of("key", "q", 1)];
    let error = limiter.check_together(&dear).unwrap_err();
    assert_eq!(error.message(), "cost is 1000000000001: allowed is 0 to 1000000000000 units");
}

#[test]
fn pool_of_one_policy_is_charged_once_for_a_request() {
    let limiter = with_pools();
    let left =
        |policy, key: &str| limiter.peek(Request::new(key).policy(policy).cost(0)).unwrap().remaining();
    let [p, shut, q] = ["p", "shut", "q"].map(|policy| Request::new("key").policy(policy));
    let _ = (limiter.charge(p.cost(5)).unwrap(), limiter.charge(shut).unwrap());
    assert_eq!(shown(&limiter.check_together(&[p, q]).unwrap()), [(true, true, 0), (true, false, 8)]);
    assert_eq!((left("pool", "all"), left("q", "key")), (8, 8));
    // The document denies the key of the other pool, so that nothing is spent.
    let denied = [(false, false, 0), (true, false, 8)];
    assert_eq!(shown(&limiter.check_together(&[shut, q]).unwrap()), denied);
    let denied = [(true, true, 0), (false, false, 0), (true, false, 8)];
    assert_eq!(shown(&limiter.check_together(&[p, shut, q]).unwrap()), denied);
    assert_eq!((left("pool", "all"), left("q", "key")), (8, 8));
    // What the document admits stands in the way of nothing.
    let requests = [Request::new("friend").policy("q"), p, Request::new("key").policy("open"), q];
    let admitted: Vec<_> = limiter.check_together(&requests).unwrap().iter().map(Decision::allowed).collect();
    assert_eq!((admitted, left("pool", "all"), left("q", "key")), (vec![true; 4], 7, 7));
}

#[test]
fn candidate_is_compared_in_a_request_of_several_policies() {
    let limiter = with_pools();
    let [tried, q] = ["tried", "q"].map(|policy| Request::new("key").policy(policy));
    for _ in 0..3 {
        let _ = limiter.check_together(&[tried, q]).unwrap();
    }
    // A peek, and a request that the document denies, are not compared.
    let _ = limiter.peek_together(&[tried, q]).unwrap();
    let counts = limiter.admin().candidate_counts("tried").unwrap();
    let counts = (counts.both_allow, counts.only_live_denies, counts.only_candidate_denies, counts.both_deny);
    assert_eq!(counts, (1, 0, 1, 1));
}

#[test]
fn decision_names_the_reservation_that_was_made_and_no_other() {
    let limiter = with_pools();
    let reserved = |path: &'static str, id: &str| {
        let terms = ReserveOptions::default().id(ReservationId::new(id).unwrap()).terms().unwrap();
        let decided = limiter.decide(&RequestAttributes::new().path(path), &terms).unwrap();
        let made = decided.decisions.iter().map(|made| {
            made.reservation.as_ref().map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned())
        });
        (decided.allowed, made.collect::<Vec<_>>())
    };
    let of = |id: &str| Some(id.to_owned());
    // The second and the third exceed the policy in shadow, which then sets nothing aside.
    assert_eq!(reserved("/slots", "1"), (true, vec![of("1"), of("1")]));
    assert_eq!(reserved("/slots", "2"), (true, vec![of("2"), None]));
    assert_eq!(reserved("/slots", "3"), (false, vec![None, None]));
    for id in ["1", "2"] {
        let slot = Request::new("key").policy("slots");
        assert!(limiter.cancel(slot, ReservationId::new(id).unwrap()).unwrap().found());
    }
    // The pool admits the second one.
    assert_eq!(reserved("/p", "4"), (true, vec![None, of("4")]));
    assert_eq!(reserved("/p", "5"), (true, vec![None, of("5")]));
    assert!(
        limiter
            .cancel(Request::new("key").policy("slots"), ReservationId::new("4").unwrap())
            .unwrap()
            .found()
    );
    assert_eq!(reserved("/p", "6"), (false, vec![None, None]));
    let _ = limiter.charge(Request::new("key").policy("shut")).unwrap();
    assert_eq!(reserved("/shut", "7"), (false, vec![None, None]));
}

/// An outage policy admits, and no store has a reservation.
#[test]
fn outage_leaves_no_reservation() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let document = r#"{"polylimit": 1, "policies": {"slots": {"quotas": "2 concurrent", "outage": "allow"}},
        "rules": [{"apply": [{"policy": "slots", "key": "key"}]}]}"#;
    let store = format!("redis://{address}?deadline=10s&doctor_after=0");
    let limiter = Limiter::builder().store(&store).document(document).build().unwrap().blocking();
    let terms = ReserveOptions::default().terms().unwrap();
    let decided = limiter.decide(&RequestAttributes::new(), &terms).unwrap();
    let [slots] = decided.decisions.as_slice() else { panic!("{decided:?}") };
    assert_eq!((decided.allowed, slots.decision.source()), (true, Source::Allow));
    assert_eq!(slots.reservation, None);
}
