//! The cases of `policies.json` and `zones.json` in `tests/conformance` that need no store: which rules match, and what is
//! decided before a store is called. The other operations run where the stores are.

use std::path::Path;

use serde_json::Value;

use super::*;
use crate::model::Mode;
use crate::request::RequestAttributes;
use polylimit_rules::error::ErrorKind;

/// The start of the cases' clock.
const START_US: u64 = 1_789_948_800_000_000;

fn cases() -> Vec<Value> {
    let read = |name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance").join(name);
        let cases: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(cases["format"], 3);
        cases["cases"].as_array().unwrap().clone()
    };
    ["policies.json", "zones.json"].into_iter().flat_map(read).collect()
}

/// The configuration of a case, as its operations change it.
struct World {
    document: Arc<Document>,
    entries: Entries,
    configuration: Configuration,
}

impl World {
    fn new(document: &Value) -> Self {
        let document = Arc::new(Document::parse(document.to_string().as_bytes()).unwrap());
        let entries = Entries::default();
        let configuration = Configuration::compile(Arc::clone(&document), &entries);
        Self { document, entries, configuration }
    }

    fn change(&mut self, operation: &Value) {
        match operation["op"].as_str() {
            Some("configuration") => {
                let text = match operation.get("text") {
                    Some(text) => text.as_str().unwrap().to_owned(),
                    None => operation["document"].to_string(),
                };
                if operation["expect"]["ok"] == true {
                    self.document = Arc::new(Document::parse(text.as_bytes()).unwrap());
                }
            }
            Some("entry") => {
                if let Some(text) = operation.get("delete") {
                    self.entries.remove(text.as_str().unwrap());
                } else if operation["expect"]["ok"] == true {
                    let text = operation["set"].as_str().unwrap();
                    self.entries.set(text, &operation["value"].to_string()).unwrap();
                }
            }
            _ => return,
        }
        self.configuration = Configuration::compile(Arc::clone(&self.document), &self.entries);
    }
}

fn request(request: &Value) -> RequestAttributes<'_> {
    let mut attributes = RequestAttributes::new();
    let text = |name| request.get(name).map(|value: &Value| value.as_str().unwrap());
    if let Some(method) = text("method") {
        attributes = attributes.method(method);
    }
    if let Some(path) = text("path") {
        attributes = attributes.path(path);
    }
    if let Some(peer) = text("peer") {
        attributes = attributes.peer(peer);
    }
    for header in request.get("headers").and_then(Value::as_array).into_iter().flatten() {
        attributes = attributes.header(header[0].as_str().unwrap(), header[1].as_str().unwrap());
    }
    for (name, value) in request.get("attributes").and_then(Value::as_object).into_iter().flatten() {
        attributes = attributes.attribute(name, value.as_str().unwrap());
    }
    attributes
}

fn now_us(operation: &Value) -> u64 {
    START_US + operation["t_us"].as_u64().unwrap()
}

#[test]
fn rules_match_as_the_cases_expect() {
    let mut compared = 0;
    for case in cases() {
        let mut world = World::new(&case["document"]);
        for operation in case["ops"].as_array().unwrap() {
            world.change(operation);
            if operation["op"] != "match" {
                continue;
            }
            let matching = world.configuration.matching(&request(&operation["request"]), now_us(operation));
            let matching: Vec<Value> = matching
                .unwrap()
                .into_iter()
                .map(|found| {
                    serde_json::json!({
                        "policy": &*found.policy,
                        "key": String::from_utf8(found.key).unwrap(),
                        "cost": found.cost,
                        "headroom": found.headroom,
                    })
                })
                .collect();
            assert_eq!(Value::Array(matching), operation["expect"], "{}: {operation}", case["name"]);
            compared += 1;
        }
    }
    assert!(compared > 0);
}

/// What is known about a request before a store is called.
#[derive(Debug, PartialEq)]
enum Known {
    /// The cause and, in microseconds, the wait of a denial.
    Decided(&'static str, Option<u64>),
    Invalid,
    /// The policies and keys of the decisions. The last one is the cause, where there is one.
    Asked(Vec<(String, Vec<u8>, Option<&'static str>)>),
}

fn known(configuration: &Configuration, source: &RequestAttributes<'_>, now_us: u64) -> Known {
    let wait = |verdict: ListVerdict| verdict.until_us.map(|until_us| until_us - now_us);
    let document = configuration.document();
    if !document.enabled {
        return Known::Decided("off", Some(0));
    }
    let request = configuration.attributes(source);
    match configuration.list_verdict(&request, now_us) {
        Some(verdict) if verdict.denies => return Known::Decided("deny_list", wait(verdict)),
        Some(_) => return Known::Decided("allow_list", Some(0)),
        None => {}
    }
    let Ok(applied) = configuration.apply_rules(&request, now_us).inspect_err(|error| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }) else {
        return Known::Invalid;
    };
    let mut asked = Vec::new();
    let mut denied = None;
    for from in applied {
        let policy = configuration.policy(from.policy);
        let verdict = configuration.key_verdict(from.policy, &from.key, now_us);
        let denial = if from.is_missing {
            Some(("missing_key", None))
        } else {
            verdict.filter(|verdict| verdict.denies).map(|verdict| ("deny_list", wait(verdict)))
        };
        let cause = match (policy.document.mode, denial) {
            (Mode::Off, _) => Some("off"),
            (Mode::Shadow, Some((cause, _))) => Some(cause),
            (Mode::On, Some((cause, wait))) => {
                denied = denied.or(Some((cause, wait)));
                None
            }
            (_, None) => verdict.map(|_| "allow_list"),
        };
        asked.push((policy.document.policy.name().to_owned(), from.key.to_vec(), cause));
    }
    denied.map_or(Known::Asked(asked), |(cause, wait)| Known::Decided(cause, wait))
}

#[test]
fn what_needs_no_store_is_decided_as_the_cases_expect() {
    let mut compared = 0;
    for case in cases() {
        let mut world = World::new(&case["document"]);
        for operation in case["ops"].as_array().unwrap() {
            world.change(operation);
            if operation["op"] != "decide" {
                continue;
            }
            let expected = &operation["expect"];
            let name = format!("{}: {operation}", case["name"]);
            match known(&world.configuration, &request(&operation["request"]), now_us(operation)) {
                Known::Decided(cause, wait_us) => {
                    assert_eq!(expected["cause"], cause, "{name}");
                    assert_eq!(expected["retry_after_us"].as_u64(), wait_us, "{name}");
                    assert_eq!(expected["decisions"], Value::Array(Vec::new()), "{name}");
                }
                Known::Invalid => assert_eq!(expected["error"], "invalid_argument", "{name}"),
                Known::Asked(asked) => {
                    let decisions = expected["decisions"].as_array().unwrap();
                    assert_eq!(decisions.len(), asked.len(), "{name}");
                    for (decision, (policy, key, cause)) in decisions.iter().zip(asked) {
                        assert_eq!(decision["policy"], policy, "{name}");
                        assert_eq!(decision["key"].as_str().unwrap().as_bytes(), key, "{name}");
                        if let Some(cause) = cause {
                            assert_eq!(decision["cause"], cause, "{name}");
                        }
                    }
                }
            }
            compared += 1;
        }
    }
    assert!(compared > 0);
}
