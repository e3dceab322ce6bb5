//! What clients are told while the store cannot be asked.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use polylimit::tower::{InPlace, RateLimitBuilder, RateLimitLayer};
use polylimit::{Limiter, Outage, Policy};
use polylimit_test_servers::{Kind, Server, until};

use crate::service::Service;

/// A service whose server is gone.
fn without_server(
    outage: Outage,
    options: impl FnOnce(RateLimitBuilder<Body>) -> RateLimitBuilder<Body>,
) -> Service {
    let server = Server::start(Kind::Redis, &[]);
    let policy = Policy::parse("api", "2/minute fixed_window").unwrap();
    let limiter =
        Limiter::builder().store(&server.url()).policy(policy).outage("api", outage).build().unwrap();
    server.kill();
    let limit = options(RateLimitLayer::builder(limiter, |_| "all")).build().unwrap();
    Service::start(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}

#[test]
fn a_policy_that_denies_then_answers_503() {
    let denied = without_server(Outage::Deny, |limit| limit).get("/");
    assert_eq!((denied.status, denied.field("retry-after").len()), (503, 1));
    assert!(denied.body.contains("temporary-reduced-capacity"), "{denied:?}");
}

#[test]
fn another_limiter_decides_then() {
    let service = without_server(Outage::Fallback, |limit| limit);
    let statuses = service.statuses("/", 4);
    assert_eq!((statuses[0], statuses[3]), (200, 429));
    assert_eq!(without_server(Outage::Allow, |limit| limit).statuses("/", 4), [200; 4]);
}

#[test]
fn a_function_has_the_last_word() {
    let answered = without_server(Outage::Deny, |limit| {
        limit.on_outage(|outage, _| {
            assert!(outage.error.is_none());
            let reason = outage.outcomes[0].1.degraded().map_or("", polylimit::Degradation::name);
            InPlace::Respond((StatusCode::BAD_GATEWAY, reason).into_response())
        })
    });
    let got = answered.get("/");
    assert_eq!((got.status, got.body.is_empty()), (502, false));

    let allowed = without_server(Outage::Deny, |limit| limit.on_outage(|_, _| InPlace::Allow)).get("/");
    assert_eq!((allowed.status, &*allowed.body), (200, "hello"));
    assert_eq!(allowed.field("retry-after"), [""; 0]);

    let decided = without_server(Outage::Deny, |limit| limit.on_outage(|_, _| InPlace::AsDecided)).get("/");
    assert_eq!(decided.status, 503);
}

#[test]
fn what_the_store_denied_is_not_overruled() {
    let server = Server::start(Kind::Redis, &[]);
    let limiter = Limiter::builder()
        .store(&format!("{}?denial_cache_max=1h", server.url()))
        .policy(Policy::parse("strict", "1/day fixed_window").unwrap())
        .policy(Policy::parse("wide", "100/day fixed_window").unwrap())
        .outage("strict", Outage::Deny)
        .outage("wide", Outage::Allow)
        .build()
        .unwrap();
    let heard = limiter.clone();
    let limit = RateLimitLayer::builder(limiter, |_| "all").policy("strict").policy("wide");
    let limit = limit.on_outage(|_, _| InPlace::Allow).build().unwrap();
    let service = Service::start(Router::new().route("/", get(|| async { "hello" })).layer(limit));
    // However slow the machine, sooner or later the server has denied it, and whoever begins to listen then has done so: that
    // forgets what is known.
    let denies = || (service.get("/").status == 429).then_some(());
    until("the server denies", Duration::from_secs(10), denies);
    let listens = || {
        let _: u64 = server.query(&["PUBLISH", "polylimit:1:given_back", ""]);
        (heard.stats().given_back_heard > 0).then_some(())
    };
    until("somebody listens", Duration::from_secs(10), listens);
    until("the server denies", Duration::from_secs(10), denies);
    server.kill();
    assert_eq!(service.statuses("/", 3), [429; 3]);
}

#[test]
fn a_closed_limiter_is_no_fault_of_the_client() {
    let policy = Policy::parse("api", "2/minute").unwrap();
    let limiter = Limiter::builder().policy(policy).build().unwrap();
    let limit = RateLimitLayer::builder(limiter.clone(), |_| "all").build().unwrap();
    let logged = |response: Response<_>| async move {
        let error = response.extensions().get::<polylimit::Error>().cloned();
        let code = error.map_or("", |error| error.kind().code());
        ([("x-error", code)], response)
    };
    let app = Router::new().route("/", get(|| async {})).layer(limit);
    let service = Service::start(app.layer(axum::middleware::map_response(logged)));
    limiter.close();
    let got = service.get("/");
    assert_eq!((got.status, got.field("x-error")), (500, vec!["closed"]));
}

/// Nobody decides for a local store that cannot be opened.
#[cfg(target_os = "linux")]
#[test]
fn a_store_that_cannot_decide_is_told_as_503() {
    let limit = || {
        let policy = Policy::parse("api", "2/minute").unwrap();
        let limiter =
            Limiter::builder().store("file:///proc/no-such-folder/store").policy(policy).build().unwrap();
        RateLimitLayer::builder(limiter, |_| "all")
    };
    let answers = |limit: RateLimitBuilder<Body>| {
        let app = Router::new().route("/", get(|| async { "hello" })).layer(limit.build().unwrap());
        Service::start(app).get("/")
    };
    let undecided = answers(limit());
    assert_eq!((undecided.status, &*undecided.body), (503, "The request cannot be counted at the moment.\n"));
    let allowed = answers(limit().on_outage(|outage, _| {
        assert!(outage.error.is_some() && outage.outcomes.is_empty());
        InPlace::Allow
    }));
    assert_eq!((allowed.status, &*allowed.body), (200, "hello"));
}
