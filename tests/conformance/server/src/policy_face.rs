//! Operations of format 3 through a server: decisions on its listeners for callers, over HTTP or over RESP, and what operators do on its
//! admin listener. What the server has no path for is asked of its limiter, and counted apart.

use std::collections::BTreeMap;

use polylimit::Limiter;
use serde_json::{Value, json};

use crate::face::Face;
use crate::policies::{self, DocumentSource};
use crate::service::{HttpClient, Reply, Service};

/// How many operations went which way.
#[derive(Default)]
pub(crate) struct Ways {
    pub(crate) face: usize,
    pub(crate) admin: usize,
    /// The operations that the server has no path for, by their kinds.
    pub(crate) limiter: BTreeMap<&'static str, usize>,
}

/// The clients of a server, for the operations of one case.
pub(crate) struct PolicyClient {
    limiter: Limiter,
    data: HttpClient,
    admin: HttpClient,
    resp: Option<Box<redis::Connection>>,
    source: DocumentSource,
    /// The version of the published document.
    version: u64,
    _service: Service,
}

/// The operations that RESP has, with the fields of an answer that it returns.
const COMMANDS: [&str; 6] = ["check", "peek", "take", "charge", "refund", "reset"];
const TOLD_BY_RESP: [&str; 8] =
    ["allowed", "remaining", "retry_after_us", "reset_after_us", "delay_us", "over", "taken", "error"];
/// What operators do, whatever the protocol of callers is.
const FOR_OPERATORS: [&str; 5] = ["block", "configuration", "entry", "match", "candidate"];

/// A case as a protocol can express it; `None` where it cannot.
pub(crate) fn expressed(face: Face, case: &Value) -> Option<Value> {
    let mut case = case.clone();
    if face == Face::Http {
        return Some(case);
    }
    for operation in case["ops"].as_array_mut()? {
        let name = operation["op"].as_str()?.to_owned();
        if COMMANDS.contains(&&*name) {
            if !operation["headroom"].is_null() || !operation["plan"].is_null() {
                return None;
            }
            if let Some(expected) = operation["expect"].as_object_mut() {
                expected.retain(|field, _| TOLD_BY_RESP.contains(&&**field));
            }
        } else if !FOR_OPERATORS.contains(&&*name) {
            return None;
        }
    }
    Some(case)
}

impl PolicyClient {
    pub(crate) fn new(
        limiter: Limiter,
        service: Service,
        face: Face,
        source: DocumentSource,
    ) -> Result<Self, String> {
        let (data, admin) = (service.http()?, service.admin()?);
        let resp = match face {
            Face::Http => None,
            Face::Resp => Some(Box::new(service.resp()?)),
        };
        Ok(Self { limiter, data, admin, resp, source, version: 0, _service: service })
    }

    /// The answer to an operation, in the form of the cases.
    pub(crate) fn answer(&mut self, operation: &Value, ways: &mut Ways) -> Result<Value, String> {
        let name = operation["op"].as_str().unwrap_or_default();
        if COMMANDS.contains(&name)
            && let Some(connection) = &mut self.resp
        {
            ways.face += 1;
            return by_resp(connection, name, operation);
        }
        if let Some((path, body)) = decision_call(name, operation) {
            ways.face += 1;
            return Ok(told(name, or_error(self.data.post(path, &body)?)));
        }
        let answered = match name {
            "block" => Some(self.block(operation)?),
            "match" => self.matched(operation)?,
            "candidate" => Some(self.candidate(operation)?),
            "configuration" => self.configuration(operation)?,
            "entry" => self.entry(operation)?,
            _ => None,
        };
        if let Some(answer) = answered {
            ways.admin += 1;
            return Ok(answer);
        }
        let kind = match name {
            "configuration" => "documents of the program",
            "entry" => "overrides and list items with an end",
            "match" => "matches of requests that a list decides",
            _ => "others",
        };
        *ways.limiter.entry(kind).or_default() += 1;
        Ok(policies::answer_or_error(&self.limiter, operation))
    }

