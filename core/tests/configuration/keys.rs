//! What a configuration decides around its store: modes, lists, missing keys, bounds, and pools of several processes.

use std::time::Duration;

use futures_util::FutureExt;
use polylimit::clock::ManualClock;
use polylimit::decision::Cause;
use polylimit::document::RequestAttributes;
use polylimit::raw::{Answer, Call};
use polylimit::{Limiter, LimiterBuilder, Request};

use super::{START_US, terms};

const DOCUMENT: &str = r#"
polylimit = 1

[policies.api]
quotas = "3/minute fixed_window"

[policies.shadow]
quotas = "3/minute fixed_window"
mode = "shadow"

[policies.off]
quotas = "3/minute fixed_window"
mode = "off"

[policies.elastic]
quotas = "1/52w fixed_window"
elastic = { policy = "pool", key = "all" }

[policies.own]
quotas = "1/52w fixed_window"
elastic = { policy = "pool", key = "all", counts = "elastic" }

[policies.pool]
quotas = "9/52w fixed_window"

[[rules]]
match = { path = "/modes" }
apply = [{ policy = "api", key = "{user}" }, { policy = "shadow", key = "{user}" }, { policy = "off", key = "{user}" }]

[[rules]]
match = { path = "/off" }
apply = [{ policy = "off", key = "{team}", missing = "deny" }]

[[rules]]
apply = [{ policy = "shadow", key = "{user}" }, { policy = "api", key = "{team}", missing = "deny" }]

[lists]
deny = ["key api bad", "key shadow bad"]
allow = ["key api friend"]
"#;

fn configured(builder: LimiterBuilder) -> Limiter {
    builder.document(DOCUMENT).clock(ManualClock::new(START_US).unwrap()).build().unwrap()
}

