//! The guard without a framework.

mod cases;
mod meters;
mod waiting;

use crate::document::{RequestAttributes, RouterPaths};
use crate::http::guard::{
    Guard, GuardBuilder, GuardCheck, KeyPart, RequestFacts, RequestLimits, Spent, Verdict,
};
use crate::{Limiter, Policy, Request};

#[test]
fn guard_without_policies_limits_only_requests_that_give_some() {
    let guard = Guard::builder(Limiter::builder().build().unwrap())
        .per_request(true)
        .per_route(true)
        .build()
        .unwrap();
    let is_admitted = |policies: Option<&[&str]>| {
        let facts = RequestFacts::new().key(b"key").route("/a");
        let facts = policies.map_or(facts, |policies| facts.policies(policies));
        let mut check = guard.start(&RequestLimits::default(), &facts).unwrap();
        check.run_blocking();
        matches!(check.conclude(), Verdict::Admit)
    };
    for policies in [None, Some(&[][..])] {
        assert!(is_admitted(policies) && is_admitted(policies));
    }
    assert!(is_admitted(Some(&["1/hour"])) && !is_admitted(Some(&["1/hour"])));
    // Another guard with these quotas counts apart, because each route has its own budget.
    let whole = Guard::builder(guard.limiter().clone()).policy("1/hour").build().unwrap();
    let mut check = whole.start(&RequestLimits::default(), &RequestFacts::new().key(b"key")).unwrap();
    check.run_blocking();
    assert!(matches!(check.conclude(), Verdict::Admit));
}

#[test]
fn what_single_policies_of_a_guard_have_is_refused_with_policies_that_a_request_brings() {
    let limiter = ["tokens", "requests"].into_iter().fold(Limiter::builder(), |builder, name| {
        builder.policy(Policy::parse(name, "1000/minute token_bucket").unwrap())
    });
    let limiter = limiter.build().unwrap();
    let builder = || Guard::builder(limiter.clone()).policies(["tokens", "requests"]);
    for (builder, name) in [
        (builder().costs([Some(5)]), "cost"),
        (builder().reserved_each([true]), "reserved"),
        (builder().costs([Some(5)]).reserved_each([true]), "cost"),
    ] {
        let guard = builder.build().unwrap();
        let facts = RequestFacts::new().key(b"key");
        let refused = guard.start(&RequestLimits::default(), &facts.policies(&["requests"])).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!(
                "policies is given with a request, next to {name} of single policies of the guard: leave out one of the two"
            )
        );
        // A request that brings none, or is not limited, has none of other positions.
        for facts in [facts, facts.policies(&[])] {
            assert!(guard.start(&RequestLimits::default(), &facts).is_ok());
        }
    }
    for (builder, name) in
        [(builder().costs([Some(5)]), "cost"), (builder().reserved_each([true]), "reserved")]
    {
        let refused = builder.per_request(true).build().unwrap_err().to_string();
        let start = format!("{name} is given for single policies, and each request brings its policies: ");
        assert!(refused.starts_with(&start), "{refused}");
    }
    // The costs of the request itself are those of its policies.
    let guard = builder().per_request(true).build().unwrap();
    let facts = RequestFacts::new().key(b"key").policies(&["requests"]).costs(&[Some(7)]);
    let mut check = guard.start(&RequestLimits::default(), &facts).unwrap();
    check.run_blocking();
    assert!(matches!(check.conclude(), Verdict::Admit));
    let left = limiter.blocking().peek(Request::new("key").policy("requests")).unwrap();
    assert_eq!(left.remaining(), 993);
}

