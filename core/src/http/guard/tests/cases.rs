//! The cases of `tests/conformance/guard.json`, `guard_reservations.json`, `guard_meters.json` and
//! `guard_waiting.json` without a framework.

use std::collections::HashMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::clock::ManualClock;
use crate::http::guard::{
    Guard, GuardBuilder, GuardCheck, KeyPart, MissingKey, RequestFacts, RequestLimits, Verdict,
};
use crate::http::headers::{HeaderField, HeaderSettings};
use crate::storage::Outage;
use crate::{Error, Limiter, Policy, Request};

/// The response to a request.
#[derive(Debug, Default)]
struct Answer {
    status: u16,
    fields: HashMap<String, String>,
    body: String,
    handled: bool,
}

#[test]
fn all_cases_agree() {
    for file in ["guard", "guard_reservations", "guard_meters", "guard_waiting"] {
        let path = format!("{}/../tests/conformance/{file}.json", env!("CARGO_MANIFEST_DIR"));
        let read: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let cases = read["cases"].as_array().unwrap();
        assert!(!cases.is_empty());
        let runs = cases.iter().flat_map(|case| [(case, false), (case, true)]);
        let differs = |(case, asks_ahead)| std::panic::catch_unwind(|| run(case, asks_ahead)).is_err();
        assert_eq!(runs.filter(|run| differs(*run)).count(), 0, "cases of {file} that differ");
    }
}

fn run(case: &Value, asks_ahead: bool) {
    let name = case["name"].as_str().unwrap();
    let clock = ManualClock::new(1_789_948_800_000_000).unwrap();
    let stores = ["memory", "down", "broken"].map(|store| (store, limiter(case, store, &clock)));
    let limiter_of = |guard: &Value| {
        let store =
            guard.get("store").or(case.get("store")).map_or("memory", |store| store.as_str().unwrap());
        stores.iter().find(|(known, _)| *known == store).unwrap().1.clone()
    };
    let guards = case["guards"].as_array().unwrap();
    let built: Result<Vec<Guard>, Error> =
        guards.iter().map(|guard| guard_of(guard, limiter_of(guard))).collect();
    if let Some(error) = case.get("error") {
        let kind = built.expect_err(name).kind();
        assert_eq!(kind.code(), error.as_str().unwrap(), "{name}");
        return;
    }
    let built = built.unwrap();
    let check_left = |left: Option<&Value>, name: &str| {
        for left in left.and_then(Value::as_array).into_iter().flatten() {
            let (key, policy) = (left["key"].as_str().unwrap(), left["policy"].as_str().unwrap());
            let found = stores[0].1.blocking().peek(Request::new(key).policy(policy)).unwrap().remaining();
            assert_eq!(found, left["remaining"].as_u64().unwrap(), "{name}: {policy} {key}");
        }
    };
    let mut open: HashMap<&str, OpenResponse> = HashMap::new();
    for (at, request) in case["requests"].as_array().unwrap().iter().enumerate() {
        let name = format!("{name}, request {at}");
        if let Some(closed) = request.get("close") {
            open.remove(closed.as_str().unwrap()).unwrap().end();
        } else if let Some(left) = request.get("leave") {
            open.remove(left.as_str().unwrap()).unwrap().end_in_background();
        } else {
            let (answer, response) =
                elapsing(&clock, request, || respond(&built, guards, request, asks_ahead));
            check(&name, &request["expect"], &answer);
            match request.get("open") {
                Some(as_name) => drop(open.insert(as_name.as_str().unwrap(), response)),
                None => response.end(),
            }
        }
        check_left(request.get("then"), &name);
    }
    check_left(case.get("left"), name);
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

/// A response whose last byte is not sent yet.
#[derive(Default)]
struct OpenResponse {
    /// The checks of the guards that have admitted its request, each with what its program says was spent.
    checks: Vec<(GuardCheck, Option<u64>)>,
}

impl OpenResponse {
    fn end(self) {
        for (mut check, spent) in self.checks {
            check.end(spent).unwrap();
            check.run_blocking();
        }
    }

    fn end_in_background(self) {
        for (mut check, spent) in self.checks {
            check.end_in_background(spent).unwrap();
        }
    }
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
    let name = format!("guard-{}", std::process::id());
    let path = format!("/dev/shm/polylimit-{}-{name}", fs::metadata("/proc/self").unwrap().uid());
    OpenOptions::new().create(true).truncate(true).write(true).mode(0o640).open(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    format!("local:{name}")
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(list) => list.iter().map(|one| one.as_str().unwrap()).collect(),
        value => value.as_str().into_iter().collect(),
    }
}

fn guard_of(given: &Value, limiter: Limiter) -> Result<Guard, Error> {
    let mut builder = Guard::builder(limiter);
    for (option, value) in given.as_object().unwrap() {
        let text = || value.as_str().unwrap();
        builder = match option.as_str() {
            "policy" => builder.policies(texts(value)),
            "key_parts" => {
                let parts: Result<Vec<KeyPart>, Error> =
                    texts(value).iter().map(|part| part.parse()).collect();
                parts?.into_iter().fold(builder, GuardBuilder::key_part)
            }
            "missing_key" => builder.missing_key(text().parse()?),
            "cost" if value.is_number() => builder.cost(value.as_u64().unwrap()),
            "methods" => texts(value).into_iter().fold(builder, GuardBuilder::method),
            "separate_head" => builder.separate_head(value.as_bool().unwrap()),
            "cors_origins" => builder.cors_origins(texts(value)),
            "headers" => builder.headers(text().parse::<HeaderSettings>()?),
            "status" => builder.status(u16::try_from(value.as_u64().unwrap()).unwrap()),
            "message" => builder.message(text()),
            "dry_run" => builder.dry_run(value.as_bool().unwrap()),
            "costs" => builder.costs(value.as_array().unwrap().iter().map(Value::as_u64)),
            "spent" if value.is_string() => builder.spent_by(text()),
            "spent" if value.is_array() => {
                let meters = value.as_array().unwrap().iter().map(Value::as_str);
                builder.spent_by_each(meters.map(|meter| meter.map(str::to_owned)))
            }
            "spent" => builder.reserved(true),
            "wait_ms" => builder.wait(Duration::from_millis(value.as_u64().unwrap())),
            "max_waiting" => builder.max_waiting(u32::try_from(value.as_u64().unwrap()).unwrap()),
            "ttl_ms" => builder.ttl(Duration::from_millis(value.as_u64().unwrap())),
            "key" | "cost" | "count" | "skip" | "on_denied" | "on_outage" | "policies_of" | "store" => {
                builder
            }
            option => panic!("{option}"),
        };
    }
    builder.build()
}

/// What a guard needs to know about a request.
struct Facts<'a> {
    key: Option<Vec<u8>>,
    cost: Option<u64>,
    plans: Option<Vec<&'a str>>,
}