    fn block(&mut self, operation: &Value) -> Result<Value, String> {
        let mut body = key_of(operation);
        body["for_us"] = operation["for_us"].clone();
        self.admin.post("/v1/block", &body).map(or_error)
    }

    /// The policies that the rules apply, as an explanation of the request names them. Where a list decides, it names none.
    fn matched(&mut self, operation: &Value) -> Result<Option<Value>, String> {
        let explained = or_error(self.admin.post("/v1/explain_request", &operation["request"])?);
        if !explained["list_entry"].is_null() || explained["cause"] == "off" {
            return Ok(None);
        }
        let Some(policies) = explained["policies"].as_array() else { return Ok(Some(explained)) };
        let each = policies.iter().map(|policy| {
            json!({
                "policy": policy["policy"], "key": policy["key"], "cost": policy["cost"], "headroom": policy["headroom"],
            })
        });
        Ok(Some(each.collect()))
    }

    /// The counts of a candidate, as the metrics report them.
    fn candidate(&mut self, operation: &Value) -> Result<Value, String> {
        let policy = operation["policy"].as_str().unwrap_or("p");
        let metrics = self.admin.send("GET", "/metrics", "", "")?.body;
        let metrics = metrics.as_str().unwrap_or_default();
        let count = |live: &str, candidate: &str| {
            let labels = [
                format!("policy=\"{policy}\""),
                format!("live=\"{live}\""),
                format!("candidate=\"{candidate}\""),
            ];
            let mut lines =
                metrics.lines().filter(|line| line.starts_with("polylimit_shadow_decisions_total{"));
            let line = lines.find(|line| labels.iter().all(|label| line.contains(label.as_str())));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(json!({
            "both_allow": count("allowed", "allowed"), "only_live_denies": count("denied", "allowed"),
            "only_candidate_denies": count("allowed", "denied"), "both_deny": count("denied", "denied"),
        }))
    }

    /// Publishes a document. One that the program has given cannot be replaced over HTTP: there `/v1/policies/validate` has to say of
    /// the new one what the case expects.
    fn configuration(&mut self, operation: &Value) -> Result<Option<Value>, String> {
        let document =
            operation["text"].as_str().map_or_else(|| operation["document"].to_string(), ToOwned::to_owned);
        if self.source == DocumentSource::Program {
            let checked = self.admin.send("POST", "/v1/policies/validate", "", &document)?.body;
            let is_valid = checked["valid"].as_bool();
            if is_valid != operation["valid"].as_bool().or(operation["expect"]["ok"].as_bool()) {
                return Err(format!("/v1/policies/validate says {checked}"));
            }
            // What is refused changes nothing, so there is nothing to ask the limiter.
            return Ok((is_valid == Some(false)).then(|| failure(&checked["error"])));
        }
        let field = format!("if-match: \"{}\"\r\n", self.version);
        let reply = self.admin.send("PUT", "/v1/policies?why=case", &field, &document)?;
        if reply.status == 200 {
            let read = self.admin.send("GET", "/v1/policies", "", "")?.body;
            self.version = read["document_version"].as_u64().ok_or("no version of the document")?;
        }
        Ok(Some(outcome(&reply)))
    }

    /// Adds and removes items of lists. The server has no path for overrides, and its items end by the clock of the host, not by that of a
    /// case.
    fn entry(&mut self, operation: &Value) -> Result<Option<Value>, String> {
        let (entry, adds) = match (operation["set"].as_str(), operation["delete"].as_str()) {
            (Some(entry), _) => (entry, true),
            (None, entry) => (entry.unwrap_or_default(), false),
        };
        let Some((list @ ("deny" | "allow"), item)) = entry.split_once(' ') else { return Ok(None) };
        let value = &operation["value"];
        let mut body = json!({ "list": list, "item": item });
        for (name, given) in value.as_object().into_iter().flatten() {
            match name.as_str() {
                "by" | "why" => body[name] = given.clone(),
                _ => return Ok(None),
            }
        }
        // A case may give no reason; the server's log wants one.
        if body.get("why").is_none() {
            body["why"] = json!("a case");
        }
        let path = if adds { "/v1/lists/add" } else { "/v1/lists/remove" };
        let reply = self.admin.post(path, &body)?;
        // For a case it is enough that the item is not there.
        if !adds && reply.status == 404 {
            return Ok(Some(json!({ "ok": true })));
        }
        Ok(Some(outcome(&reply)))
    }
}

fn outcome(reply: &Reply) -> Value {
    if reply.status == 200 { json!({ "ok": true }) } else { failure(&reply.body["detail"]) }
}

fn failure(message: &Value) -> Value {
    let message = message.as_str().unwrap_or_default();
    let line = message.strip_prefix("line ").and_then(|rest| rest.split(',').next()?.parse().ok());
    json!({ "ok": false, "line": line.unwrap_or(0_u64), "about": message })
}

fn or_error(reply: Reply) -> Value {
    if reply.status == 200 { reply.body } else { json!({ "error": reply.body["code"] }) }
}

fn key_of(operation: &Value) -> Value {
    json!({
        "policy": operation["policy"].as_str().unwrap_or("p"), "key": operation["key"].as_str().unwrap_or("k"),
    })
}

/// The path and the body of an operation of callers; `None` for others.
fn decision_call(name: &str, operation: &Value) -> Option<(&'static str, Value)> {
    let path = match name {
        "check" => "/v1/check",
        "peek" => "/v1/peek",
        "take" => "/v1/take",
        "charge" => "/v1/charge",
        "refund" => "/v1/refund",
        "reset" => "/v1/reset",
        "reserve" => "/v1/reserve",
        "commit" => "/v1/commit",
        "cancel" => "/v1/cancel",
        "renew" => "/v1/renew",
        "decide" => "/v1/decide",
        _ => return None,
    };
    let mut body = if name == "decide" { operation["request"].clone() } else { key_of(operation) };
    let spent = if name == "commit" { "spent" } else { "cost" };
    for (name, field) in
        [("cost", spent), ("headroom", "headroom"), ("plan", "plan"), ("id", "id"), ("ttl_us", "ttl_us")]
    {
        if !operation[name].is_null() {
            body[field] = operation[name].clone();
        }
    }
    Some((path, body))
}

/// An answer in the form of the cases.
fn told(name: &str, mut answer: Value) -> Value {
    if name == "decide"
        && let Some(decisions) = answer["decisions"].as_array_mut()
    {
        for made in decisions {
            let (policy, key) = (made["policy"].take(), made["key"].take());
            *made = made["decision"].take();
            made["policy"] = policy;
            made["key"] = key;
        }
    }
    answer
}

fn by_resp(connection: &mut redis::Connection, name: &str, operation: &Value) -> Result<Value, String> {
    let mut command = redis::cmd(&format!("POLYLIMIT.{}", name.to_ascii_uppercase()));
    let key = key_of(operation);
    command.arg(key["policy"].as_str()).arg(key["key"].as_str());
    if let Some(cost) = operation["cost"].as_u64() {
        command.arg(cost);
    }
    let reply = match command.query::<Vec<redis::Value>>(connection) {
        Ok(reply) => reply,
        Err(error) => match error.code() {
            Some(code) => return Ok(json!({ "error": code.to_ascii_lowercase() })),
            None => return Err(error.to_string()),
        },
    };
    let number = |at: usize| match reply.get(at) {
        Some(redis::Value::Int(number)) => Ok(*number),
        other => Err(format!("element {at} is {other:?}")),
    };
    let mut answer = json!({ "remaining": number(2)?, "reset_after_us": number(4)? });
    if matches!(name, "check" | "peek") {
        answer["allowed"] = json!(number(0)? == 1);
        answer["retry_after_us"] = u64::try_from(number(3)?).map_or(Value::Null, Value::from);
        answer["delay_us"] = json!(number(5)?);
        answer["over"] = json!(number(8)?);
    }
    if name == "take" {
        answer["taken"] = json!(number(9)?);
    }
    Ok(answer)
}