#[test]
fn guards_that_ask_ahead_need_one_call_and_give_back_what_is_not_claimed() {
    let limiter = |quotas: [&str; 3]| {
        let named = ["a", "b", "c"].into_iter().zip(quotas);
        let policies = named.map(|(name, quotas)| Policy::parse(name, quotas).unwrap());
        policies.fold(Limiter::builder(), crate::LimiterBuilder::policy).build().unwrap()
    };
    let guard = |limiter: &Limiter, policies: &[&str]| {
        Guard::builder(limiter.clone()).policies(policies.iter().copied()).build().unwrap()
    };
    let facts = RequestFacts::new().key(b"key");
    let left = |limiter: &Limiter| {
        ["a", "b", "c"]
            .map(|name| limiter.blocking().peek(Request::new("key").policy(name)).unwrap().remaining())
    };
    // The request passes both guards: the later one does not call the store.
    let limiter_of_three = limiter(["3/day", "3/day", "3/day"]);
    let (first, later) = (guard(&limiter_of_three, &["a"]), guard(&limiter_of_three, &["b", "c"]));
    let limits = RequestLimits::default();
    let mut outer = first.start(&limits, &facts).unwrap();
    outer.ask_ahead(&later, &facts);
    assert_eq!(outer.requests().len(), 3);
    outer.run_blocking();
    assert!(matches!(outer.conclude(), Verdict::Admit) && limits.outcomes().len() == 1);
    assert_eq!(left(&limiter_of_three), [2, 2, 2]);
    let mut inner = later.start(&limits, &facts).unwrap();
    assert!(inner.requests().is_empty() && limits.has_unclaimed());
    assert!(matches!(inner.conclude(), Verdict::Admit) && !limits.has_unclaimed());
    inner.finish(true);
    outer.finish(true);
    assert!(!inner.run_blocking() && !outer.run_blocking());
    assert_eq!(left(&limiter_of_three), [2, 2, 2]);
    // The request never reaches the later guard: its units come back with the response.
    let limits = RequestLimits::default();
    let mut outer = first.start(&limits, &facts).unwrap();
    outer.ask_ahead(&later, &facts);
    outer.run_blocking();
    assert!(matches!(outer.conclude(), Verdict::Admit));
    outer.finish(true);
    assert!(outer.run_blocking());
    assert_eq!(left(&limiter_of_three), [1, 2, 2]);
    // The first guard denies: the later one spends nothing. Its own other policy neither.
    let (first, later) = (guard(&limiter_of_three, &["b", "a"]), guard(&limiter_of_three, &["c"]));
    for expected in [[0, 1, 1], [0, 1, 1]] {
        let limits = RequestLimits::default();
        let mut outer = first.start(&limits, &facts).unwrap();
        outer.ask_ahead(&later, &facts);
        outer.run_blocking();
        let is_admitted = matches!(outer.conclude(), Verdict::Admit);
        outer.run_blocking();
        if is_admitted {
            let mut inner = later.start(&limits, &facts).unwrap();
            assert!(matches!(inner.conclude(), Verdict::Admit));
        } else {
            assert!(!limits.has_unclaimed());
            let remaining: Vec<_> = limits.outcomes().iter().map(|(_, one)| one.remaining()).collect();
            assert_eq!(remaining, [1, 0]);
        }
        assert_eq!(left(&limiter_of_three), expected);
    }
    // A denial that is counted cannot be taken back, so it is asked for only when the request is there.
    let counting = limiter(["3/day", "1/day count_denied", "3/day"]);
    let mut outer = guard(&counting, &["a"]).start(&RequestLimits::default(), &facts).unwrap();
    outer.ask_ahead(&guard(&counting, &["b"]), &facts);
    outer.ask_ahead(&Guard::builder(counting.clone()).policy("c").dry_run(true).build().unwrap(), &facts);
    outer.ask_ahead(&guard(&limiter_of_three, &["c"]), &facts);
    assert_eq!(outer.requests().len(), 1);
}

/// The check of a request that was admitted.
fn admitted(guard: &Guard, limits: &RequestLimits) -> GuardCheck {
    let mut check = guard.start(limits, &RequestFacts::new().key(b"key")).unwrap();
    check.run_blocking();
    assert!(matches!(check.conclude(), Verdict::Admit));
    check
}

fn limiter_of(quotas: &str) -> Limiter {
    Limiter::builder().policy(Policy::parse("model", quotas).unwrap()).build().unwrap()
}

fn left(limiter: &Limiter) -> u64 {
    limiter.blocking().peek("key").unwrap().remaining()
}