impl<'a> Facts<'a> {
    /// `None` for a request that the guard does not apply to.
    fn read(guard: &Guard, options: &'a Value, request: &Value) -> Option<Self> {
        let is_skipped = options.get("skip").is_some_and(|skip| header(request, &skip["header"]).is_some());
        let method = request.get("method").map_or("GET", |method| method.as_str().unwrap());
        if is_skipped || !guard.applies_to(method, None) {
            return None;
        }
        let mut key = match guard.key_parts() {
            [] => {
                let key = options.get("key").and_then(|key| header(request, &key["header"]));
                key.map(|key| key.as_bytes().to_vec())
            }
            parts => guard.join_key(&parts.iter().map(|part| value_of(part, request)).collect::<Vec<_>>()),
        };
        if key.is_none() && guard.missing_key() == MissingKey::Address {
            key = Some(b"127.0.0.1".to_vec());
        }
        let cost = options.get("cost").and_then(|cost| header(request, cost.get("header")?));
        let plans = options.get("policies_of").and_then(|of| {
            let plan = header(request, &of["header"])?;
            Some(texts(&of["plans"][plan]))
        });
        Some(Self { key, cost: cost.map(|cost| cost.parse().unwrap()), plans })
    }

    fn as_request(&self) -> RequestFacts<'_> {
        let mut facts = RequestFacts::new();
        if let Some(key) = &self.key {
            facts = facts.key(key);
        }
        if let Some(cost) = self.cost {
            facts = facts.cost(cost);
        }
        self.plans.as_ref().map_or(facts, |plans| facts.policies(plans))
    }
}

fn header<'a>(request: &'a Value, name: &Value) -> Option<&'a str> {
    request.get("headers")?.get(name.as_str().unwrap().to_lowercase())?.as_str()
}

