//! Cases of format 3: a document, and operations of a limiter that has its limits from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::decision::{Cause, Usage};
use polylimit::document::RequestAttributes;
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::{Decision, Error, ErrorKind, Limiter, Request};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Monday 2026-09-21, from which the times of the cases count.
const START_US: u64 = 1_789_948_800_000_000;

/// Runs a case on a store of its own. The error says which operation differs and how.
#[allow(dead_code, reason = "the runner of the server has a face of its own")]
pub(crate) fn run_case(case: &Value, store: &str, runtime: Option<&Runtime>) -> Result<(), String> {
    run_case_by(case, store, DocumentSource::Program, |limiter| {
        Ok(move |operation: &Value| Ok(error_or(answer(&limiter, operation, runtime))))
    })
}

/// Where a limiter has the document of a case from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentSource {
    /// The program gives it.
    Program,
    /// It is published in Redis, by an operation that comes before those of the case.
    #[allow(dead_code, reason = "only the runner of the server publishes documents")]
    Store,
}

/// As [`run_case`], with the answers of a face of this limiter.
pub(crate) fn run_case_by<A: FnMut(&Value) -> Result<Value, String>>(
    case: &Value,
    store: &str,
    source: DocumentSource,
    face: impl FnOnce(Limiter) -> Result<A, String>,
) -> Result<(), String> {
    let clock = ManualClock::new(START_US).map_err(|error| error.to_string())?;
    let place = Place::new(store)?;
    let builder = Limiter::builder().store(&place.url).clock(clock.clone());
    let builder = if store.starts_with("redis") { builder.option("prefix", &place.prefix) } else { builder };
    let builder = match source {
        DocumentSource::Program => builder.document(&case["document"].to_string()),
        DocumentSource::Store => builder.configuration("store"),
    };
    let limiter = builder.build().map_err(|error| format!("the document is refused: {error}"))?;
    let mut ask = face(limiter.clone())?;
    if source == DocumentSource::Store {
        let published = ask(&json!({ "op": "configuration", "document": case["document"] }))?;
        agrees(&json!({ "ok": true }), &published).map_err(|error| format!("{error}: {published}"))?;
    }
    let operations = case["ops"].as_array().ok_or("a case without operations")?;
    for (at, operation) in operations.iter().enumerate() {
        let now_us = START_US + operation["t_us"].as_u64().ok_or("an operation without a time")?;
        clock.set(now_us).map_err(|error| error.to_string())?;
        let got = ask(operation).map_err(|error| format!("operation {at} {operation}: {error}"))?;
        if let Err(difference) = agrees(&operation["expect"], &got) {
            return Err(format!("operation {at} {operation}: {difference}\n  got      {got}"));
        }
    }
    limiter.close();
    Ok(())
}

fn error_or(answer: Result<Value, Error>) -> Value {
    answer.unwrap_or_else(|error| json!({ "error": name_of(error.kind()) }))
}

/// The answer of the limiter itself.
#[allow(dead_code, reason = "only the runner of the server uses it")]
pub(crate) fn answer_or_error(limiter: &Limiter, operation: &Value) -> Value {
    error_or(answer(limiter, operation, None))
}

/// Where a case keeps its states, apart from every other case.
struct Place {
    url: String,
    prefix: String,
    folder: Option<std::path::PathBuf>,
}

impl Place {
    fn new(store: &str) -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("case-{}-{number}", std::process::id());
        let (url, folder) = if store == "memory" {
            ("memory:".to_owned(), None)
        } else if store.starts_with("local:") {
            let folder = std::env::temp_dir().join(&prefix);
            std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
            (format!("file://{}/store?size=1MiB", folder.display()), Some(folder))
        } else {
            (store.to_owned(), None)
        };
        Ok(Self { url, prefix, folder })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Whether everything that is expected is there and equal; `about` is part of the message.
fn agrees(expected: &Value, got: &Value) -> Result<(), String> {
    let differs = |name: &str, expected: &Value| Err(format!("expected {name} {expected}"));
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => expected.iter().try_for_each(|(name, value)| {
            let found = got.get(name).unwrap_or(&Value::Null);
            let agrees = match (name.as_str(), value, found) {
                ("about", Value::String(part), Value::String(message)) => message.contains(part.as_str()),
                ("decisions", value, found) => agrees(value, found).is_ok(),
                _ => value == found,
            };
            if agrees { Ok(()) } else { differs(name, value) }
        }),
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            expected.iter().zip(got).try_for_each(|(expected, got)| agrees(expected, got))
        }
        (expected, _) => differs("", expected),
    }
}

fn name_of(kind: ErrorKind) -> &'static str {
    kind.code()
}