#[test]
fn check_that_is_dropped_while_it_holds_has_spent_its_cost() {
    let limiter = limiter_of("1 concurrent; 100/day token_bucket");
    let guard = Guard::builder(limiter.clone()).cost(40).build().unwrap();
    drop(admitted(&guard, &RequestLimits::default()));
    assert_eq!(left(&limiter), 60);
    // Its response does not count.
    let mut check = admitted(&guard, &RequestLimits::default());
    check.finish(false);
    assert!(check.holds() && left(&limiter) == 0);
    drop(check);
    assert_eq!(left(&limiter), 60);
    // It is dropped before it has concluded.
    let mut check = guard.start(&RequestLimits::default(), &RequestFacts::new().key(b"key")).unwrap();
    assert!(check.try_run() && left(&limiter) == 0);
    drop(check);
    assert_eq!(left(&limiter), 60);
}

#[test]
fn units_that_no_request_may_have_end_a_check_with_its_cost() {
    let limiter = limiter_of("1 concurrent; 100/day token_bucket");
    let guard = Guard::builder(limiter.clone()).cost(40).build().unwrap();
    let mut check = admitted(&guard, &RequestLimits::default());
    check.end(Some(Request::MAX_COST + 1)).unwrap_err();
    assert!(check.run_blocking() && !check.holds());
    assert_eq!(left(&limiter), 60);
    check.end(Some(1)).unwrap();
    assert!(!check.run_blocking());
    assert_eq!(left(&limiter), 60);
}

#[test]
fn guard_with_a_higher_cost_takes_another_slot_for_the_difference() {
    let limiter = limiter_of("2 concurrent; 100/day token_bucket");
    let limits = RequestLimits::default();
    let outer = Guard::builder(limiter.clone()).cost(10).build().unwrap();
    let inner = Guard::builder(limiter.clone()).cost(40).build().unwrap();
    let (mut outer, mut inner) = (admitted(&outer, &limits), admitted(&inner, &limits));
    let free = || limiter.blocking().peek("key").unwrap().quotas()[0].remaining;
    assert_eq!((free(), left(&limiter)), (0, 0));
    for check in [&mut inner, &mut outer] {
        check.finish(true);
        check.end(None).unwrap();
        check.run_blocking();
    }
    assert_eq!((free(), left(&limiter)), (2, 60));
}

/// The limiter of a gateway for language models: tokens and requests.
fn gateway() -> Limiter {
    let policies = [("tokens", "1000/day token_bucket"), ("requests", "10/day fixed_window")];
    let policies = policies.map(|(name, quotas)| Policy::parse(name, quotas).unwrap());
    policies.into_iter().fold(Limiter::builder(), crate::LimiterBuilder::policy).build().unwrap()
}

fn left_of(limiter: &Limiter, policy: &str) -> u64 {
    limiter.blocking().peek(Request::new("key").policy(policy)).unwrap().remaining()
}

#[test]
fn each_policy_of_a_guard_has_a_cost_of_its_own() {
    let limiter = gateway();
    let builder = || Guard::builder(limiter.clone()).policies(["tokens", "requests"]);
    let left = || (left_of(&limiter, "tokens"), left_of(&limiter, "requests"));
    let fixed = builder().costs([Some(400)]).build().unwrap();
    drop(admitted(&fixed, &RequestLimits::default()));
    assert_eq!(left(), (600, 9));
    // What the request itself gives wins, by policy before all.
    let limits = RequestLimits::default();
    for (facts, expected) in [
        (RequestFacts::new().cost(2), (200, 7)),
        (RequestFacts::new().cost(2).costs(&[Some(100), None]), (100, 5)),
        (RequestFacts::new().costs(&[Some(50), Some(3)]), (50, 2)),
    ] {
        let mut check = fixed.start(&RequestLimits::default(), &facts.key(b"key")).unwrap();
        check.run_blocking();
        assert!(matches!(check.conclude(), Verdict::Admit));
        assert_eq!(left(), expected);
    }
    // The problem names what the request itself exceeds.
    let facts = RequestFacts::new().key(b"key").costs(&[Some(60), Some(1)]);
    let mut denied = fixed.start(&limits, &facts).unwrap();
    denied.run_blocking();
    let Verdict::Deny(problem) = denied.conclude() else { panic!("admitted") };
    assert_eq!(problem.violated(), ["tokens"]);
    assert_eq!(left(), (50, 2));
    let above = RequestFacts::new().key(b"key").costs(&[None, Some(Request::MAX_COST + 1)]);
    assert!(fixed.start(&limits, &above).is_err());
}

