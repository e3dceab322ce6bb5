//! The description of the interface: it is checked in, names every path of a server, and every answer is as it says.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use polylimit::Limiter;
use polylimit_server::testing::Offline;
use polylimit_server::{ServerOptions, ShownKeys, openapi};
use polylimit_test_servers::{Kind, Server as Redis};
use serde_json::{Map, Value, json};

use crate::support::{Reply, Running, SOON, connect, limiter, started};

/// `POLYLIMIT_WRITE_GENERATED=1 cargo test -p polylimit-server openapi` writes the file.
#[test]
fn openapi_is_as_checked_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let written = openapi();
    if std::env::var_os("POLYLIMIT_WRITE_GENERATED").is_some() {
        fs::write(path, &written).unwrap();
    }
    assert!(
        fs::read_to_string(path).unwrap_or_default() == written,
        "{path} is old: see this test's comment"
    );
    assert_eq!(started().admin().get("/openapi.json").body, written);
}

/// The description, with helpers to look things up.
struct Description(Value);

impl Description {
    fn new() -> Self {
        Self(serde_json::from_str(&openapi()).unwrap())
    }

    /// Every path with its methods, in capital letters.
    fn operations(&self) -> BTreeSet<(String, String)> {
        let paths = self.0["paths"].as_object().unwrap().iter();
        let each = paths.flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (path.clone(), method.to_uppercase()))
        });
        each.collect()
    }

    fn operation(&self, path: &str, method: &str) -> &Value {
        let operation = &self.0["paths"][path][method.to_lowercase()];
        assert!(operation.is_object(), "{method} {path}");
        operation
    }

    /// Checks values by a schema of the description, which allows further fields: here none is allowed that it does not name.
    fn check(&self, schema: &Value, value: &Value, what: &str) {
        let mut root = schema.as_object().unwrap().clone();
        root.insert("components".to_owned(), self.0["components"].clone());
        let mut root = Value::Object(root);
        close(&mut root);
        let validator = jsonschema::validator_for(&root).unwrap();
        let wrong: Vec<_> = validator
            .iter_errors(value)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{what}: {wrong:#?} in {value:#}");
    }

    fn check_named(&self, name: &str, value: &Value) {
        assert!(self.0["components"]["schemas"][name].is_object(), "there is no schema {name}");
        self.check(&json!({ "$ref": format!("#/components/schemas/{name}") }), value, name);
    }

    /// Checks that an answer has a content type that the description names, and is as its schema says.
    fn check_answer(&self, operation: &Value, reply: &Reply, what: &str) {
        let status = reply.status.to_string();
        let response = operation["responses"].get(&status).unwrap_or(&operation["responses"]["default"]);
        let told = reply.field("content-type").unwrap_or_default();
        let told = told.split(';').next().unwrap();
        let Some(contents) = response["content"].as_object() else {
            return assert!(reply.body.is_empty(), "{what}: {reply:?}");
        };
        let content =
            contents.get(told).unwrap_or_else(|| panic!("{what}: {told:?} is not described: {reply:?}"));
        if let Some(schema) = content.get("schema") {
            self.check(schema, &reply.json(), what);
        }
    }
}

/// Forbids, in each schema of an object with named fields, all others.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("properties").is_some_and(|named| !named.as_object().is_none_or(Map::is_empty)) {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(close),
        _ => {}
    }
}

#[test]
fn description_and_server_have_the_same_paths_and_methods() {
    let description = Description::new();
    let described: BTreeSet<String> = description.operations().into_iter().map(|(path, _)| path).collect();
    // gRPC has a description of its own, and the page is for people.
    let is_else = |path: &str| {
        path == "/" || path.starts_with("/dashboard/") || path.contains(".v1.") || path.contains(".v3.")
    };
    let server = Offline::new(limiter().0).unwrap();
    let routed: BTreeSet<String> = [false, true]
        .into_iter()
        .flat_map(|is_admin| server.paths(is_admin))
        .filter(|path| !is_else(path))
        .map(str::to_owned)
        .collect();
    assert_eq!(described, routed);

    let server = started();
    for path in &described {
        let is_any = path.starts_with("/v1/forward");
        let clients: Vec<_> = match description.operations().iter().find(|(named, _)| named == path).unwrap()
        {
            _ if path == "/healthz" || path == "/readyz" || path == "/v1/reset" => {
                vec![server.http(), server.admin()]
            }
            (_, method) if description.operation(path, method)["tags"][0] == "data" => vec![server.http()],
            _ => vec![server.admin()],
        };
        for client in clients {
            for method in ["GET", "POST", "PUT", "DELETE"] {
                // The events do not end.
                if (path.as_str(), method) == ("/v1/events", "GET") {
                    continue;
                }
                let reply = client.send(method, &path.replace("{policy}", "api"), &[], b"{}");
                let is_described = description.operations().contains(&(path.clone(), method.to_owned()));
                let has_method = reply.status != 405;
                assert!(has_method == (is_described || is_any), "{method} {path}: {reply:?}");
                assert!(!reply.body.contains("on this listener"), "{method} {path}: {reply:?}");
                if !has_method {
                    description.check_named("Problem", &reply.json());
                    assert_eq!(reply.json()["code"], "method_not_allowed", "{method} {path}");
                }
            }
        }
    }
}