fn answer(limiter: &Limiter, operation: &Value, runtime: Option<&Runtime>) -> Result<Value, Error> {
    let text = |name: &str| operation[name].as_str();
    let number = |name: &str, default: u64| operation[name].as_u64().unwrap_or(default);
    let mut request = Request::new(text("key").unwrap_or("k"))
        .policy(text("policy").unwrap_or("p"))
        .cost(number("cost", 1))
        .headroom(u8::try_from(number("headroom", 0)).unwrap_or(u8::MAX));
    if let Some(plan) = text("plan") {
        request = request.plan(plan);
    }
    let id = ReservationId::new(text("id").unwrap_or("none"))?;
    let ttl = Duration::from_micros(number("ttl_us", 0));
    let reserve = ReserveOptions::default().id(id).ttl(ttl).max_age(Duration::ZERO);
    let time = Duration::from_micros(number("for_us", 0));
    let blocking = limiter.blocking();
    /// Either face of the limiter.
    macro_rules! ask {
        ($($name:ident($($argument:expr),*)).+) => {
            match runtime {
                None => blocking.$($name($($argument),*)).+?,
                Some(runtime) => runtime.block_on(limiter.$($name($($argument),*)).+)?,
            }
        };
    }
    Ok(match text("op").unwrap_or_default() {
        "check" => decision(&ask!(check(request))),
        "peek" => decision(&ask!(peek(request))),
        "take" => {
            let usage = ask!(take(request));
            json!({ "remaining": usage.remaining(), "reset_after_us": usage.reset_after_us(), "taken": usage.taken() })
        }
        "charge" => self::usage(&ask!(charge(request))),
        "refund" => self::usage(&ask!(refund(request))),
        "reset" => self::usage(&ask!(reset(request))),
        "block" => self::usage(&ask!(admin().block(request, time))),
        "reserve" => {
            let reservation = ask!(reserve(request, reserve));
            let made = decision(reservation.decision());
            reservation.detach();
            made
        }
        "commit" => found(&ask!(commit(request, id, operation["cost"].as_u64()))),
        "cancel" => found(&ask!(cancel(request, id))),
        "renew" => found(&ask!(renew(request, id, ttl))),
        "configuration" => {
            let document = text("text").map_or_else(|| operation["document"].to_string(), ToOwned::to_owned);
            outcome(limiter.admin().set_document(&document).map(drop))
        }
        "entry" => {
            let changed = match (text("set"), text("delete")) {
                (Some(entry), _) => blocking.admin().set_entry(entry, &operation["value"].to_string()),
                (None, entry) => blocking.admin().delete_entry(entry.unwrap_or_default()),
            };
            outcome(changed.map(drop))
        }
        "match" => {
            let parts = RequestParts::of(&operation["request"]);
            let matched = limiter.admin().matching(&parts.attributes())?;
            let matched = matched.iter().map(|found| {
                json!({
                    "policy": &*found.policy, "key": String::from_utf8_lossy(&found.key), "cost": found.cost,
                    "headroom": found.headroom,
                })
            });
            Value::Array(matched.collect())
        }
        "decide" => {
            let parts = RequestParts::of(&operation["request"]);
            let attributes = parts.attributes();
            // A request without an identifier gives no time, and each of them has an identifier of its own.
            let reserve = if text("id").is_some() { reserve } else { ReserveOptions::default() };
            let terms = reserve.terms()?;
            let decided = ask!(decide(&attributes, &terms));
            let decisions = decided.decisions.iter().map(|made| {
                let mut shown = decision(&made.decision);
                shown["policy"] = json!(&*made.policy);
                shown["key"] = json!(String::from_utf8_lossy(&made.key));
                shown
            });
            json!({
                "allowed": decided.allowed, "cause": decided.cause.map(Cause::name), "status": decided.status(),
                "retry_after_us": decided.retry_after_us, "decisions": decisions.collect::<Vec<_>>(),
            })
        }
        "candidate" => {
            let counts = limiter.admin().candidate_counts(text("policy").unwrap_or("p")).unwrap_or_default();
            json!({
                "both_allow": counts.both_allow, "only_live_denies": counts.only_live_denies,
                "only_candidate_denies": counts.only_candidate_denies, "both_deny": counts.both_deny,
            })
        }
        other => json!({ "unknown": other }),
    })
}

fn decision(decision: &Decision) -> Value {
    if decision.source().is_outage() {
        return json!({ "outage": true });
    }
    json!({
        "allowed": decision.allowed(), "remaining": decision.remaining(),
        "retry_after_us": decision.retry_after_us(), "reset_after_us": decision.reset_after_us(),
        "delay_us": decision.delay_us(), "over": decision.over(), "crossed": decision.crossed(),
        "elastic": decision.elastic(), "shadowed": decision.shadowed(),
        "cause": decision.cause().map(Cause::name),
    })
}

fn usage(usage: &Usage) -> Value {
    json!({ "remaining": usage.remaining(), "reset_after_us": usage.reset_after_us() })
}

fn found(usage: &Usage) -> Value {
    let mut shown = self::usage(usage);
    shown["found"] = json!(usage.found());
    shown
}

fn outcome(changed: Result<(), Error>) -> Value {
    match changed {
        Ok(()) => json!({ "ok": true }),
        Err(error) => {
            let line =
                error.message().strip_prefix("line ").and_then(|rest| rest.split(',').next()?.parse().ok());
            json!({ "ok": false, "line": line.unwrap_or(0_u64), "about": error.message() })
        }
    }
}

/// The texts of a request, which its attributes borrow.
struct RequestParts<'a> {
    request: &'a Value,
    headers: Vec<(&'a str, &'a str)>,
}

impl<'a> RequestParts<'a> {
    fn of(request: &'a Value) -> Self {
        let lines = request["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        Self { request, headers: lines.iter().map(|line| (text(&line[0]), text(&line[1]))).collect() }
    }

    fn attributes(&self) -> RequestAttributes<'_> {
        let text = |name: &str| self.request[name].as_str();
        let mut attributes = RequestAttributes::new();
        if let Some(method) = text("method") {
            attributes = attributes.method(method);
        }
        if let Some(path) = text("path") {
            attributes = attributes.path(path);
        }
        if let Some(peer) = text("peer") {
            attributes = attributes.peer(peer);
        }
        for (name, value) in &self.headers {
            attributes = attributes.header(*name, *value);
        }
        for (name, value) in self.request["attributes"].as_object().into_iter().flatten() {
            attributes = attributes.attribute(name, value.as_str().unwrap_or_default());
        }
        attributes
    }
}