#[test]
fn each_policy_of_a_guard_keeps_what_it_has_spent() {
    let limiter = gateway();
    let guard = Guard::builder(limiter.clone()).policies(["tokens", "requests"]).costs([Some(400)]);
    let guard = guard.reserved_each([true]).build().unwrap();
    let left = || (left_of(&limiter, "tokens"), left_of(&limiter, "requests"));
    for (spent, expected) in [
        (Spent::Each(&[Some(70)]), (930, 9)),
        (Spent::Each(&[None, Some(5)]), (530, 8)),
        (Spent::Each(&[Some(Request::MAX_COST + 1)]), (130, 7)),
        (Spent::Reserved, (130, 7)),
    ] {
        let mut check = guard.start(&RequestLimits::default(), &RequestFacts::new().key(b"key")).unwrap();
        check.run_blocking();
        if matches!(check.conclude(), Verdict::Admit) {
            assert!(check.holds());
            check.finish(true);
            let is_allowed = !matches!(spent, Spent::Each([Some(units)]) if *units > Request::MAX_COST);
            assert_eq!(check.end(spent).is_ok(), is_allowed);
        }
        check.run_blocking();
        assert_eq!(left(), expected);
    }
}

#[test]
fn cost_that_no_request_can_spend_is_refused_at_creation() {
    let limiter = gateway();
    let builder = || Guard::builder(limiter.clone()).policies(["tokens", "requests"]);
    let refused = |builder: GuardBuilder| builder.build().unwrap_err().message().to_owned();
    let all = refused(builder().cost(100));
    assert!(all.starts_with("cost is 100 for policy \"requests\", which never admits more than 10"), "{all}");
    let one = refused(builder().costs([Some(1001)]));
    assert!(
        one.starts_with("cost is 1001 for policy \"tokens\", which never admits more than 1000"),
        "{one}"
    );
    let many = refused(builder().costs([None, None, None]));
    assert!(many.starts_with("3 costs are given for 2 policies"), "{many}");
    assert!(builder().costs([Some(1000), Some(10)]).build().is_ok());
    // A limit of 0 is meant to admit nothing, and slots are no units.
    let closed = Guard::builder(limiter.clone()).policies(["0/day", "1 concurrent"]).build();
    assert!(closed.is_ok());
    let twice = refused(Guard::builder(limiter.clone()).policies(["tokens", "tokens"]));
    assert_eq!(twice, "policy \"tokens\" is a duplicate: leave out one of the two");
}

#[test]
fn calls_of_a_check_are_made_one_after_the_other() {
    let policies = ["model", "api"].into_iter().zip(["1 concurrent", "5/day"]);
    let policies = policies.map(|(name, quotas)| Policy::parse(name, quotas).unwrap());
    let limiter = policies.fold(Limiter::builder(), crate::LimiterBuilder::policy).build().unwrap();
    let guard = Guard::builder(limiter).policies(["api", "model"]).build().unwrap();
    let mut check = guard.start(&RequestLimits::default(), &RequestFacts::new().key(b"key")).unwrap();
    let mut calls = Vec::new();
    let mut make_all = |check: &mut GuardCheck| {
        while let Some((name, answer)) = check.next_call(|limiter, call| {
            (format!("{call:?}").split('(').next().unwrap().to_owned(), limiter.blocking().raw().call(call))
        }) {
            calls.push(name);
            check.answer_call(answer);
        }
        std::mem::take(&mut calls)
    };
    assert_eq!(make_all(&mut check), ["ReserveTogether"]);
    assert!(matches!(check.conclude(), Verdict::Admit));
    assert!(make_all(&mut check).is_empty());
    check.finish(true);
    assert!(make_all(&mut check).is_empty() && check.holds());
    check.end(Some(0)).unwrap();
    assert_eq!(make_all(&mut check), ["Cancel"]);
    // A check whose calls are not made has no decision.
    let mut check = guard.start(&RequestLimits::default(), &RequestFacts::new().key(b"key")).unwrap();
    assert!(matches!(check.conclude(), Verdict::Fail(_)));
}

