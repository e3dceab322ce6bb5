//! Requests over several policies over HTTP.

use serde_json::{Value, json};

use crate::requests::{Answer, Charge, Kind, Operation};
use crate::service::HttpClient;

/// Runs an operation, whose keys begin with `prefix`.
pub(crate) fn answer(operation: &Operation, prefix: &str, client: &mut HttpClient) -> Result<Answer, String> {
    let key = |key: &str| format!("{prefix} {key}");
    let charge =
        |charge: &Charge| json!({ "policy": charge.policy, "key": key(&charge.key), "cost": charge.cost });
    let (path, body) = match operation.op {
        Kind::CheckAll | Kind::PeekAll | Kind::ReserveAll => {
            let requests: Vec<Value> = operation.charges.iter().map(charge).collect();
            let mut body = json!({ "requests": requests, "together": true });
            for (name, value) in [("id", json!(operation.id)), ("ttl_us", json!(operation.ttl_us))] {
                if !value.is_null() {
                    body[name] = value;
                }
            }
            let path = match operation.op {
                Kind::CheckAll => "check",
                Kind::PeekAll => "peek",
                _ => "reserve",
            };
            (path.to_owned(), body)
        }
        kind => {
            let asked = key(operation.key.as_deref().unwrap_or_default());
            let mut body = json!({ "policy": operation.policy, "key": asked });
            if let Some(cost) = operation.cost {
                body["cost"] = json!(cost);
            }
            (format!("{kind:?}").to_ascii_lowercase(), body)
        }
    };
    let reply = client.post(&format!("/v1/{path}"), &body)?;
    if reply.status != 200 {
        return Err(reply.body.to_string());
    }
    let Value::Array(results) = &reply.body["results"] else { return Ok(of_one(&reply.body)) };
    if matches!(operation.op, Kind::ReserveAll) && reply.body["id"] != json!(operation.id) {
        return Err(format!("the id is {}", reply.body["id"]));
    }
    Ok(Answer::of_charges(results.iter().map(of_one).collect()))
}

/// The answer about one key. One of an outage has nothing.
fn of_one(answer: &Value) -> Answer {
    if answer["source"] != "store" && answer["source"] != "denial_cache" {
        return Answer::default();
    }
    let number = |name: &str| answer[name].as_u64();
    let decides = answer["allowed"].is_boolean();
    Answer {
        allowed: answer["allowed"].as_bool(),
        remaining: number("remaining"),
        retry_after_us: decides.then(|| number("retry_after_us").into()),
        reset_after_us: number("reset_after_us"),
        decisions: None,
    }
}
