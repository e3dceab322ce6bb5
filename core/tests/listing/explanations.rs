//! Explanations agree with decisions, and name what the configuration says.

use std::time::Duration;

use polylimit::admin::{PolicyMode, QuotasSource};
use polylimit::clock::ManualClock;
use polylimit::decision::Cause;
use polylimit::document::RequestAttributes;
use polylimit::reservation::ReserveOptions;
use polylimit::{Limiter, Request, blocking};

use super::{NOW_US, Store, policy};

const DOCUMENT: &str = r#"
polylimit = 1
[policies.api]
quotas = "10/minute token_bucket"
plans = { gold = "100/minute token_bucket" }
overrides = { "bob" = "gold", "carol" = { numbers = "20/minute token_bucket", until = "2100-01-01T00:00:00Z" } }
elastic = { policy = "fleet", key = "all", headroom = 50 }
[policies.fleet]
quotas = "20/minute token_bucket"
[policies.login]
quotas = "1/hour"
penalty = { denials = 3, within = "1h", block = "1m", max = "1d", forget = "1d" }
[policies.shadow]
quotas = "1/hour"
mode = "shadow"
[policies.off]
quotas = "1/hour"
mode = "off"
[[rules]]
match = { path = "/login" }
apply = [{ policy = "login", key = "{user}", missing = "deny" }, { policy = "shadow", key = "{user}" }]
[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{user}", cost = 2 }]
[lists]
deny = ["key api mallory", "client 203.0.113.0/24", "country KP"]
allow = ["client 203.0.113.7", "user monitoring"]
"#;

fn limiter(store: &Store) -> (blocking::Limiter, ManualClock) {
    let clock = ManualClock::new(NOW_US).unwrap();
    let limiter = store.builder().clock(clock.clone()).document(DOCUMENT).build().unwrap();
    (limiter.blocking(), clock)
}

fn api(key: &str) -> Request<'_> {
    Request::new(key).policy("api")
}

#[test]
fn explanation_says_what_a_peek_decides_and_changes_nothing() {
    let quotas = "10/minute token_bucket; 20/hour fixed_window; 7/m sliding_log; 30/h leaky_bucket; 50/d token_bucket step=5; 8/s";
    for store in Store::each() {
        let clock = ManualClock::new(NOW_US).unwrap();
        let limiter =
            store.builder().clock(clock.clone()).policy(policy("a", quotas)).build().unwrap().blocking();
        for step in 0..200_u64 {
            let _ = limiter.charge(Request::new("user").cost(step % 5)).unwrap();
            clock.advance(Duration::from_micros(step * 317_003)).unwrap();
            for (cost, headroom) in [(0, 0), (1, 0), (3, 0), (6, 30), (11, 0)] {
                let request = Request::new("user").cost(cost).headroom(headroom);
                let explained = limiter.admin().explain(request).unwrap();
                let peeked = limiter.peek(request).unwrap();
                assert_eq!(
                    (explained.allowed, explained.cause, explained.retry_after_us),
                    (peeked.allowed(), peeked.cause(), peeked.retry_after_us())
                );
                assert_eq!(explained.allowed, explained.quotas.iter().all(|quota| quota.admits));
                let longest = explained.quotas.iter().map(|quota| quota.retry_after_us);
                assert_eq!(longest.reduce(|a, b| Some(a?.max(b?))).unwrap(), explained.retry_after_us);
                for (quota, usage) in explained.quotas.iter().zip(peeked.quotas()) {
                    assert_eq!(
                        (quota.remaining, quota.reset_after_us),
                        (usage.remaining, usage.reset_after_us)
                    );
                }
                assert_eq!(limiter.peek(request).unwrap(), peeked);
            }
        }
    }
}

#[test]
fn quotas_are_explained_in_their_words() {
    for store in Store::each() {
        let clock = ManualClock::new(NOW_US).unwrap();
        let quotas = "100/minute token_bucket; 10/s leaky_bucket burst=40; 20/d token_bucket burst=60 step=5; 30/hour fixed_window; \
                      40/15m; 50/m sliding_log; 9/hour token_bucket burst=100";
        let limiter =
            store.builder().clock(clock.clone()).policy(policy("a", quotas)).build().unwrap().blocking();
        let slots = "3 concurrent; 0/hour";
        let _ = limiter.charge(Request::new("user").cost(12)).unwrap();
        clock.advance(Duration::from_millis(10)).unwrap();
        let explained = limiter.admin().explain("user").unwrap();
        let words: Vec<_> = explained.quotas.iter().map(|quota| quota.words.as_str()).collect();
        assert_eq!(
            words,
            [
                "debt 12 of 100, repays 1.67/s",
                "11.9 of 40 in the queue, 10/s leave",
                "12 of 60 in use, 5 come back every 6h",
                "12 of 30 in this window, which ends in 1h",
                "12 of 40 in the last 15m, counted in 10 parts",
                "12 of 50 in the last 1m, each at its time",
                "debt 12 of 100, repays 9/hour",
            ]
        );
        let explained = limiter.admin().explain(Request::new("user").policy(slots)).unwrap();
        let words: Vec<_> =
            explained.quotas.iter().map(|quota| (quota.words.as_str(), quota.admits)).collect();
        assert_eq!(words, [("0 of 3 reservations", true), ("the limit is 0: nothing is admitted", false)]);
        assert_eq!((explained.allowed, explained.retry_after_us), (false, None));
    }
}

