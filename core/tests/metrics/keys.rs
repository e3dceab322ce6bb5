//! No key is in the metrics, however it was used: clients choose keys, and metrics are kept and shown elsewhere.

use std::time::Duration;

use polylimit::admin::{KeyFilter, ListBudget, PublishOptions};
use polylimit::document::RequestAttributes;
use polylimit::metrics::TextFormat;
use polylimit::reservation::ReserveOptions;
use polylimit::{Limiter, Request};

use super::{Place, policy};

/// What every key contains, and nothing else does.
const MARK: &str = "fingerprint";

const DOCUMENT: &str = r#"
    polylimit = 1
    [policies.api]
    quotas = "2/minute"
    overrides = { "user=fingerprint-override" = "3/minute" }
    candidate = { quotas = "1/minute", compare = 1000 }
    penalty = { denials = 3, within = "1h", block = "10m" }
    [policies.elastic]
    quotas = "1/minute"
    elastic = { policy = "pool", key = "fingerprint-pool" }
    [policies.pool]
    quotas = "3/minute"
    [[rules]]
    match = { path = "/v1" }
    apply = [{ policy = "api", key = "user={user}" }]
    [lists]
    deny = ["key api user=fingerprint-denied", "user fingerprint-denied"]
    allow = ["key api user=fingerprint-allowed", "client 203.0.113.7"]
"#;

/// Uses keys of a policy in every way.
fn use_policy(limiter: &Limiter, policy: Option<&str>) {
    let blocking = limiter.blocking();
    for kind in ["plain", "override", "denied", "allowed", "blocked"] {
        let key = format!("user={MARK}-{kind}");
        let request = || policy.iter().fold(Request::new(&key), |request, policy| request.policy(policy));
        for _ in 0..5 {
            let _ = blocking.check(request()).unwrap();
        }
        let _ = (blocking.peek(request()).unwrap(), blocking.take(request().cost(3)).unwrap());
        let _ = (blocking.charge(request()).unwrap(), blocking.refund(request()).unwrap());
        let _ = blocking.admin().explain(request()).unwrap();
        if kind == "blocked" {
            let _ = blocking.admin().block(request(), Duration::from_secs(60)).unwrap();
            let _ = blocking.check(request()).unwrap();
        }
    }
    let _ =
        blocking.admin().list(&KeyFilter::default().key_prefix(MARK), &ListBudget::default(), None).unwrap();
    let _ = blocking.admin().scan_top(&KeyFilter::default(), 10, &ListBudget::default()).unwrap();
}

fn assert_no_key(limiter: &Limiter, place: &Place) {
    for format in [TextFormat::Prometheus, TextFormat::OpenMetrics] {
        let text = limiter.metrics_text(format);
        assert!(text.contains("polylimit_decisions_total{policy=\"api\","), "{text}");
        let line = text.lines().find(|line| line.contains(MARK) || line.contains("203.0.113"));
        assert_eq!(line, None, "{}", place.name());
    }
}

#[test]
fn no_key_is_in_the_metrics_of_a_program() {
    for place in Place::all() {
        let limiter = place.builder().policy(policy("api", "2/minute; 3/hour")).observe_keys(64);
        let limiter = limiter.build().unwrap();
        use_policy(&limiter, None);
        use_policy(&limiter, Some("api"));
        // Quotas that only the request names.
        use_policy(&limiter, Some("4/minute"));
        use_policy(&limiter, Some("4/minute token_bucket; 9/hour"));
        assert!(limiter.metrics_text(TextFormat::Prometheus).contains("policy=\"4|minute\""));
        assert_no_key(&limiter, &place);
    }
}

#[test]
fn no_key_is_in_the_metrics_of_a_configuration() {
    for place in Place::all() {
        let limiter = place.builder().document(DOCUMENT).observe_keys(64).build().unwrap();
        for policy in ["api", "elastic", "pool"] {
            use_policy(&limiter, Some(policy));
        }
        let terms = ReserveOptions::default().terms().unwrap();
        for user in ["plain", "override", "denied"].map(|kind| format!("{MARK}-{kind}")) {
            let request = RequestAttributes::new().path("/v1").attribute("user", &*user);
            let _ = limiter.blocking().decide(&request, &terms).unwrap();
        }
        assert_no_key(&limiter, &place);
    }
}

#[test]
fn no_entry_of_a_published_configuration_is_in_the_metrics() {
    let place = Place::redis();
    let limiter = place.builder().configuration("store").build().unwrap();
    let blocking = limiter.blocking();
    let _ = blocking.admin().publish(DOCUMENT, PublishOptions::default()).unwrap();
    for (entry, value) in [
        (format!("deny key api user={MARK}-entry"), "{}"),
        (format!("allow user {MARK}-entry"), "{}"),
        (format!("override api user={MARK}-entry"), r#"{"numbers": "7/minute"}"#),
    ] {
        let _ = blocking.admin().set_entry(&entry, value).unwrap();
    }
    use_policy(&limiter, Some("api"));
    assert_no_key(&limiter, &place);
}