const DOCUMENT: &str = r#"
    polylimit = 1
    [policies.api]
    quotas = "2/minute"
    plans = { gold = "9/minute" }
    [policies.shadow]
    quotas = "1/minute"
    mode = "shadow"
    [policies.slots]
    quotas = "1 concurrent"
    [[rules]]
    match = { path = "/slow" }
    apply = [{ policy = "slots", key = "all" }]
    [[rules]]
    match = { path = "/strict" }
    apply = [{ policy = "api", key = "{header.x-api-key}", missing = "deny" }]
    [[rules]]
    match = { path = "/cost/{units}" }
    apply = [{ policy = "api", key = "{client}", cost = "{path.units}" }]
    [[rules]]
    match = { path = "/v1/{*rest}" }
    apply = [{ policy = "api", key = "{client}" }, { policy = "shadow", key = "{client}" }]
    [lists]
    deny = ["client 203.0.113.0/24"]
"#;

fn configured() -> (Limiter, Guard) {
    let limiter = Limiter::builder().document(DOCUMENT).build().unwrap();
    let guard = Guard::builder(limiter.clone()).by_configuration().build().unwrap();
    (limiter, guard)
}

fn check_of(guard: &Guard, attributes: &RequestAttributes<'_>) -> (GuardCheck, Verdict) {
    let facts = RequestFacts::new().attributes(attributes);
    let mut check = guard.start(&RequestLimits::default(), &facts).unwrap();
    check.run_blocking();
    let verdict = check.conclude();
    check.run_blocking();
    (check, verdict)
}

fn status_of(guard: &Guard, path: &str, peer: &str) -> (Option<u16>, usize) {
    let (check, verdict) = check_of(guard, &RequestAttributes::new().method("GET").path(path).peer(peer));
    let status = match verdict {
        Verdict::Admit => None,
        Verdict::Deny(problem) => Some(problem.status()),
        Verdict::Fail(error) => panic!("{error}"),
    };
    (status, check.fields().len())
}

#[test]
fn the_configuration_says_what_a_request_has() {
    let (_, guard) = configured();
    // A request that no rule matches has no limit, and no fields.
    assert_eq!(status_of(&guard, "/", "192.0.2.1"), (None, 0));
    assert_eq!(status_of(&guard, "/", "203.0.113.7"), (Some(403), 0));
    assert_eq!(status_of(&guard, "/strict", "192.0.2.1"), (Some(400), 0));
    assert_eq!(status_of(&guard, "/cost/many", "192.0.2.1"), (Some(400), 0));
    assert_eq!(status_of(&guard, "/cost/0", "192.0.2.1").0, None);
    // The policy in shadow denies nothing, and no field reveals it.
    assert_eq!(status_of(&guard, "/v1/a", "192.0.2.1").0, None);
    assert_eq!(status_of(&guard, "/v1/b", "192.0.2.1").0, None);
    let (status, fields) = status_of(&guard, "/v1/c", "192.0.2.1");
    assert_eq!((status, fields > 0), (Some(429), true));
}

#[test]
fn response_that_does_not_count_gives_back_what_a_configured_request_spent() {
    let (limiter, guard) = configured();
    let attributes = RequestAttributes::new().path("/v1/a").peer("192.0.2.1").attribute("plan", "gold");
    let (mut check, verdict) = check_of(&guard, &attributes);
    assert!(matches!(verdict, Verdict::Admit));
    let left = || {
        let request = Request::new("192.0.2.1").policy("api").plan("gold");
        limiter.blocking().peek(request).unwrap().remaining()
    };
    assert_eq!(left(), 8);
    check.finish(false);
    check.run_blocking();
    assert_eq!(left(), 9);
    // Bindings finish until nothing is left to do: units of other requests stay spent.
    let (_other, _) = check_of(&guard, &attributes);
    check.finish(false);
    assert!(!check.run_blocking());
    assert_eq!(left(), 8);
}