fn alice(path: &'static str) -> RequestAttributes<'static> {
    RequestAttributes::new().path(path).attribute("user", "alice")
}

#[test]
fn decision_on_a_request_shows_what_its_policies_do() {
    let limiter = configured(Limiter::builder()).blocking();
    let decided = limiter.decide(&alice("/modes"), &terms()).unwrap();
    assert_eq!((decided.allowed, decided.status(), decided.cause), (true, None, None));
    let reported: Vec<_> = decided.decisions.iter().map(|made| made.is_reported).collect();
    assert_eq!(reported, [true, false, false]);
    let shown = format!("{:?}", decided.decisions[0]);
    assert!(shown.contains("api") && shown.contains("5 bytes") && !shown.contains("alice"), "{shown}");

    let denied = limiter.decide(&alice("/missing"), &terms()).unwrap();
    let shown = (denied.status(), denied.cause, denied.decisions.len());
    assert_eq!(shown, (Some(400), Some(Cause::MissingKey), 0));

    // A policy that is off needs no key.
    assert!(limiter.decide(&alice("/off"), &terms()).unwrap().allowed);

    for entry in ["deny user alice", "deny key api alice"] {
        let _ = limiter.admin().set_entry(entry, r#"{"until": "2027-01-15T08:00:30Z"}"#).unwrap();
    }
    let denied = limiter.decide(&alice("/modes"), &terms()).unwrap();
    assert_eq!((denied.status(), denied.retry_after_us), (Some(403), Some(30_000_000)));
    let denied = limiter.check(Request::new("alice").policy("api")).unwrap();
    assert_eq!((denied.cause(), denied.retry_after_us()), (Some(Cause::DenyList), Some(30_000_000)));
}

#[test]
fn mode_and_lists_decide_what_a_take_gets_and_a_check_is_told() {
    let limiter = configured(Limiter::builder()).blocking();
    for (policy, key, taken, check) in [
        ("api", "key", 3, (false, false)),
        ("api", "bad", 0, (false, false)),
        ("api", "friend", 5, (true, false)),
        ("off", "key", 5, (true, false)),
        ("shadow", "key", 5, (true, true)),
        ("shadow", "bad", 5, (true, true)),
    ] {
        let request = Request::new(key).policy(policy);
        assert_eq!(limiter.take(request.cost(5)).unwrap().taken(), taken, "{policy} {key}");
        for decision in [limiter.check(request).unwrap(), limiter.peek(request).unwrap()] {
            assert_eq!((decision.allowed(), decision.shadowed()), check, "{policy} {key}");
        }
    }
}

#[test]
fn pool_admits_what_a_quota_denies_and_no_more() {
    let limiter = configured(Limiter::builder()).blocking();
    let key = Request::new("key").policy("own");
    let left = || limiter.peek(Request::new("all").policy("pool")).unwrap().remaining();
    // What the policy admits itself does not count in this pool.
    for (elastic, pool) in [(false, 9), (true, 8), (true, 7)] {
        let decision = limiter.check(key).unwrap();
        assert_eq!((decision.allowed(), decision.elastic(), left()), (true, elastic, pool));
    }
    // A peek takes nothing, more than the limit never fits, and neither does a key that is blocked.
    assert!(limiter.peek(key).unwrap().elastic() && !limiter.check(key.cost(2)).unwrap().allowed());
    let _ = limiter.admin().block(key, Duration::from_secs(60)).unwrap();
    assert_eq!(limiter.check(key).unwrap().cause(), Some(Cause::Blocked));
    assert_eq!(left(), 7);
}

#[test]
fn only_a_call_that_may_wait_for_another_process_is_not_answered_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut limiters = vec![(configured(Limiter::builder()), true)];
    if cfg!(all(target_os = "linux", feature = "local")) {
        let url = format!("file://{}/store?size=1MiB", folder.path().display());
        limiters.push((configured(Limiter::builder().store(&url)), false));
    }
    for (limiter, never_waits) in limiters {
        for (policy, expected) in [("api", true), ("off", true), ("elastic", never_waits)] {
            let call = Call::Check(Request::new("key").policy(policy));
            assert_eq!(limiter.raw().try_call(&call).is_some(), expected, "{policy}");
        }
    }
}

#[test]
fn acquire_waits_only_for_what_time_brings() {
    let limiter = configured(Limiter::builder());
    let acquire = |key, cost| {
        let request = Request::new(key).policy("api").cost(cost);
        limiter.start(&Call::Acquire(request, Duration::from_secs(3600))).now_or_never()
    };
    let allowed = |key, cost| match acquire(key, cost) {
        Some(Ok(Answer::Decision(decision))) => Some(decision.allowed()),
        Some(other) => panic!("{other:?}"),
        None => None,
    };
    // A key on a list, and more than the limit, are denied at once.
    let made = [("bad", 1), ("good", 4), ("good", 3), ("good", 1)].map(|(key, cost)| allowed(key, cost));
    assert_eq!(made, [Some(false), Some(false), Some(true), None]);
}

#[test]
fn bounds_hold_for_keys_of_a_configured_policy() {
    let limiter = configured(Limiter::builder()).blocking();
    let request = Request::new("key").policy("api");
    for (refused, about) in [
        (request.cost(Request::MAX_COST + 1), "cost is 1000000000001"),
        (request.headroom(100), "headroom is 100 %"),
    ] {
        for error in [limiter.check(refused).err(), limiter.peek(refused).err()] {
            assert!(error.unwrap().message().starts_with(about));
        }
    }
}

/// The limiters of a host charge a pool at once for what their policies spend.
#[test]
#[cfg(all(target_os = "linux", feature = "local"))]
fn pool_in_a_shared_file_is_charged_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/store?size=1MiB", folder.path().display());
    let [one, two] =
        [(); 2].map(|()| Limiter::builder().store(&url).document(DOCUMENT).build().unwrap().blocking());
    assert!(one.check(Request::new("key").policy("elastic")).unwrap().allowed());
    assert_eq!(two.peek(Request::new("all").policy("pool")).unwrap().remaining(), 8);
}
