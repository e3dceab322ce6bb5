//! Responses while the store is unavailable.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use polylimit::http::tower::{OnOutage, RateLimitBuilder, RateLimitLayer};
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy};
use polylimit_test_servers::{Kind, Server, until};

use crate::service::Service;

/// A service whose Redis server has been killed.
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

/// Adds the code of the error because of which the layer responds.
async fn with_error_code(response: Response<Body>) -> impl IntoResponse {
    let error = response.extensions().get::<polylimit::Error>().cloned();
    let code = error.map_or("", |error| error.kind().code());
    ([("x-error", code)], response)
}

#[test]
fn outage_policy_deny_responds_with_503() {
    let denied = without_server(Outage::Deny, |limit| limit).get("/");
    assert_eq!((denied.status, denied.field("retry-after").len()), (503, 1));
    assert!(denied.body.contains("temporary-reduced-capacity"), "{denied:?}");
}

#[test]
fn outage_policies_fallback_and_allow_admit_requests() {
    let service = without_server(Outage::Fallback, |limit| limit);
    let statuses = service.statuses("/", 4);
    assert_eq!((statuses[0], statuses[3]), (200, 429));
    assert_eq!(without_server(Outage::Allow, |limit| limit).statuses("/", 4), [200; 4]);
}

#[test]
fn on_outage_decides_and_on_denied_makes_the_response() {
    let denied = without_server(Outage::Allow, |limit| {
        let limit = limit.on_outage(|outage, _| {
            assert!(outage.error.is_none() && outage.outcomes[0].1.allowed());
            OnOutage::Deny
        });
        limit.on_denied(|denial, _| {
            assert_eq!(denial.problem.status(), 503);
            let reason = denial.outcomes[0].1.degraded().map_or("", polylimit::decision::Degradation::name);
            (StatusCode::BAD_GATEWAY, reason).into_response()
        })
    });
    let got = denied.get("/");
    assert_eq!((got.status, got.body.is_empty()), (502, false));

    let allowed = without_server(Outage::Deny, |limit| limit.on_outage(|_, _| OnOutage::Admit)).get("/");
    assert_eq!((allowed.status, &*allowed.body), (200, "hello"));
    assert_eq!(allowed.field("retry-after"), [""; 0]);

    let decided = without_server(Outage::Deny, |limit| limit.on_outage(|_, _| OnOutage::ByPolicy)).get("/");
    assert_eq!(decided.status, 503);
}

#[test]
fn on_outage_does_not_overrule_a_denial_of_the_store() {
    let server = Server::start(Kind::Redis, &[]);
    let limiter = Limiter::builder()
        .store(&format!("{}?denial_cache_max=1h", server.url()))
        .policy(Policy::parse("strict", "1/day fixed_window").unwrap())
        .policy(Policy::parse("wide", "100/day fixed_window").unwrap())
        .outage("strict", Outage::Deny)
        .outage("wide", Outage::Allow)
        .build()
        .unwrap();
    let observer = limiter.clone();
    let limit = RateLimitLayer::builder(limiter, |_| "all").policy("strict").policy("wide");
    let limit = limit.on_outage(|_, _| OnOutage::Admit).build().unwrap();
    let service = Service::start(Router::new().route("/", get(|| async { "hello" })).layer(limit));
    // On a slow machine the first denials may be degraded ones. The first denial of the server starts the subscription, which
    // clears the denial cache.
    let denies = || (service.get("/").status == 429).then_some(());
    until("the server denies", Duration::from_secs(10), denies);
    let is_subscribed = || {
        for channel in server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "polylimit:1:invalidations:*"]) {
            let _: u64 = server.query(&["PUBLISH", &channel, ""]);
        }
        (observer.stats().invalidations > 0).then_some(())
    };
    until("the limiter has subscribed", Duration::from_secs(10), is_subscribed);
    until("the server denies", Duration::from_secs(10), denies);
    server.kill();
    assert_eq!(service.statuses("/", 3), [429; 3]);
}

#[test]
fn closed_limiter_responds_with_500() {
    let policy = Policy::parse("api", "2/minute").unwrap();
    let limiter = Limiter::builder().policy(policy).build().unwrap();
    let limit = RateLimitLayer::builder(limiter.clone(), |_| "all").build().unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(limit);
    let service = Service::start(app.layer(axum::middleware::map_response(with_error_code)));
    limiter.close();
    let got = service.get("/");
    assert_eq!((got.status, got.field("x-error")), (500, vec!["closed"]));
}

/// No outage policy decides where the file of a store is something else.
#[cfg(target_os = "linux")]
#[test]
fn store_error_responds_with_503() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "no store").unwrap();
    let url = format!("file://{}", file.path().display());
    let limit = || {
        let policy = Policy::parse("api", "2/minute").unwrap();
        let limiter = Limiter::builder().store(&url).policy(policy).build().unwrap();
        RateLimitLayer::builder(limiter, |_| "all")
    };
    let response = |limit: RateLimitBuilder<Body>| {
        let app = Router::new().route("/", get(|| async { "hello" })).layer(limit.build().unwrap());
        Service::start(app.layer(axum::middleware::map_response(with_error_code))).get("/")
    };
    let undecided = response(limit());
    assert_eq!((undecided.status, undecided.field("content-type")), (503, vec!["application/problem+json"]));
    assert!(undecided.body.contains("The request cannot be counted at the moment."), "{undecided:?}");
    assert_eq!(undecided.field("x-error"), ["store_failed"]);
    let allowed = response(limit().on_outage(|outage, _| {
        assert!(outage.error.is_some() && outage.outcomes.is_empty());
        OnOutage::Admit
    }));
    assert_eq!((allowed.status, &*allowed.body), (200, "hello"));
}
