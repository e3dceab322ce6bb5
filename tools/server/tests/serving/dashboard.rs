//! What the dashboard asks for. A browser reads it in tools/server/browser.

use std::io::{BufRead, BufReader, Write};

use polylimit::{Limiter, Policy};
use polylimit_server::{ServerOptions, ShownKeys};
use serde_json::{Value, json};

use crate::support::{Running, connect, limiter, started, wait_until};

#[test]
fn page_has_no_data_and_takes_nothing_from_elsewhere() {
    let server = started();
    let admin = server.admin();
    for path in [
        "/",
        "/dashboard/dashboard.js",
        "/dashboard/document.js",
        "/dashboard/elements.js",
        "/dashboard/keys.js",
        "/dashboard/policies.js",
        "/dashboard/server.js",
        "/dashboard/store.js",
        "/dashboard/dashboard.css",
        "/dashboard/uPlot.js",
        "/dashboard/icon.svg",
    ] {
        let file = admin.get(path);
        assert_eq!((file.status, file.field("x-content-type-options")), (200, Some("nosniff")), "{path}");
        assert!(file.field("content-security-policy").unwrap().starts_with("default-src 'self';"), "{path}");
        assert_eq!(server.http().get(path).status, 404, "{path}");
    }
    let page = admin.get("/").body;
    assert!(
        !page.contains("<style")
            && page.matches("<script").count() == page.matches("src=\"dashboard/").count()
    );
    for path in ["/dashboard/..%2fCargo.toml", "/dashboard/%ff"] {
        assert_eq!(
            (admin.get(path).status, &admin.get(path).json()["code"]),
            (404, &json!("not_found")),
            "{path}"
        );
    }
}

#[test]
fn page_of_another_name_cannot_ask() {
    let mut options = ServerOptions::default();
    options.admin_hosts = vec!["limits.internal".to_owned()];
    let server = Running::start(limiter().0, options);
    let ask = |host: &str, path: &str| {
        let mut stream = connect(server.admin().0);
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    for host in
        ["localhost:8181", "LOCALHOST", "127.0.0.1:8181", "[::1]:8181", "limits.internal:80", "192.0.2.7"]
    {
        assert_eq!(ask(host, "/v1/stats"), 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example:8181", "127.0.0.1.evil.example"] {
        assert_eq!((ask(host, "/v1/stats"), ask(host, "/")), (421, 421), "{host}");
        assert_eq!((ask(host, "/metrics"), ask(host, "/healthz")), (200, 200), "{host}");
    }
}

#[test]
fn page_of_another_server_cannot_change_anything() {
    let server = started();
    let body = json!({ "policy": "api", "key": "k" }).to_string();
    for (origin, status) in [
        ("http://localhost", 200),
        ("http://localhost:3000", 403),
        ("https://evil.example", 403),
        ("null", 403),
    ] {
        let reset = server.admin().send("POST", "/v1/reset", &[("origin", origin)], body.as_bytes());
        assert_eq!(reset.status, status, "{origin}: {reset:?}");
    }
}

#[test]
fn session_tells_the_role() {
    let session = started().admin().get("/v1/session").json();
    assert_eq!(
        (&session["role"], &session["show_keys"], &session["observed_keys"]),
        (&json!("admin"), &json!("plain"), &json!(16))
    );
}

#[test]
fn keys_are_shown_as_the_operator_says() {
    for (keys, shown) in [(ShownKeys::Hash, json!("2bd806c97f0e00af")), (ShownKeys::Off, json!(null))] {
        let mut options = ServerOptions::default();
        options.show_keys = keys;
        let server = Running::start(limiter().0, options);
        for _ in 0..300 {
            let _ = server.http().post("/v1/check", &json!({ "policy": "api", "key": "alice" }));
        }
        let admin = server.admin();
        let asked = json!({ "policy": "api", "key": "alice" });
        for reply in [admin.get("/v1/keys"), admin.get("/v1/top"), admin.post("/v1/explain", &asked)] {
            assert!(reply.status == 200 && !reply.body.contains("alice"), "{reply:?}");
        }
        assert_eq!(admin.get("/v1/keys").json()["keys"][0]["key_digest"], shown);
    }
}

/// Follows the events of a server, and returns the data of the next one of a kind.
fn events(server: &Running) -> impl FnMut(&str) -> Value + use<> {
    let mut stream = connect(server.admin().0);
    write!(stream, "GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    move |event| {
        let named = lines.find(|line| line == &format!("event: {event}"));
        assert!(named.is_some(), "the events end before {event}");
        let data = lines.next().unwrap();
        serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()
    }
}

#[test]
fn denied_keys_are_counted_beyond_those_that_are_listed() {
    const KEYS: usize = 30;
    let limiter = Limiter::builder()
        .policy(Policy::parse("api", "1/hour fixed_window").unwrap())
        .observe_keys(64)
        .build()
        .unwrap();
    // One of 16 denials is counted, on average.
    for request in 0..1_000 * KEYS {
        let _ = limiter.blocking().check(&format!("k{}", request % KEYS)).unwrap();
    }
    let server = Running::start(limiter, ServerOptions::default());
    let counted = format!("polylimit_server_denied_keys {KEYS}.0\n");
    wait_until(|| server.admin().get("/metrics").body.contains(&counted));
    assert_eq!(events(&server)("snapshot")["denied"].as_array().unwrap().len(), 20);

    // A server that counts no keys does not say that none is denied.
    let policy = Policy::parse("api", "1/hour").unwrap();
    let limiter = Limiter::builder().policy(policy).build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    assert!(!server.admin().get("/metrics").body.contains("\npolylimit_server_denied_keys "));
}

#[test]
fn events_tell_what_has_happened() {
    let server = started();
    for _ in 0..4 {
        let _ = server.http().post("/v1/check", &json!({ "policy": "api", "key": "k" }));
    }
    let mut next = events(&server);
    assert_eq!(next("store"), json!({ "up": true }));
    let snapshot = next("snapshot");
    assert_eq!(snapshot["policies"]["api"], json!({ "allowed": 3, "denied": 1, "outage": 0 }));
    assert!(snapshot["quotas"].as_array().unwrap().iter().any(|policy| policy["policy"] == "login"));
    assert!(next("snapshot")["at_ms"].as_u64() > snapshot["at_ms"].as_u64());

    let traffic = server.admin().get("/v1/traffic").json();
    assert!(traffic["every_ms"] == 10_000 && !traffic["points"].as_array().unwrap().is_empty(), "{traffic}");
    // A listener does not keep the server from stopping.
    assert!(server.stop());
}