#[test]
fn reservations_are_explained() {
    for store in Store::each() {
        let clock = ManualClock::new(NOW_US).unwrap();
        let quotas = "2 concurrent; 100/hour token_bucket";
        let limiter = store.builder().clock(clock).policy(policy("a", quotas)).build().unwrap().blocking();
        let options = || ReserveOptions::default().ttl(Duration::from_secs(9));
        let held: Vec<_> =
            (0..2).map(|_| limiter.reserve(Request::new("user").cost(30), options()).unwrap()).collect();
        let explained = limiter.admin().explain(Request::new("user").cost(50)).unwrap();
        assert_eq!((explained.allowed, explained.cause), (false, Some(Cause::Quota)));
        assert_eq!((explained.reservations, explained.reserved_units), (2, 60));
        assert_eq!(explained.reservations_end_after_us, 9_000_000);
        let each: Vec<_> =
            explained.quotas.iter().map(|quota| (quota.used, quota.admits, quota.retry_after_us)).collect();
        assert_eq!(each, [(2, false, Some(9_000_000)), (0, false, Some(9_000_000))]);
        for reservation in held {
            reservation.cancel_blocking().unwrap();
        }
        assert!(limiter.admin().explain(Request::new("user").cost(50)).unwrap().allowed);
    }
}

#[test]
fn numbers_of_a_key_are_explained() {
    for store in Store::each() {
        let (limiter, _) = limiter(&store);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let entry = r#"{"numbers": "7/minute token_bucket", "by": "ops", "why": "ticket 7"}"#;
        let _ =
            runtime.block_on(limiter.asynchronous().admin().set_entry("override api dave", entry)).unwrap();
        for (request, source, plan, quota, statement) in [
            (api("alice"), QuotasSource::Quotas, None, "10/minute token_bucket", None),
            (api("alice").plan("gold"), QuotasSource::Plan, Some("gold"), "100/minute token_bucket", None),
            (
                api("bob"),
                QuotasSource::Override,
                Some("gold"),
                "100/minute token_bucket",
                Some("override api bob"),
            ),
            (
                api("carol"),
                QuotasSource::Override,
                None,
                "20/minute token_bucket",
                Some("override api carol"),
            ),
            (
                api("dave").plan("gold"),
                QuotasSource::Override,
                None,
                "7/minute token_bucket",
                Some("override api dave"),
            ),
        ] {
            let explained = limiter.admin().explain(request).unwrap();
            assert_eq!((explained.quotas_source, explained.plan.as_deref()), (source, plan));
            assert_eq!(&*explained.quotas[0].quota, quota);
            assert_eq!(explained.override_entry.as_ref().map(|entry| entry.entry.as_str()), statement);
        }
        let of_entry = limiter.admin().explain(api("dave")).unwrap().override_entry.unwrap();
        let (by, why) = (of_entry.by.as_deref(), of_entry.why.as_deref());
        assert_eq!((by, why, of_entry.in_document), (Some("ops"), Some("ticket 7"), false));
        let of_document = limiter.admin().explain(api("carol")).unwrap().override_entry.unwrap();
        assert!(of_document.in_document && of_document.until_us == Some(4_102_444_800_000_000));
        let configuration = limiter.admin().explain(api("alice")).unwrap().configuration.unwrap();
        let status = limiter.asynchronous().admin().configuration().unwrap();
        assert_eq!((configuration.version, configuration.digest), (status.version, status.digest));
    }
}

