//! Nested layers: charges once a request, and refunds after a denial or an error.

use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn, map_response};
use axum::response::Response;
use axum::routing::get;
use polylimit::http::guard::RequestLimits;
use polylimit::http::tower::{RateLimitBuilder, RateLimitLayer};
use polylimit::{Limiter, Request};

use crate::service::{Service, limiter};

fn user(request: &Parts) -> String {
    request.uri.query().unwrap_or_default().to_owned()
}

/// A layer that counts by the query.
fn layer(limiter: &Limiter, policies: &[&str]) -> RateLimitLayer<Body> {
    by_user(limiter, policies).build().unwrap()
}

fn by_user(limiter: &Limiter, policies: &[&str]) -> RateLimitBuilder<Body> {
    let builder = RateLimitLayer::builder(limiter.clone(), user);
    policies.iter().fold(builder, |builder, policy| builder.policy(*policy))
}

fn left(limiter: &Limiter, key: &str, policy: &str) -> u64 {
    limiter.blocking().peek(Request::new(key).policy(policy)).unwrap().remaining()
}

#[test]
fn policy_and_key_are_charged_once_a_request() {
    let limiter = limiter(&[("web", "9/hour fixed_window"), ("other", "9/hour fixed_window")]);
    let show = |Extension(limits): Extension<RequestLimits>| async move {
        let all = limits.outcomes();
        let each = all.iter().map(|(policy, decision)| format!("{} {}", policy.name(), decision.remaining()));
        each.collect::<Vec<_>>().join("; ")
    };
    let app = Router::new()
        .route("/", get(show))
        .layer(layer(&limiter, &["web"]))
        .layer(layer(&limiter, &["other", "web"]))
        .layer(layer(&limiter, &["web"]));
    let answer = Service::start(app).get("/?a");
    assert_eq!((answer.status, &*answer.body), (200, "web 8; other 8"));
    assert_eq!((left(&limiter, "a", "web"), left(&limiter, "a", "other")), (8, 8));
    assert_eq!(answer.field("ratelimit"), [r#""web";r=8;t=3600, "other";r=8;t=3600"#]);
}

#[test]
fn spellings_of_one_quota_are_one_policy() {
    let limiter = limiter(&[]);
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer(&limiter, &["9 per 60s"]))
        .layer(layer(&limiter, &["9/minute"]));
    assert_eq!(Service::start(app).get("/?a").status, 200);
    assert_eq!(left(&limiter, "a", "9/minute"), 8);
}

#[test]
fn another_key_or_limiter_is_charged_separately() {
    let (one, elsewhere) = (limiter(&[("web", "9/hour")]), limiter(&[("web", "9/hour")]));
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer(&elsewhere, &["web"]))
        .layer(RateLimitLayer::builder(one.clone(), |_| "all").build().unwrap())
        .layer(layer(&one, &["web"]));
    assert_eq!(Service::start(app).get("/?a").status, 200);
    assert_eq!((left(&one, "a", "web"), left(&one, "all", "web"), left(&elsewhere, "a", "web")), (8, 8, 8));
}

#[test]
fn each_attempt_of_a_retry_is_charged_by_the_inner_layers() {
    let limiter = limiter(&[("attempts", "3/hour fixed_window"), ("web", "9/hour fixed_window")]);
    let thrice = |request: axum::extract::Request, next: Next| async move {
        let parts = request.into_parts().0;
        let attempt = || axum::extract::Request::from_parts(parts.clone(), Body::empty());
        for _ in 0..2 {
            let _ = next.clone().run(attempt()).await;
        }
        next.run(attempt()).await
    };
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer(&limiter, &["attempts"]))
        .layer(from_fn(thrice))
        .layer(layer(&limiter, &["web"]));
    let service = Service::start(app);
    assert_eq!(service.get("/?a").status, 200);
    assert_eq!((left(&limiter, "a", "attempts"), left(&limiter, "a", "web")), (0, 8));
    assert_eq!(service.get("/?a").status, 429);
    assert_eq!(left(&limiter, "a", "web"), 8);
}