#[test]
fn configured_slot_is_held_until_the_response_is_done() {
    let (_, guard) = configured();
    let attributes = RequestAttributes::new().path("/slow");
    let (mut first, verdict) = check_of(&guard, &attributes);
    assert!(matches!(verdict, Verdict::Admit) && first.holds());
    first.finish(true);
    first.run_blocking();
    assert!(matches!(check_of(&guard, &attributes).1, Verdict::Deny(problem) if problem.status() == 429));
    first.end(None).unwrap();
    first.run_blocking();
    let (mut next, verdict) = check_of(&guard, &attributes);
    assert!(matches!(verdict, Verdict::Admit));
    next.end(None).unwrap();
    next.run_blocking();
}

#[test]
fn guard_without_a_configuration_or_attributes_is_refused() {
    let limiter = Limiter::builder().policy(Policy::parse("api", "1/minute").unwrap()).build().unwrap();
    let refused = Guard::builder(limiter).by_configuration().build().unwrap_err();
    assert!(refused.to_string().contains("has no configuration"), "{refused}");
    let (limiter, guard) = configured();
    let refused = guard.start(&RequestLimits::default(), &RequestFacts::new()).unwrap_err();
    assert!(refused.to_string().contains("no attributes"), "{refused}");
    let builder = || Guard::builder(limiter.clone()).by_configuration();
    for (both, name) in [
        (builder().policy("api"), "policy"),
        (builder().per_request(true), "policy"),
        (builder().reserved(true), "reserved"),
        (builder().scope("/login"), "scope"),
        (builder().key_part(KeyPart::User), "a part of the key"),
        (builder().cost(2), "cost"),
    ] {
        let refused = both.build().unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{name} is given to a guard")), "{refused}");
    }
}

#[test]
fn fields_tell_the_numbers_that_decided() {
    let (_, guard) = configured();
    let attributes = RequestAttributes::new().path("/v1/a").peer("192.0.2.9").attribute("plan", "gold");
    let (check, _) = check_of(&guard, &attributes);
    let fields = check.fields();
    let policy = fields.iter().find(|field| field.name == "ratelimit-policy").unwrap();
    assert!(policy.value.contains("q=9"), "{}", policy.value);
}

/// The status of as many requests with this path as are admitted, and one more, behind a router.
fn admitted_of(guard: &Guard, method: &str, path: &str, router: RouterPaths) -> usize {
    let attributes = RequestAttributes::new().method(method).path(path).peer("203.0.113.7");
    let attributes = attributes.router_paths(router);
    (0..10).take_while(|_| matches!(check_of(guard, &attributes).1, Verdict::Admit)).count()
}