#[test]
fn lists_modes_pools_and_penalties_are_explained() {
    for store in Store::each() {
        let (limiter, _) = limiter(&store);
        let denied = limiter.admin().explain(api("mallory")).unwrap();
        assert_eq!(
            (denied.allowed, denied.cause, denied.retry_after_us),
            (false, Some(Cause::DenyList), None)
        );
        let entry = denied.list_entry.unwrap();
        assert_eq!((entry.entry.as_str(), entry.in_document), ("deny key api mallory", true));

        let _ = limiter.charge(api("alice").cost(10)).unwrap();
        let elastic = limiter.admin().explain(api("alice").cost(8)).unwrap();
        assert!(elastic.allowed && elastic.elastic && !elastic.quotas[0].admits);
        let pool = elastic.pool.unwrap();
        assert_eq!((&*pool.policy, pool.key.bytes(), pool.headroom), ("fleet", Some(&b"all"[..]), 50));
        let _ = limiter.charge(Request::new("all").policy("fleet").cost(5)).unwrap();
        let full = limiter.admin().explain(api("alice").cost(8)).unwrap();
        let peeked = limiter.peek(api("alice").cost(8)).unwrap();
        assert_eq!((full.allowed, full.retry_after_us), (peeked.allowed(), peeked.retry_after_us()));
        assert!(!full.pool.unwrap().allowed);

        let login = Request::new("alice").policy("login");
        for _ in 0..3 {
            let _ = limiter.check(login).unwrap();
        }
        let counted = limiter.admin().explain(login).unwrap();
        assert_eq!((counted.cause, counted.blocked_for_us), (Some(Cause::Quota), 0));
        let penalty = counted.penalty.unwrap();
        assert_eq!((penalty.denials, penalty.blocks_at, penalty.next_block_us), (2, 3, 60_000_000));
        let _ = limiter.check(login).unwrap();
        let blocked = limiter.admin().explain(login).unwrap();
        assert_eq!((blocked.cause, blocked.blocked_for_us), (Some(Cause::Blocked), 60_000_000));
        let penalty = blocked.penalty.unwrap();
        assert_eq!((penalty.denials, penalty.level, penalty.next_block_us), (0, 1, 120_000_000));

        let shadow = Request::new("alice").policy("shadow");
        for _ in 0..2 {
            let _ = limiter.check(shadow).unwrap();
        }
        let explained = limiter.admin().explain(shadow).unwrap();
        assert!(explained.allowed && explained.shadowed && explained.retry_after_us > Some(0));
        let off = limiter.admin().explain(Request::new("alice").policy("off").cost(9)).unwrap();
        assert_eq!((off.allowed, off.cause, off.mode), (true, Some(Cause::Off), PolicyMode::Off));
    }
}

#[test]
fn request_is_explained_by_lists_rules_and_policies() {
    for store in Store::each() {
        let (limiter, _) = limiter(&store);
        let request = || RequestAttributes::new().path("/v1/orders");
        let entry = |request: RequestAttributes<'_>| {
            let explained = limiter.admin().explain_request(&request).unwrap();
            let entry = explained.list_entry.map(|entry| entry.entry);
            (explained.allowed, explained.cause, entry, explained.policies.len())
        };
        let deny = |text: &str| (false, Some(Cause::DenyList), Some(text.to_owned()), 0);
        assert_eq!(entry(request().peer("203.0.113.9")), deny("deny client 203.0.113.0/24"));
        assert!(!entry(request().attribute("country", "KP").peer("203.0.113.9")).0);
        assert_eq!(entry(request().attribute("country", "KP")), deny("deny country KP"));
        let allowed = (true, Some(Cause::AllowList), Some("allow client 203.0.113.7".to_owned()), 0);
        assert_eq!(entry(request().peer("203.0.113.7")), allowed);
        assert_eq!(entry(RequestAttributes::new().path("/other")), (true, None, None, 0));

        let explained = limiter.admin().explain_request(&request().attribute("user", "alice")).unwrap();
        assert!(explained.allowed && explained.configuration.is_some());
        let [api] = &explained.policies[..] else { unreachable!("{explained:?}") };
        assert_eq!(
            (&*api.policy, api.key.bytes(), api.cost, api.rule),
            ("api", Some(&b"alice"[..]), 2, Some(2))
        );

        let login = || RequestAttributes::new().path("/login");
        let missing = limiter.admin().explain_request(&login()).unwrap();
        assert_eq!(
            (missing.allowed, missing.cause, missing.retry_after_us),
            (false, Some(Cause::MissingKey), None)
        );
        let _ = limiter.charge(Request::new("alice").policy("login")).unwrap();
        let denied = limiter.admin().explain_request(&login().attribute("user", "alice")).unwrap();
        assert_eq!((denied.allowed, denied.cause), (false, Some(Cause::Quota)));
        let policies: Vec<_> =
            denied.policies.iter().map(|policy| (&*policy.policy, policy.allowed)).collect();
        assert_eq!(policies, [("login", false), ("shadow", true)]);
        assert_eq!(denied.retry_after_us, denied.policies[0].retry_after_us);
        let decided =
            limiter.decide(&login().attribute("user", "alice"), &ReserveOptions::default().terms().unwrap());
        let decided = decided.unwrap();
        assert_eq!(
            (decided.allowed, decided.cause, decided.retry_after_us),
            (false, denied.cause, denied.retry_after_us)
        );
    }
    let plain = Limiter::builder().policy(policy("a", "1/s")).build().unwrap().blocking();
    let _ = plain.admin().explain_request(&RequestAttributes::new()).unwrap_err();
}
