//! The two protocols of a server.

use serde_json::{Value, json};

use crate::cases::{Answer, Case, Kind, Operation};
use crate::service::{HttpClient, Service};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    Http,
    Resp,
}

/// A connection.
pub(crate) enum Client {
    Http(HttpClient),
    Resp(Box<redis::Connection>),
}

impl Face {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Resp => "resp",
        }
    }

    /// Whether the protocol has every operation of a case: RESP has none on reservations.
    pub(crate) fn knows(self, case: &Case) -> bool {
        let is_command = |operation: &Operation| {
            matches!(
                operation.op,
                Kind::Check
                    | Kind::Peek
                    | Kind::Take
                    | Kind::Charge
                    | Kind::Refund
                    | Kind::Reset
                    | Kind::Change
            )
        };
        self == Self::Http || case.ops.iter().all(is_command)
    }

    pub(crate) fn client(self, service: &Service) -> Result<Client, String> {
        Ok(match self {
            Self::Http => Client::Http(service.http()?),
            Self::Resp => Client::Resp(Box::new(service.resp()?)),
        })
    }
}

impl Client {
    /// Runs an operation on the one key of a case.
    pub(crate) fn answer(&mut self, key: &str, operation: &Operation) -> Result<Answer, String> {
        match self {
            Self::Http(client) => {
                let reply = client.post(&path_of(operation.op), &body_of(key, operation))?;
                if reply.status != 200 {
                    return Err(reply.body.to_string());
                }
                Ok(of_json(operation.op, &reply.body))
            }
            Self::Resp(connection) => {
                let name = format!("POLYLIMIT.{}", name_of(operation.op).to_ascii_uppercase());
                let cost = operation.cost.unwrap_or(1);
                let reply =
                    redis::cmd(&name).arg("case").arg(key).arg(cost).query::<Vec<redis::Value>>(connection);
                of_reply(operation.op, &reply.map_err(|error| error.to_string())?)
            }
        }
    }
}

fn name_of(kind: Kind) -> String {
    format!("{kind:?}").to_ascii_lowercase()
}

fn path_of(kind: Kind) -> String {
    format!("/v1/{}", name_of(kind))
}

fn body_of(key: &str, operation: &Operation) -> Value {
    let mut body = json!({ "policy": "case", "key": key });
    if let Some(cost) = operation.cost {
        body[if matches!(operation.op, Kind::Commit) { "spent" } else { "cost" }] = json!(cost);
    }
    if let Some(id) = &operation.id {
        body["id"] = json!(id);
    }
    if let Some(ttl_us) = operation.ttl_us {
        body["ttl_us"] = json!(ttl_us);
    }
    if let Some(remember_us) = operation.remember_us {
        body["remember_us"] = json!(remember_us);
    }
    body
}

/// The fields of an answer that a case names. One of an outage has none.
fn of_json(kind: Kind, answer: &Value) -> Answer {
    if answer["source"] != "store" && answer["source"] != "denial_cache" {
        return Answer::default();
    }
    let number = |name: &str| answer[name].as_u64();
    let usage = Answer {
        remaining: number("remaining"),
        reset_after_us: number("reset_after_us"),
        ..Answer::default()
    };
    match kind {
        Kind::Check | Kind::Peek | Kind::Reserve => Answer {
            allowed: answer["allowed"].as_bool(),
            retry_after_us: Some(number("retry_after_us").into()),
            delay_us: number("delay_us"),
            over: number("over"),
            ..usage
        },
        Kind::Take => Answer { taken: number("taken"), ..usage },
        Kind::Commit | Kind::Cancel | Kind::Renew => {
            Answer { found: answer["found"].as_bool(), repeated: answer["repeated"].as_bool(), ..usage }
        }
        _ => usage,
    }
}

fn of_reply(kind: Kind, reply: &[redis::Value]) -> Result<Answer, String> {
    let integer = |at: usize| match reply.get(at) {
        Some(redis::Value::Int(number)) => Ok(*number),
        other => Err(format!("element {at} is {other:?}")),
    };
    let number =
        |at: usize| integer(at).and_then(|number| u64::try_from(number).map_err(|error| error.to_string()));
    let source = match reply.get(6) {
        Some(redis::Value::BulkString(source)) => String::from_utf8_lossy(source).into_owned(),
        other => return Err(format!("the source is {other:?}")),
    };
    if source != "store" && source != "denial_cache" {
        return Ok(Answer::default());
    }
    let usage = Answer { remaining: Some(number(2)?), reset_after_us: Some(number(4)?), ..Answer::default() };
    Ok(match kind {
        Kind::Check | Kind::Peek => Answer {
            allowed: Some(integer(0)? == 1),
            retry_after_us: Some(u64::try_from(integer(3)?).ok().into()),
            delay_us: Some(number(5)?),
            over: Some(number(8)?),
            ..usage
        },
        Kind::Take => Answer { taken: Some(number(9)?), ..usage },
        _ => usage,
    })
}