const DOCUMENT: &str = r#"
polylimit = 1
[policies.api]
quotas = "5/minute"
plans = { gold = "50/minute" }
penalty = { denials = 100, within = "1h", block = "1m" }
[policies.model]
quotas = "2 concurrent; 100/minute token_bucket"
[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{user}" }, { policy = "model", key = "{user}" }]
[lists]
deny = ["client 203.0.113.0/24", "user mallory"]
"#;

/// One request, with the status that it has to have.
struct Exchange(&'static str, &'static str, Value, u16);

/// Requests to every path; those that follow each other use what the ones before have left.
fn exchanges() -> Vec<Exchange> {
    let key = || json!({ "policy": "api", "key": "user:1" });
    let with = |more: Value| {
        let mut body = key();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let held = |more: Value| {
        let mut body = json!({ "policy": "model", "key": "user:1" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let many = |requests: Vec<Value>| json!({ "requests": requests });
    let request = |user: &str| json!({ "method": "GET", "path": "/v1/orders", "peer": "192.0.2.1", "headers": [["accept", "*/*"]], "attributes": { "user": user } });
    let none = || Value::Null;
    let mut all = vec![
        Exchange("GET", "/healthz", none(), 200),
        Exchange("GET", "/readyz", none(), 200),
        Exchange("POST", "/v1/check", with(json!({ "cost": 3, "headroom": 10 })), 200),
        Exchange("POST", "/v1/check", with(json!({ "cost": 3 })), 200),
        Exchange("POST", "/v1/check?status", with(json!({ "cost": 3 })), 429),
        Exchange("POST", "/v1/check?status", with(json!({ "cost": 1 })), 200),
        Exchange("POST", "/v1/check", json!({ "policy": "none", "key": "k" }), 400),
        Exchange("POST", "/v1/check", json!({ "policy": "2/hour", "key_base64": "//8=" }), 200),
        Exchange("POST", "/v1/check", many(vec![key(), json!({ "policy": "none", "key": "k" })]), 200),
        Exchange("POST", "/v1/check", json!({ "requests": [key(), key()], "together": true }), 200),
        Exchange("POST", "/v1/peek", json!({ "requests": [key(), key()], "together": true }), 200),
        Exchange(
            "POST",
            "/v1/reserve",
            json!({ "requests": [held(json!({}))], "together": true, "id": "r0", "ttl_us": 60_000_000, "remember_us": 60_000_000 }),
            200,
        ),
        Exchange("POST", "/v1/cancel", held(json!({ "id": "r0" })), 200),
        Exchange("POST", "/v1/reserve", held(json!({ "id": "r1", "ttl_us": 60_000_000 })), 200),
        Exchange("POST", "/v1/reserve", many(vec![held(json!({ "id": "r2" })), held(json!({}))]), 200),
        Exchange("POST", "/v1/renew", held(json!({ "id": "r1", "ttl_us": 60_000_000 })), 200),
        Exchange("POST", "/v1/explain", held(json!({})), 200),
        Exchange("POST", "/v1/commit", held(json!({ "id": "r1", "spent": 2 })), 200),
        Exchange("POST", "/v1/cancel", held(json!({ "id": "r2" })), 200),
        Exchange("POST", "/v1/commit", held(json!({})), 400),
        Exchange("POST", "/v1/decide", request("a"), 200),
        Exchange("POST", "/v1/decide?status", request("mallory"), 403),
        Exchange("POST", "/v1/decide", request("mallory"), 200),
        Exchange("POST", "/v1/decide", json!({}), 200),
        Exchange("POST", "/v1/explain_request", request("a"), 200),
        Exchange("POST", "/v1/explain_request", request("mallory"), 200),
        Exchange("GET", "/v1/forward/api?key=ip", none(), 200),
        Exchange("GET", "/v1/forward/api?cost=5", none(), 429),
        Exchange("GET", "/v1/forward/api?cost=x", none(), 400),
        Exchange("GET", "/v1/forward", none(), 400),
        Exchange("POST", "/v1/explain", key(), 200),
        Exchange("POST", "/v1/explain", json!({ "policy": "none", "key": "k" }), 400),
        Exchange("GET", "/v1/keys", none(), 200),
        Exchange("GET", "/v1/keys?entries=1", none(), 200),
        Exchange("GET", "/v1/keys?entries=0", none(), 400),
        Exchange("POST", "/v1/block", with(json!({ "for_us": 60_000_000 })), 200),
        Exchange("POST", "/v1/check", key(), 200),
        Exchange("POST", "/v1/explain", key(), 200),
        Exchange("GET", "/v1/keys?blocked=true", none(), 200),
        Exchange("GET", "/v1/top", none(), 200),
        Exchange("GET", "/v1/stats", none(), 200),
        Exchange("GET", "/v1/doctor", none(), 200),
        Exchange("GET", "/v1/processes", none(), 200),
        Exchange("GET", "/v1/session", none(), 200),
        Exchange("GET", "/v1/traffic", none(), 200),
        Exchange("GET", "/metrics", none(), 200),
        Exchange("GET", "/metrics/fleet", none(), 200),
        Exchange("GET", "/openapi.json", none(), 200),
        Exchange(
            "POST",
            "/v1/lists/add",
            json!({ "list": "deny", "item": "key api k", "why": "scans", "for_us": 60_000_000 }),
            200,
        ),
        Exchange("POST", "/v1/lists/add", json!({ "list": "grey", "item": "key api k" }), 400),
        Exchange("GET", "/v1/lists", none(), 200),
        Exchange("POST", "/v1/explain", json!({ "policy": "api", "key": "k" }), 200),
        Exchange(
            "POST",
            "/v1/lists/remove",
            json!({ "list": "deny", "item": "key api k", "why": "over" }),
            200,
        ),
        Exchange(
            "POST",
            "/v1/lists/remove",
            json!({ "list": "deny", "item": "key api k", "why": "over" }),
            404,
        ),
        Exchange("GET", "/v1/policies", none(), 200),
        Exchange("GET", "/v1/policies?version=9", none(), 404),
        Exchange("PUT", "/v1/policies?why=a", json!({ "polylimit": 1 }), 412),
        Exchange("POST", "/v1/policies/validate", json!({ "polylimit": 1 }), 200),
        Exchange("POST", "/v1/policies/validate", json!({ "polylimit": 7 }), 200),
        Exchange("POST", "/v1/policies/diff", json!({ "polylimit": 1 }), 200),
        Exchange("POST", "/v1/policies/diff", json!({ "polylimit": 7 }), 400),
        Exchange("POST", "/v1/rollback", json!({ "version": 1, "why": "again" }), 200),
        Exchange("POST", "/v1/rollback", json!({ "version": 7, "why": "again" }), 400),
        Exchange("GET", "/v1/history", none(), 200),
    ];
    for (path, body) in [
        ("/v1/peek", key()),
        ("/v1/take", key()),
        ("/v1/charge", key()),
        ("/v1/refund", key()),
        ("/v1/reset", key()),
        ("/v1/take", many(vec![key(), json!({ "policy": "none", "key": "k" })])),
    ] {
        all.push(Exchange("POST", path, body, 200));
    }
    all
}

#[test]
fn every_answer_is_as_described() {
    for shown in [ShownKeys::Plain, ShownKeys::Hash, ShownKeys::Off] {
        let redis = Redis::start(Kind::Redis, &[]);
        let url = format!("{}?deadline=5s", redis.url());
        let limiter = Limiter::builder().store(&url).configuration("store").observe_keys(16);
        let limiter = limiter.report(Duration::from_secs(1)).build().unwrap();
        let mut options = ServerOptions::default();
        options.show_keys = shown;
        let server = Running::start(limiter, options);
        let description = Description::new();
        let put = server.admin().send(
            "PUT",
            "/v1/policies?why=a&by=me",
            &[("if-match", "\"0\"")],
            DOCUMENT.as_bytes(),
        );
        description.check_answer(description.operation("/v1/policies", "PUT"), &put, "PUT");
        assert_eq!(put.status, 200, "{put:?}");

        let since = Instant::now();
        while server.admin().get("/v1/processes").json()["processes"] == json!([]) {
            assert!(since.elapsed() < SOON, "the server does not report");
            std::thread::sleep(Duration::from_millis(20));
        }

        let mut asked: BTreeSet<(String, String)> = BTreeSet::new();
        for Exchange(method, target, body, status) in exchanges() {
            let path = target.split('?').next().unwrap();
            let path = if path.starts_with("/v1/forward/") { "/v1/forward/{policy}" } else { path };
            let operation = description.operation(path, method);
            let client = if operation["tags"][0] == "data" { server.http() } else { server.admin() };
            let what = format!("{method} {target} {body}");
            let sent = if body.is_null() { String::new() } else { body.to_string() };
            let reply = client.send(method, target, &[("if-match", "\"7\"")], sent.as_bytes());
            assert_eq!(reply.status, status, "{what}: {reply:?}");
            description.check_answer(operation, &reply, &what);
            if status == 200 && !body.is_null() {
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                description.check(schema, &body, &what);
            }
            asked.insert((path.to_owned(), method.to_owned()));
        }
        asked.insert(("/v1/events".to_owned(), "GET".to_owned()));
        assert_eq!(asked, description.operations());
    }
}

#[test]
fn every_event_is_as_described() {
    let server = started();
    let description = Description::new();
    let mut stream = connect(server.admin().0);
    write!(stream, "GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    // The first point of the traffic is there when the server starts, so the next one would take ten seconds.
    for (event, schema) in [("store", "StoreState"), ("snapshot", "Snapshot"), ("snapshot", "Snapshot")] {
        let named = lines.find(|line| line == &format!("event: {event}"));
        assert!(named.is_some(), "the events end before {event}");
        let data = lines.next().unwrap();
        description.check_named(schema, &serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap());
    }
}