#[test]
fn every_spelling_of_a_path_counts_behind_a_guard() {
    let document = |paths: &str| {
        format!(
            r#"{{"polylimit": 1, "paths": {{{paths}}},
                "policies": {{"login": {{"quotas": "3/hour fixed_window"}}, "report": {{"quotas": "3/hour fixed_window"}}}},
                "rules": [{{"match": {{"path": "/static/{{*rest}}"}}, "apply": []}},
                          {{"match": {{"method": "post", "path": "/v1/Login"}}, "apply": [{{"policy": "login", "key": "k"}}]}},
                          {{"match": {{"method": "GET", "path": "/report/{{*rest}}"}}, "apply": [{{"policy": "report", "key": "{{method}}"}}]}}]}}"#
        )
    };
    let guard = |paths: &str| {
        let limiter = Limiter::builder().document(&document(paths)).build().unwrap();
        Guard::builder(limiter).by_configuration().build().unwrap()
    };
    let plain = RouterPaths::new();
    for path in [
        "/v1/Login",
        "http://h/v1/Login?x",
        "/v1//./Login/",
        "/x/../v1/%4cogin",
        "/v1%2fLogin",
        "/%2e/v1/Login#x",
    ] {
        let guard = guard("");
        assert_eq!(admitted_of(&guard, "POST", path, plain), 3, "{path}");
        assert_eq!(admitted_of(&guard, "POST", "/v1/Login", plain), 0, "{path}");
    }
    // A router may take dot segments literally: another rule's exemption is no way round.
    assert_eq!(admitted_of(&guard(""), "GET", "/report/../static/x", plain), 3);
    assert_eq!(admitted_of(&guard(""), "GET", "/static/x", plain), 10);
    assert_eq!(admitted_of(&guard(""), "HEAD", "/report/x", plain), 3);
    let ignoring = RouterPaths::from_bits(7);
    for path in ["/V1/LOGIN", "/v1;x/login;a=1", "/V1/login.JSON", "/x;y/../V1/Login.json;z"] {
        assert_eq!(admitted_of(&guard(""), "POST", path, ignoring), 3, "{path}");
        assert_eq!(admitted_of(&guard(""), "POST", path, plain), 10, "{path}");
        // The document sets it for a service behind a proxy.
        let by_document = guard(r#""ignore_case": true, "parameters": "drop", "suffix": "drop""#);
        assert_eq!(admitted_of(&by_document, "POST", path, plain), 3, "{path}");
        let kept = guard(r#""ignore_case": false, "parameters": "keep", "suffix": "keep""#);
        assert_eq!(admitted_of(&kept, "POST", path, ignoring), 10, "{path}");
    }
}

#[test]
fn spellings_of_a_path_share_a_key_and_captures_keep_their_case() {
    let document = r#"
        polylimit = 1
        [policies.api]
        quotas = "1/hour"
        [[rules]]
        match = { path = "/Users/{id}" }
        apply = [{ policy = "api", key = "{path.id}" }]
        [[rules]]
        apply = [{ policy = "api", key = "{path}" }]
        [lists]
        deny = ["path /Private"]
    "#;
    let limiter = Limiter::builder().document(document).build().unwrap().blocking();
    let key = |path: &str, router: RouterPaths| {
        let request = RequestAttributes::new().path(path).router_paths(router);
        let matched = limiter.admin().matching(&request).unwrap();
        String::from_utf8(matched[0].key.clone()).unwrap()
    };
    let (plain, ignoring) = (RouterPaths::new(), RouterPaths::new().ignore_case());
    assert_eq!(key("/users/AbC", ignoring), "AbC");
    assert_eq!(key("/users/AbC", plain), "/users/AbC");
    assert_eq!(
        (key("/Other", ignoring), key("/OTHER", ignoring)),
        ("/other".to_owned(), "/other".to_owned())
    );
    assert_eq!(key("/Other", plain), "/Other");
    let denied = |path: &str, router: RouterPaths| {
        let request = RequestAttributes::new().path(path).router_paths(router);
        let terms = crate::reservation::ReserveOptions::default().terms().unwrap();
        !limiter.decide(&request, &terms).unwrap().allowed
    };
    assert!(denied("/PRIVATE", ignoring) && denied("/Private", ignoring) && denied("/Private", plain));
    assert!(!denied("/private", plain));
}

#[test]
fn head_shares_the_budget_of_a_route_unless_it_is_separate() {
    let admitted = |guard: &Guard, route: &str, key: &[u8]| {
        let facts = RequestFacts::new().key(key).route(route);
        let mut check = guard.start(&RequestLimits::default(), &facts).unwrap();
        check.run_blocking();
        matches!(check.conclude(), Verdict::Admit)
    };
    let guard = |is_separate| {
        let limiter = Limiter::builder().build().unwrap();
        let guard = Guard::builder(limiter).policy("1/hour").per_route(true).separate_head(is_separate);
        guard.missing_key(crate::http::guard::MissingKey::Refuse).build().unwrap()
    };
    let shared = guard(false);
    assert!(admitted(&shared, "GET /a", b"k") && !admitted(&shared, "HEAD /a", b"k"));
    assert!(admitted(&shared, "HEAD /b", b"k") && !admitted(&shared, "GET /b", b"k"));
    let separate = guard(true);
    assert!(admitted(&separate, "GET /a", b"k") && admitted(&separate, "HEAD /a", b"k"));
    // An empty key identifies nothing.
    assert!(!admitted(&shared, "GET /c", b""));
}