#[test]
fn outer_layer_keeps_its_units_when_a_retry_is_admitted_after_a_denial() {
    let limiter = limiter(&[("first", "1/hour fixed_window"), ("second", "2/hour fixed_window")]);
    let outer = crate::service::limiter(&[("web", "9/hour fixed_window")]);
    let by_attempt = |request: &Parts| match request.headers.get("attempt") {
        Some(_) => Some(["second"]),
        None => Some(["first"]),
    };
    let retry = |request: axum::extract::Request, next: Next| async move {
        let (mut parts, _) = request.into_parts();
        let denied = next.clone().run(axum::extract::Request::from_parts(parts.clone(), Body::empty())).await;
        if denied.status() != StatusCode::TOO_MANY_REQUESTS {
            return denied;
        }
        parts.headers.insert("attempt", "2".parse().unwrap());
        next.run(axum::extract::Request::from_parts(parts, Body::empty())).await
    };
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer(&limiter, &["second"]))
        .layer(RateLimitLayer::builder(limiter.clone(), user).policies_of(by_attempt).build().unwrap())
        .layer(from_fn(retry))
        .layer(layer(&outer, &["web"]));
    let service = Service::start(app);
    let web_after = |status| {
        assert_eq!(service.get("/?a").status, status);
        left(&outer, "a", "web")
    };
    assert_eq!(web_after(200), 8);
    // The first attempt is denied by `first`, and the second one is admitted.
    assert_eq!(web_after(200), 7);
    // Both attempts are denied.
    assert_eq!(web_after(429), 7);
    assert_eq!((left(&limiter, "a", "first"), left(&limiter, "a", "second")), (0, 0));
}

#[test]
fn denial_of_an_inner_layer_is_refunded_by_outer_layers() {
    let limiter =
        limiter(&[("outer", "2/hour fixed_window"), ("middle", "2/hour fixed_window"), ("inner", "0/hour")]);
    // An application may replace the response of the layer.
    let plain = |response: Response| async move { (response.status(), "refused") };
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer(&limiter, &["inner", "outer"]))
        .layer(map_response(plain))
        .layer(layer(&limiter, &["middle"]))
        .layer(layer(&limiter, &["outer"]));
    let denied = Service::start(app).get("/?a");
    assert_eq!((denied.status, &*denied.body), (429, "refused"));
    assert_eq!((left(&limiter, "a", "outer"), left(&limiter, "a", "middle")), (2, 2));
    let fields = denied.field("ratelimit").concat();
    assert!(fields.starts_with(r#""outer";r=2;t=3600, "middle";r=2;t=3600, "inner";r=0"#), "{fields}");
}

#[test]
fn error_of_an_inner_layer_leaves_the_units_of_outer_layers_spent() {
    let (outer, closed) = (limiter(&[("web", "9/hour")]), limiter(&[("api", "9/hour")]));
    let app = Router::new().route("/", get(|| async {})).layer(layer(&closed, &[])).layer(layer(&outer, &[]));
    closed.close();
    let service = Service::start(app);
    assert_eq!(service.get("/?a").status, 500);
    assert_eq!(left(&outer, "a", "web"), 8);
}

#[test]
fn header_fields_include_the_refund() {
    let limiter = limiter(&[("login", "2/minute fixed_window")]);
    let failed = by_user(&limiter, &[]).count(|response| response.status == StatusCode::UNAUTHORIZED);
    let app = Router::new()
        .route("/right", get(|| async {}))
        .route("/wrong", get(|| async { StatusCode::UNAUTHORIZED }))
        .layer(failed.build().unwrap());
    let service = Service::start(app);
    assert_eq!(service.get("/right").field("ratelimit"), [r#""login";r=2;t=60"#]);
    assert_eq!(service.get("/wrong").field("ratelimit"), [r#""login";r=1;t=60"#]);
}

#[test]
fn unnamed_quotas_have_separate_states_in_each_scope() {
    let limiter = limiter(&[("named", "2/hour")]);
    let limit = |policy, scope: &str| by_user(&limiter, &[policy]).scope(scope).build().unwrap();
    let hello = || get(|| async {});
    let app = Router::new()
        .route("/login", hello().layer(limit("1/hour", "/login")))
        .route("/search", hello().layer(limit("1/hour", "/search")))
        .route("/find", hello().layer(limit("1 per hour", "/search")))
        .route("/a", hello().layer(layer(&limiter, &["1/hour"])))
        .route("/b", hello().layer(layer(&limiter, &["1/hour"])))
        .route("/named/a", hello().layer(limit("named", "/named/a")))
        .route("/named/b", hello().layer(limit("named", "/named/b")));
    let service = Service::start(app);
    for (path, status) in [
        ("/login", 200),
        ("/search", 200),
        ("/login", 429),
        ("/find", 429),
        ("/a", 200),
        ("/b", 429),
        ("/named/a", 200),
        ("/named/b", 200),
        ("/named/a", 429),
    ] {
        assert_eq!(service.get(path).status, status, "{path}");
    }
}