/// Passes a request through the guards to a handler, as a middleware does.
fn respond(guards: &[Guard], options: &[Value], request: &Value, asks_ahead: bool) -> (Answer, OpenResponse) {
    let limits = RequestLimits::default();
    let mut open = Vec::new();
    let mut answer = Answer::default();
    let applied = guards.iter().zip(options);
    let applied =
        applied.filter_map(|(guard, options)| Some((guard, options, Facts::read(guard, options, request)?)));
    let applied: Vec<_> = applied.collect();
    for (at, (guard, options, facts)) in applied.iter().enumerate() {
        let mut check = guard.start(&limits, &facts.as_request()).unwrap();
        for (later, _, facts) in applied[at + 1..].iter().filter(|_| asks_ahead) {
            check.ask_ahead(later, &facts.as_request());
        }
        check.run_blocking();
        if check.outage().is_some() {
            match options.get("on_outage").and_then(Value::as_str) {
                Some("admit") => check.overrule(true),
                Some("deny") => check.overrule(false),
                _ => {}
            }
        }
        let verdict = check.conclude();
        check.run_blocking();
        if let Verdict::Deny(problem) = verdict {
            let response = problem.response(header(request, &Value::from("accept")));
            answer = Answer { status: response.status, body: response.body, ..answer };
            answer.add(response.fields);
            answer.add(guard.cors_fields(header(request, &Value::from("origin"))));
            if let Some(own) = options.get("on_denied") {
                answer.status = u16::try_from(own["status"].as_u64().unwrap()).unwrap();
                own["body"].as_str().unwrap().clone_into(&mut answer.body);
            }
            answer.add(check.fields());
            return (answer, OpenResponse::default());
        }
        open.push((check, options));
    }
    answer.handled = true;
    answer.status =
        request.get("respond").map_or(200, |status| u16::try_from(status.as_u64().unwrap()).unwrap());
    if request.get("fail").is_some() {
        answer.status = 500;
    }
    let pieces = request.get("body").and_then(Value::as_array).into_iter().flatten();
    answer.body = pieces.filter_map(Value::as_str).collect();
    let status = u64::from(answer.status);
    let mut response = OpenResponse::default();
    for (mut check, options) in open.into_iter().rev() {
        let counts = options.get("count").is_none_or(|count| {
            count.get("status_from").is_none_or(|from| status >= from.as_u64().unwrap())
                && count.get("status_below").is_none_or(|below| status < below.as_u64().unwrap())
        });
        if check.reads_response() && request.get("fail").is_none() {
            read_response(&mut check, request);
        }
        check.finish(counts);
        check.run_blocking();
        answer.add(check.fields());
        let has_function = options.get("spent").is_some_and(Value::is_object);
        let spent = request.get("spent").filter(|_| has_function).and_then(Value::as_u64);
        // A handler that fails has no response that could report it.
        response.checks.push((check, spent.filter(|_| request.get("fail").is_none())));
    }
    (answer, response)
}

/// Passes the response that the handler makes to a check, as a middleware does.
fn read_response(check: &mut GuardCheck, request: &Value) {
    let spent = request.get("spent").map(Value::to_string);
    let fields = [
        ("x-spent", spent.as_deref()),
        ("content-type", request.get("content_type").and_then(Value::as_str)),
    ];
    check.read_head(fields.iter().filter_map(|(name, value)| Some((*name, (*value)?.as_bytes()))));
    let pieces = request.get("body").and_then(Value::as_array).into_iter().flatten();
    pieces.for_each(|piece| check.read_body(piece.as_str().unwrap().as_bytes()));
}

fn value_of(part: &KeyPart, request: &Value) -> Option<Vec<u8>> {
    let headers = request.get("headers")?;
    match part {
        KeyPart::Header(name) => Some(headers.get(name)?.as_str()?.as_bytes().to_vec()),
        KeyPart::Cookie(name) => {
            let cookies = headers.get("cookie")?.as_str()?;
            let found = cookies.split("; ").find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
            Some(found.as_bytes().to_vec())
        }
        _ => None,
    }
}

impl Answer {
    fn add(&mut self, fields: Vec<HeaderField>) {
        self.fields.extend(fields.into_iter().map(|field| (field.name.to_string(), field.value)));
    }
}

fn check(name: &str, expect: &Value, answer: &Answer) {
    let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    for (what, expected) in expect.as_object().unwrap() {
        match what.as_str() {
            "status" => assert_eq!(u64::from(answer.status), expected.as_u64().unwrap(), "{name}"),
            "handled" => assert_eq!(answer.handled, expected.as_bool().unwrap(), "{name}"),
            "text" => assert_eq!(answer.body, expected.as_str().unwrap(), "{name}"),
            "fields" => {
                for (field, expected) in expected.as_object().unwrap() {
                    let found = answer.fields.get(field).map(String::as_str);
                    assert_eq!(found, expected.as_str(), "{name}: {field}");
                }
            }
            "problem" => {
                for (member, expected) in expected.as_object().unwrap() {
                    let member = if member == "violated" { "violated-policies" } else { member };
                    assert_eq!(&problem[member], expected, "{name}: {member} of {}", answer.body);
                }
            }
            what => panic!("{what}"),
        }
    }
}
