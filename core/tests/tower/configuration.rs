//! A layer that decides by the configuration of its limiter.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::any;
use polylimit::admin::PublishOptions;
use polylimit::http::tower::{RateLimitBuilder, RateLimitLayer};
use polylimit::{Limiter, Policy};
use polylimit_test_servers::{Kind, Server};

use crate::service::Service;

const DOCUMENT: &str = r#"
polylimit = 1
[policies.login]
quotas = "2/day fixed_window"
[policies.tokens]
quotas = "100/day fixed_window"
plans = { gold = "1000/day fixed_window" }
[[rules]]
match = { method = "POST", path = "/login" }
apply = [{ policy = "login", key = "{client}" }]
[[rules]]
match = { path = "/v1/{model}" }
apply = [{ policy = "tokens", key = "{header.x-user}|{path.model}", cost = "{header.x-tokens}", missing = "deny" }]
[lists]
deny = ["header.x-bot 1"]
"#;

fn layer(limiter: Limiter) -> RateLimitBuilder<axum::body::Body> {
    let peer = |request: &axum::http::request::Parts| {
        request.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip())
    };
    RateLimitLayer::by_configuration(limiter, peer).attributes(|request| {
        let plan = request.headers.get("x-plan").and_then(|plan| plan.to_str().ok());
        plan.map(|plan| ("plan".to_owned(), plan.to_owned())).into_iter().collect()
    })
}

/// A service whose limits are those of the configuration of its limiter, and `change`, which replaces the document.
fn decides(limiter: Limiter, change: &dyn Fn(&str)) {
    let limit = layer(limiter).build().unwrap();
    let service = Service::start(Router::new().route("/{*rest}", any(|| async {})).layer(limit));
    let login = || service.request("POST", "/login?next=%2F", &[]).status;
    assert_eq!([login(), login(), login()], [200, 200, 429]);
    let form = service.get("/login");
    assert_eq!((form.status, form.field("ratelimit")), (200, vec![]));

    let model = |user: &str, tokens: &str, plan: &str| {
        let headers = [("x-user", user), ("x-tokens", tokens), ("x-plan", plan)];
        let received = service.get_with("/v1/large", &headers);
        let remaining = received.field("ratelimit").first().and_then(|field| field.split(';').nth(1));
        (received.status, remaining.unwrap_or_default().to_owned())
    };
    let told = |status, remaining: &str| (status, remaining.to_owned());
    assert_eq!(model("alice", "60", ""), told(200, "r=40"));
    assert_eq!(model("alice", "60", ""), told(429, "r=40"));
    assert_eq!(model("alice", "60", "gold"), told(200, "r=880"));
    assert_eq!(model("bob", "1", ""), told(200, "r=99"));
    assert_eq!(model("bob", "many", ""), told(400, ""));
    assert_eq!(service.get_with("/v1/large", &[("x-tokens", "1")]).status, 400);
    let listed = service.get_with("/", &[("x-bot", "1")]);
    assert_eq!((listed.status, listed.field("retry-after")), (403, vec![]));

    // What was used stays used.
    change(&DOCUMENT.replace("2/day", "3/day"));
    assert_eq!([login(), login()], [200, 429]);
    change(&DOCUMENT.replace("/login", "/elsewhere"));
    assert_eq!([login(), login()], [200, 200]);
}

#[test]
fn rules_of_the_programs_document_decide() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file://{}/store?size=1MiB", folder.path().display());
    for url in ["memory:", &file].into_iter().take(if cfg!(target_os = "linux") { 2 } else { 1 }) {
        let limiter = Limiter::builder().store(url).document(DOCUMENT).build().unwrap();
        decides(limiter.clone(), &|document| drop(limiter.admin().set_document(document).unwrap()));
    }
}

#[test]
fn rules_of_a_document_in_redis_decide() {
    let server = Server::start(Kind::Redis, &[]);
    // A deadline that a busy machine does not miss.
    let url = format!("{}?configuration=store&deadline=30s", server.url());
    let [writer, limiter] = [(); 2].map(|()| Limiter::builder().store(&url).build().unwrap());
    let writer = writer.blocking();
    writer.admin().publish(DOCUMENT, PublishOptions::default()).unwrap();
    decides(limiter.clone(), &|document| {
        let published = writer.admin().publish(document, PublishOptions::default()).unwrap();
        limiter
            .blocking()
            .admin()
            .wait_for_version(published.version, std::time::Duration::from_secs(60))
            .unwrap();
    });
}

#[test]
fn options_that_the_document_says_are_refused() {
    let limiter = || Limiter::builder().document(DOCUMENT).build().unwrap();
    let refused = |limit: RateLimitBuilder<axum::body::Body>| limit.build().unwrap_err().message().to_owned();
    for (limit, name) in [
        (layer(limiter()).policy("login"), "policy"),
        (layer(limiter()).policies_of(|_| None::<[String; 1]>), "policy"),
        (layer(limiter()).scope("/login"), "scope"),
        (layer(limiter()).cost(2), "cost"),
        (layer(limiter()).cost_of(|_| 2), "cost_of"),
        (layer(limiter()).key(|_| Some("k")), "key"),
        (layer(limiter()).spent(|_| None), "reserved"),
    ] {
        let refused = refused(limit);
        assert!(refused.starts_with(&format!("{name} is given to a ")), "{refused}");
    }
    let policy = Policy::parse("api", "1/day").unwrap();
    let without = Limiter::builder().policy(policy).build().unwrap();
    assert!(refused(layer(without.clone())).contains("has no configuration"));
    let beside = RateLimitLayer::builder(without, |_| "all").attributes(|_| Vec::new());
    assert!(refused(beside).starts_with("attributes is given to a layer with policies"));
}
