//! Every case of `tests/conformance/guard.json`, `guard_reservations.json`, `guard_meters.json` and `guard_waiting.json` through layers in
//! front of the server that the module `framework` of the test has.

use std::collections::HashMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{Response, StatusCode};
use polylimit::clock::ManualClock;
use polylimit::http::ClientAddressRules;
use polylimit::http::headers::HeaderSettings;
use polylimit::http::tower::{OnOutage, RateLimitBuilder, RateLimitLayer, client_address};
use polylimit::storage::Outage;
use polylimit::{Error, Limiter, Policy, Request};
use serde_json::Value;

use crate::framework::{Body, Unfinished, peer, serve, text_body};
use crate::service::Received;

#[test]
fn all_cases_agree() {
    for file in ["guard", "guard_reservations", "guard_meters", "guard_waiting"] {
        let path = format!("tests/conformance/{file}.json");
        // Tests of several packages have this module.
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join(&path));
        let path = folders.find(|path| path.exists()).unwrap();
        let read: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let cases = read["cases"].as_array().unwrap();
        assert!(!cases.is_empty());
        let failed = cases.iter().filter(|case| std::panic::catch_unwind(|| run(case)).is_err()).count();
        assert_eq!(failed, 0, "cases of {file} that differ");
    }
}

fn run(case: &Value) {
    let name = case["name"].as_str().unwrap();
    let clock = ManualClock::new(1_789_948_800_000_000).unwrap();
    let stores = ["memory", "down", "broken"].map(|store| (store, limiter(case, store, &clock)));
    let limiter_of = |guard: &Value| {
        let store =
            guard.get("store").or(case.get("store")).map_or("memory", |store| store.as_str().unwrap());
        stores.iter().find(|(known, _)| *known == store).unwrap().1.clone()
    };
    let guards = case["guards"].as_array().unwrap();
    let layers: Result<Vec<_>, Error> = guards.iter().map(|guard| layer(guard, limiter_of(guard))).collect();
    if let Some(error) = case.get("error") {
        assert_eq!(layers.expect_err(name).kind().code(), error.as_str().unwrap(), "{name}");
        return;
    }
    let unfinished = Unfinished::default();
    let service = serve(layers.unwrap(), unfinished.clone());
    let mut open = HashMap::new();
    for (at, request) in case["requests"].as_array().unwrap().iter().enumerate() {
        let name = format!("{name}, request {at}");
        if let Some(closed) = request.get("close") {
            unfinished.lock().unwrap().remove(closed.as_str().unwrap()).unwrap().send(()).unwrap();
            let mut response: Response<ureq::Body> = open.remove(closed.as_str().unwrap()).unwrap();
            assert_eq!(response.body_mut().read_to_string().unwrap(), "first last", "{name}");
        } else if let Some(left) = request.get("leave") {
            drop(open.remove(left.as_str().unwrap()).unwrap());
        } else {
            let headers = headers_of(request);
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
            let received = if let Some(as_name) = request.get("open") {
                let response = service.response("/", &headers);
                let received = Received::head_of(&response);
                open.insert(as_name.as_str().unwrap(), response);
                received
            } else {
                let method = request.get("method").map_or("GET", |method| method.as_str().unwrap());
                elapsing(&clock, request, || service.request(method, "/", &headers))
            };
            check(&name, &request["expect"], &received);
        }
        check_left(request.get("then"), &stores[0].1, &name);
    }
    check_left(case.get("left"), &stores[0].1, name);
}

/// Does something while the time of a request passes: every 100 ms until it is done, so that a guard that holds the request does so first.
fn elapsing<T>(clock: &ManualClock, request: &Value, act: impl FnOnce() -> T) -> T {
    let Some(elapse_ms) = request.get("elapse_ms").and_then(Value::as_u64) else { return act() };
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while is_done.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                clock.advance(Duration::from_millis(elapse_ms)).unwrap();
            }
        });
        let done = done;
        let result = act();
        drop(done);
        result
    })
}

/// Waits until this amount remains: a service ends a request after its client has read the response.
fn check_left(left: Option<&Value>, limiter: &Limiter, name: &str) {
    for left in left.and_then(Value::as_array).into_iter().flatten() {
        let (key, policy) = (left["key"].as_str().unwrap(), left["policy"].as_str().unwrap());
        let expected = left["remaining"].as_u64().unwrap();
        let found = || limiter.blocking().peek(Request::new(key).policy(policy)).unwrap().remaining();
        let until = Instant::now() + Duration::from_secs(30);
        while found() != expected && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(found(), expected, "{name}: {policy} {key}");
    }
}

