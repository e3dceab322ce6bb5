//! Responses to clients, keys and costs of requests, and responses that count.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{ConnectInfo, Extension};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use polylimit::http::guard::{KeyPart, RequestLimits};
use polylimit::http::headers::HeaderSettings;
use polylimit::http::tower::{RateLimitBuilder, RateLimitLayer, User, client_address, header};
use polylimit::http::{ClientAddressRules, ForwardingHeader};
use polylimit::{ErrorKind, Request};

use crate::service::{Service, limiter};

fn hello(limit: RateLimitLayer<axum::body::Body>) -> Service {
    Service::start(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}

#[test]
fn denied_request_gets_a_problem_document_or_text() {
    let limit = RateLimitLayer::builder(limiter(&[("api", "2/minute fixed_window")]), |_| "all");
    let service = hello(limit.build().unwrap());
    let first = service.get("/");
    assert_eq!((first.status, &*first.body), (200, "hello"));
    assert_eq!(first.field("ratelimit-policy"), [r#""api";q=2;w=60"#]);
    assert_eq!(first.field("ratelimit"), [r#""api";r=1;t=60"#]);
    assert_eq!(service.get("/").field("retry-after"), [""; 0]);

    let denied = service.get("/");
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("retry-after"), ["60"]);
    assert_eq!(denied.field("ratelimit"), [r#""api";r=0;t=60"#]);
    assert_eq!(denied.field("content-type"), ["application/problem+json"]);
    assert_eq!(denied.field("vary"), ["accept"]);
    assert!(denied.body.contains(r#""status":429"#) && denied.body.contains(r#"["api"]"#), "{denied:?}");

    let text = service.get_with("/", &[("accept", "text/html,*/*;q=0.8")]);
    assert_eq!(text.status, 429);
    assert_eq!(text.field("content-type"), ["text/plain; charset=utf-8"]);
    assert_eq!(text.field("content-length"), [text.body.len().to_string()]);
    assert_eq!(text.body, "Not enough of the quota is left: retry in 60 s.\n");
}

#[test]
fn header_fields_have_the_configured_settings() {
    for (headers, count, expected) in
        [("legacy", 0, ["4", "60"]), ("both epoch", 1, ["4", "1700000060"]), ("none", 0, ["", ""])]
    {
        let limit = RateLimitLayer::builder(limiter(&[("api", "5/minute fixed_window")]), |_| "all");
        let got = hello(limit.headers(headers.parse::<HeaderSettings>().unwrap()).build().unwrap()).get("/");
        let shown = ["x-ratelimit-remaining", "x-ratelimit-reset"].map(|name| got.field(name).concat());
        assert_eq!(shown, expected, "{headers}");
        assert_eq!(got.field("ratelimit").len(), count, "{headers}");
    }
}

#[test]
fn requests_are_counted_by_address_or_header() {
    let rules =
        ClientAddressRules::builder().trust("loopback").header(ForwardingHeader::XForwardedFor).build();
    let peer = |request: &Parts| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip());
    let key = header(HeaderName::from_static("x-api-key"), client_address(rules.unwrap(), peer));
    let limiter = limiter(&[("api", "2/minute")]);
    let service = hello(RateLimitLayer::builder(limiter.clone(), key).build().unwrap());
    for (headers, expected) in [
        (&[][..], "127.0.0.1"),
        (&[("x-forwarded-for", "1.1.1.1, 203.0.113.7")], "203.0.113.7"),
        (&[("x-forwarded-for", "2001:db8:1:2::3")], "2001:db8:1:2::/64"),
        (&[("x-forwarded-for", "203.0.113.8"), ("x-api-key", "k")], "x-api-key:k"),
    ] {
        assert_eq!(limiter.blocking().peek(expected).unwrap().remaining(), 2);
        assert_eq!(service.get_with("/", headers).status, 200);
        assert_eq!(limiter.blocking().peek(expected).unwrap().remaining(), 1, "{expected}");
    }
}

#[test]
fn request_without_a_key_counts_for_the_clients_address() {
    let peer = |request: &Parts| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip());
    let rules = ClientAddressRules::builder().build().unwrap();
    let user = |request: &Parts| Some(request.headers.get("x-user")?.as_bytes().to_vec());
    let admin = |request: &Parts| request.headers.contains_key("x-admin").then_some("admin");
    let limiter = limiter(&[("api", "2/minute")]);
    let limit = RateLimitLayer::builder(limiter.clone(), client_address(rules, peer)).key(user).key(admin);
    let service = hello(limit.build().unwrap());
    for (headers, expected) in [
        (&[][..], "127.0.0.1"),
        (&[("x-user", "alice")], "alice"),
        (&[("x-user", "bob"), ("x-admin", "")], "admin"),
    ] {
        assert_eq!(limiter.blocking().peek(expected).unwrap().remaining(), 2);
        assert_eq!(service.get_with("/", headers).status, 200);
        assert_eq!(limiter.blocking().peek(expected).unwrap().remaining(), 1, "{expected}");
    }
}

#[test]
fn key_has_the_parts_of_the_request() {
    let limiter = limiter(&[("api", "2/minute")]);
    let parts = ["address", "user", "path:tenant"].map(|part| part.parse::<KeyPart>().unwrap());
    let builder = RateLimitLayer::builder(limiter.clone(), |_| "192.0.2.1")
        .path_parameter(|request, name| Some(format!("{name}{}", request.uri.path())));
    let limit = parts.into_iter().fold(builder, RateLimitBuilder::key_part).build().unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(limit);
    let left = |key: &str| limiter.blocking().peek(key).unwrap().remaining();
    assert_eq!(Service::start(app.clone().layer(Extension(User("a|b".to_owned())))).get("/").status, 200);
    assert_eq!(left("192.0.2.1|user:a%7Cb|path:tenant:tenant/"), 1);
    // Without a user, the address counts.
    assert_eq!(Service::start(app).get("/").status, 200);
    assert_eq!(left("192.0.2.1"), 1);
}

#[test]
fn cost_function_and_skip_function_apply_to_each_request() {
    let cost = |request: &Parts| request.uri.query().map_or(1, |units| units.parse().unwrap());
    let limit = RateLimitLayer::builder(limiter(&[("api", "10/minute fixed_window")]), |_| "all");
    let limit = limit.cost_of(cost).skip(|request| request.headers.contains_key("x-health"));
    let service = hello(limit.build().unwrap());
    for (query, expected) in
        [("/?4", r#""api";r=6;t=60"#), ("/?6", r#""api";r=0;t=60"#), ("/?0", r#""api";r=0;t=60"#)]
    {
        assert_eq!(service.get(query).field("ratelimit"), [expected]);
    }
    assert_eq!(service.get("/").status, 429);
    let skipped = service.get_with("/", &[("x-health", "1")]);
    assert_eq!((skipped.status, skipped.field("ratelimit")), (200, vec![]));
    // A cost beyond the maximum.
    let refused = service.get(&format!("/?{}", Request::MAX_COST + 1));
    assert_eq!((refused.status, &*refused.body), (500, "The request cannot be counted.\n"));

    let costly = RateLimitLayer::builder(limiter(&[("api", "10/minute")]), |_| "all").cost_of(cost);
    let never = hello(costly.build().unwrap()).get("/?11");
    assert_eq!((never.status, never.field("retry-after")), (429, vec![]));
}

#[test]
fn response_that_does_not_count_is_refunded() {
    let limiter = limiter(&[("login", "2/minute"), ("day", "9/day")]);
    let limit = RateLimitLayer::builder(limiter.clone(), |_| "all")
        .policy("login")
        .policy("day")
        .count(|response| response.status == StatusCode::UNAUTHORIZED)
        .build()
        .unwrap();
    let app = Router::new()
        .route("/right", get(|| async { "in" }))
        .route("/wrong", get(|| async { StatusCode::UNAUTHORIZED }))
        .layer(limit);
    let service = Service::start(app);
    assert_eq!(service.statuses("/right", 5), [200; 5]);
    assert_eq!(service.statuses("/wrong", 2), [401; 2]);
    assert_eq!(service.get("/right").status, 429);
    let day = limiter.blocking().peek(Request::new("all").policy("day")).unwrap();
    assert_eq!(day.remaining(), 7);
}

#[test]
fn on_denied_makes_the_response() {
    let limit = RateLimitLayer::builder(limiter(&[("api", "1/minute fixed_window")]), |_| "all")
        .on_denied(|denial, request| {
            let seen = (denial.problem.detail(), denial.outcomes[0].0.name(), request.uri.path());
            (StatusCode::IM_A_TEAPOT, [("content-type", "text/x-own")], format!("{seen:?}")).into_response()
        })
        .build()
        .unwrap();
    let service = hello(limit);
    assert_eq!(service.get("/").status, 200);
    let denied = service.get("/");
    assert_eq!((denied.status, denied.field("retry-after")), (418, vec!["60"]));
    assert_eq!(denied.field("content-type"), ["text/x-own"]);
    assert!(denied.body.contains("retry in 60 s") && denied.body.contains("api"), "{denied:?}");
}

#[test]
fn handler_reads_the_decisions() {
    let limit = RateLimitLayer::builder(limiter(&[("a", "3/minute"), ("b", "9/hour")]), |_| "all");
    let limit = limit.policy("a").policy("5/day").build().unwrap();
    let show = |Extension(limits): Extension<RequestLimits>| async move {
        let all = limits.outcomes();
        all.iter()
            .map(|(policy, decision)| format!("{} {}", policy.name(), decision.remaining()))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let service = Service::start(Router::new().route("/", get(show)).layer(limit));
    assert_eq!(service.get("/").body, "a 2; 5|day 4");
}

#[test]
fn builder_refuses_invalid_settings() {
    let two = || limiter(&[("a", "3/minute"), ("b", "9/hour")]);
    for (policies, expected) in [
        (&[][..], "no policy is named and there are several: this limiter has a, b"),
        (&["c"], r#"policy "c" is not known: this limiter has a, b"#),
        (&["a", "b", "a"], r#"policy "a" is a duplicate: leave out one of the two"#),
        (&["5/minute", "a", "5/60s"], r#"policy "5/60s" is a duplicate: leave out one of the two"#),
        (&["a", "x/minute"], r#"quota at column 1: read "x/minute""#),
        (&["a", "100/minut"], r#"quota at column 5: read "minut""#),
    ] {
        let builder = RateLimitLayer::<axum::body::Body>::builder(two(), |_| "all");
        let error =
            policies.iter().fold(builder, |builder, policy| builder.policy(*policy)).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with(expected), "{error}");
    }

    let refused = |limit: RateLimitBuilder<axum::body::Body>| limit.build().unwrap_err().message().to_owned();
    let builder = || RateLimitLayer::builder(two(), |_| "all");
    let parts = || builder().policy("a").key_part(KeyPart::Path("tenant".to_owned()));
    assert!(refused(parts()).starts_with("key part path:tenant needs a function"));
    assert!(parts().path_parameter(|_, _| None).build().is_ok());
    let both = refused(builder().policy("a").key(|_| Some("k")).key_part(KeyPart::User));
    assert_eq!(both, "the key is a function and has parts: use one of them");
    let cost = refused(builder().policy("a").cost(Request::MAX_COST + 1));
    assert_eq!(cost, "cost is 1000000000001: allowed is 0 to 1000000000000 units");
    assert!(builder().policy("a").cost(Request::MAX_COST + 1).cost(3).build().is_ok());
    for scope in ["", &"x".repeat(257)] {
        let scope = refused(builder().policy("5/minute").scope(scope));
        assert!(scope.contains("allowed is a text of 1 to 256 bytes"), "{scope}");
    }
    let closed = two();
    closed.close();
    let closed = RateLimitLayer::<axum::body::Body>::builder(closed, |_| "all").policy("a").build();
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::Closed);
}