fn headers_of(request: &Value) -> Vec<(&str, String)> {
    let given = request.get("headers").and_then(Value::as_object).into_iter().flatten();
    let given = given.map(|(name, value)| (&**name, value.as_str().unwrap().to_owned()));
    let orders = [
        ("respond", "x-respond"),
        ("spent", "x-spent"),
        ("open", "x-open"),
        ("fail", "x-fail"),
        ("content_type", "x-content-type"),
        ("body", "x-body"),
    ];
    let ordered = orders.iter().filter_map(|(member, header)| {
        let value = request.get(member)?;
        Some((*header, value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
    });
    given.chain(ordered).collect()
}

fn limiter(case: &Value, store: &str, clock: &ManualClock) -> Limiter {
    let mut builder = Limiter::builder();
    let outage = case.get("outage").map(|outage| outage.as_str().unwrap().parse::<Outage>().unwrap());
    for (name, quotas) in case.get("policies").and_then(Value::as_object).into_iter().flatten() {
        builder = builder.policy(Policy::parse(name, quotas.as_str().unwrap()).unwrap());
        if let Some(outage) = outage.filter(|_| store == "down") {
            builder = builder.outage(name, outage);
        }
    }
    let builder = match store {
        "memory" => builder.clock(clock.clone()),
        // Nothing listens on port 1.
        "down" => builder.store("redis://127.0.0.1:1?doctor_after=0"),
        _ => builder.store(&broken_store()),
    };
    builder.build().unwrap()
}

/// The URL of a local store that cannot be opened: other users may read its file.
fn broken_store() -> String {
    let name = format!("tower-guard-{}", std::process::id());
    let path = format!("/dev/shm/polylimit-{}-{name}", fs::metadata("/proc/self").unwrap().uid());
    OpenOptions::new().create(true).truncate(true).write(true).mode(0o640).open(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    format!("local:{name}")
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(list) => list.iter().map(|one| one.as_str().unwrap().to_owned()).collect(),
        value => value.as_str().into_iter().map(str::to_owned).collect(),
    }
}

fn header(request: &Parts, name: &Value) -> Option<String> {
    Some(request.headers.get(name.as_str().unwrap())?.to_str().unwrap().to_owned())
}

/// The layer with these options.
fn layer(given: &Value, limiter: Limiter) -> Result<RateLimitLayer<Body>, Error> {
    let rules = ClientAddressRules::builder().build()?;
    let mut builder: RateLimitBuilder<Body> = RateLimitLayer::builder(limiter, client_address(rules, peer));
    for (option, value) in given.as_object().unwrap() {
        let text = || value.as_str().unwrap();
        let value = value.clone();
        builder = match option.as_str() {
            "policy" => builder.policies(texts(&value)),
            "policies_of" => builder.policies_of(move |request| {
                let plan = header(request, &value["header"])?;
                Some(texts(&value["plans"][plan]))
            }),
            "key" => builder.key(move |request| header(request, &value["header"])),
            "key_parts" => {
                let parts: Result<Vec<_>, Error> = texts(&value).iter().map(|part| part.parse()).collect();
                parts?.into_iter().fold(builder, RateLimitBuilder::key_part)
            }
            "missing_key" => builder.missing_key(text().parse()?),
            "cost" if value.is_number() => builder.cost(value.as_u64().unwrap()),
            "cost" => builder.cost_of(move |request| {
                header(request, &value["header"]).map_or(1, |cost| cost.parse().unwrap())
            }),
            "count" => builder.count(move |response| {
                let status = u64::from(response.status.as_u16());
                value.get("status_from").is_none_or(|from| status >= from.as_u64().unwrap())
                    && value.get("status_below").is_none_or(|below| status < below.as_u64().unwrap())
            }),
            "costs" => builder.costs(value.as_array().unwrap().iter().map(Value::as_u64).collect::<Vec<_>>()),
            "spent" if value.is_string() => builder.spent_by(text()),
            "spent" if value.is_array() => {
                let meters = value.as_array().unwrap().iter().map(Value::as_str);
                builder.spent_by_each(meters.map(|meter| meter.map(str::to_owned)))
            }
            "spent" => builder.spent(move |response| {
                let spent = response.headers.get(value["header"].as_str().unwrap())?;
                spent.to_str().unwrap().parse().ok()
            }),
            "wait_ms" => builder.wait(Duration::from_millis(value.as_u64().unwrap())),
            "max_waiting" => builder.max_waiting(u32::try_from(value.as_u64().unwrap()).unwrap()),
            "ttl_ms" => builder.ttl(Duration::from_millis(value.as_u64().unwrap())),
            "skip" => builder.skip(move |request| header(request, &value["header"]).is_some()),
            "methods" => texts(&value).into_iter().fold(builder, RateLimitBuilder::method),
            "separate_head" => builder.separate_head(value.as_bool().unwrap()),
            "cors_origins" => builder.cors_origins(texts(&value)),
            "headers" => builder.headers(text().parse::<HeaderSettings>()?),
            "status" => builder.status(u16::try_from(value.as_u64().unwrap()).unwrap()),
            "message" => builder.message(text()),
            "dry_run" => builder.dry_run(value.as_bool().unwrap()),
            "on_denied" => builder.on_denied(move |_, _| {
                let status = u16::try_from(value["status"].as_u64().unwrap()).unwrap();
                let response = Response::builder().status(StatusCode::from_u16(status).unwrap());
                response.body(text_body(value["body"].as_str().unwrap().to_owned())).unwrap()
            }),
            "on_outage" => builder.on_outage(move |_, _| match value.as_str().unwrap() {
                "admit" => OnOutage::Admit,
                "deny" => OnOutage::Deny,
                _ => OnOutage::ByPolicy,
            }),
            "store" => builder,
            option => panic!("{option}"),
        };
    }
    builder.build()
}

fn check(name: &str, expect: &Value, received: &Received) {
    let problem: Value = serde_json::from_str(&received.body).unwrap_or_default();
    for (what, expected) in expect.as_object().unwrap() {
        match what.as_str() {
            "status" => assert_eq!(u64::from(received.status), expected.as_u64().unwrap(), "{name}"),
            "handled" => {
                assert_eq!(!received.field("x-handled").is_empty(), expected.as_bool().unwrap(), "{name}");
            }
            "text" => assert_eq!(received.body, expected.as_str().unwrap(), "{name}"),
            "fields" => {
                for (field, expected) in expected.as_object().unwrap() {
                    let expected: Vec<_> = expected.as_str().into_iter().collect();
                    assert_eq!(received.field(field), expected, "{name}: {field}");
                }
            }
            "problem" => {
                for (member, expected) in expected.as_object().unwrap() {
                    let member = if member == "violated" { "violated-policies" } else { member };
                    assert_eq!(&problem[member], expected, "{name}: {member} of {}", received.body);
                }
            }
            what => panic!("{what}"),
        }
    }
}
