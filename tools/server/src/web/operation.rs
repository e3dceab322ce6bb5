//! `POST /v1/check` and the other operations on keys, one request or many in a body.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::future::join_all;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, Response};
use polylimit::http::headers::{HeaderSettings, HeaderStyle, fields, problem};
use polylimit::raw::{Answer, Call};
use polylimit::reservation::ReservationId;
use polylimit::{Decision, Error, Policy, Request};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::access::Identity;
use crate::app::App;
use crate::caller::Caller;
use crate::counters::{Interface, Rejection};
use crate::log::LogRecord;
use crate::web::author::{self, check_note};
use crate::web::query::{self, check_length, from_base64};
use crate::web::refusal::{self, ErrorBody, Refused, denied, invalid, json, of_error, too_large};
use crate::web::terms::terms;

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
    Reserve,
    Commit,
    Cancel,
    Renew,
}

impl Operation {
    pub(super) const ALL: [Self; 10] = [
        Self::Check,
        Self::Peek,
        Self::Take,
        Self::Charge,
        Self::Refund,
        Self::Reset,
        Self::Reserve,
        Self::Commit,
        Self::Cancel,
        Self::Renew,
    ];

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Check => "/v1/check",
            Self::Peek => "/v1/peek",
            Self::Take => "/v1/take",
            Self::Charge => "/v1/charge",
            Self::Refund => "/v1/refund",
            Self::Reset => "/v1/reset",
            Self::Reserve => "/v1/reserve",
            Self::Commit => "/v1/commit",
            Self::Cancel => "/v1/cancel",
            Self::Renew => "/v1/renew",
        }
    }

    /// The operation with this path.
    pub(super) fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.path() == path)
    }

    /// What it does, in one sentence.
    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Check => "Decides, and spends the cost when allowed.",
            Self::Peek => "The decision that a check would give, without spending.",
            Self::Take => "Spends as much of the cost as is allowed.",
            Self::Charge => "Spends the cost whether it fits or not.",
            Self::Refund => "Gives back up to what is used.",
            Self::Reset => "Forgets the key.",
            Self::Reserve => "Decides, and sets the cost aside when allowed.",
            Self::Commit => "Ends a reservation, and charges what was spent.",
            Self::Cancel => "Ends a reservation, and spends nothing.",
            Self::Renew => "The reservation ends later.",
        }
    }

    /// Whether its answer is a decision, and not a usage.
    pub(super) const fn decides(self) -> bool {
        matches!(self, Self::Check | Self::Peek | Self::Reserve)
    }

    const fn needs_id(self) -> bool {
        matches!(self, Self::Commit | Self::Cancel | Self::Renew)
    }
}

/// A key, and what is asked about it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyRequest {
    /// The name of a policy, or its quotas such as `100/minute`. It may be left out where there is only one.
    policy: Option<String>,
    /// The key, such as `user:42`.
    key: Option<String>,
    /// The key in base64, where it is no text.
    key_base64: Option<String>,
    /// Units, 0 to 10^12; 1 by default.
    cost: Option<u64>,
    /// Percent of each quota that is left for others, 0 to 99; 0 by default.
    headroom: Option<u8>,
    /// The plan of the key; a calendar may follow, as in `gold from=15`.
    plan: Option<String>,
    /// The reservation: 1 to 64 bytes. Random for a reserve without one; commit, cancel and renew need it.
    id: Option<String>,
    /// How long a reservation lasts, in microseconds: 1,000 to 172,800,000,000. A reserve has 30 s by default; renew needs it.
    ttl_us: Option<u64>,
    /// How long after its commit the id of a reserve is remembered, in microseconds: 1,000 to 172,800,000,000; by default it is not.
    /// Meanwhile nothing more is charged for the id: a repeated commit is `repeated`, and a reserve asks for a slot only.
    remember_us: Option<u64>,
    /// What a commit charges; what was reserved, by default.
    spent: Option<u64>,
    /// The reason of a reset, for the log; up to 1,024 bytes.
    why: Option<String>,
    /// The author of a reset, for the log: in brackets after the caller's name, where the server knows it. Up to 256 bytes.
    by: Option<String>,
}

/// Several requests of one operation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ManyRequests {
    /// 1 to 1,000 requests, which are decided in their order.
    requests: Vec<KeyRequest>,
    /// Only for check, peek and reserve: all are admitted, or nothing is spent for any.
    #[serde(default)]
    together: bool,
    /// Only for a reserve together: the id of the reservations, 1 to 64 bytes; random by default.
    id: Option<String>,
    /// Only for a reserve together: how long the reservations last, in microseconds: 1,000 to 172,800,000,000; 30 s by default.
    ttl_us: Option<u64>,
    /// Only for a reserve together: how long after their commits the id is remembered, in microseconds, as in a single reserve.
    remember_us: Option<u64>,
}

/// A reservation, with the decision on it.
#[derive(Serialize)]
struct Reserved<'a> {
    id: &'a str,
    #[serde(flatten)]
    decision: &'a Decision,
}

/// The answers to many requests.
#[derive(Serialize)]
struct Results<T> {
    /// Of the reservations, where they have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    results: Vec<T>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OneResult {
    Answer(Box<RawValue>),
    Error { error: ErrorBody },
}

/// A request whose parts were read.
pub(super) struct Prepared {
    policy: Option<Arc<str>>,
    key: Vec<u8>,
    cost: u64,
    headroom: u8,
    plan: Option<String>,
    id: Option<String>,
    ttl_us: Option<u64>,
    remember_us: Option<u64>,
    spent: Option<u64>,
    why: Option<String>,
    by: Option<String>,
}

impl KeyRequest {
    /// A request about this key, of one unit.
    pub(super) fn of(policy: Option<String>, key: Option<String>, key_base64: Option<String>) -> Self {
        Self { policy, key, key_base64, ..Self::default() }
    }

    /// Checks a request of this caller.
    pub(super) fn prepare(self, app: &App, caller: Option<&Identity>) -> Result<Prepared, Refused> {
        let Self { policy, key, key_base64, cost, headroom, plan, .. } = self;
        let Self { id, ttl_us, remember_us, spent, why, by, .. } = self;
        let key = match (key, key_base64) {
            (Some(key), None) => key.into_bytes(),
            (None, Some(key)) => from_base64("key_base64", &key)?,
            (None, None) => return Err(invalid("the request has no key: give key, or key_base64 for bytes")),
            (Some(_), Some(_)) => {
                return Err(invalid("the request has a key and a key_base64: give one of them"));
            }
        };
        check_length(app, "key", key.len())?;
        let policy = match policy {
            None => None,
            Some(text) => {
                check_length(app, "policy", text.len())?;
                let one_off = app.one_off.resolve(&app.limiter, &text, caller);
                let one_off = one_off.map_err(|error| invalid(&error.to_string()))?;
                Some(one_off.unwrap_or_else(|| text.into()))
            }
        };
        let (cost, headroom) = (cost.unwrap_or(1), headroom.unwrap_or(0));
        Ok(Prepared { policy, key, cost, headroom, plan, id, ttl_us, remember_us, spent, why, by })
    }
}

impl Prepared {
    /// The policy that was named; empty where none was.
    pub(super) fn policy(&self) -> &str {
        self.policy.as_deref().unwrap_or_default()
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn request(&self) -> Request<'_> {
        let mut request = Request::new(&self.key).cost(self.cost).headroom(self.headroom);
        if let Some(policy) = &self.policy {
            request = request.policy(policy);
        }
        if let Some(plan) = &self.plan {
            request = request.plan(plan);
        }
        request
    }

    /// Whether it says how it is reserved.
    fn has_terms(&self) -> bool {
        self.id.is_some() || self.ttl_us.is_some() || self.remember_us.is_some()
    }

    fn call(&self, operation: Operation) -> Result<Call<'_>, Error> {
        let request = self.request();
        let id = || ReservationId::new(self.id.as_deref().unwrap_or_default());
        Ok(match operation {
            Operation::Check => Call::Check(request),
            Operation::Peek => Call::Peek(request),
            Operation::Take => Call::Take(request),
            Operation::Charge => Call::Charge(request),
            Operation::Refund => Call::Refund(request),
            Operation::Reset => Call::Reset(request),
            Operation::Reserve => {
                Call::Reserve(request, terms(self.id.as_deref(), self.ttl_us, self.remember_us)?)
            }
            Operation::Commit => Call::Commit(request, id()?, self.spent),
            Operation::Cancel => Call::Cancel(request, id()?),
            Operation::Renew => {
                Call::Renew(request, id()?, Duration::from_micros(self.ttl_us.unwrap_or_default()))
            }
        })
    }

    /// Refuses fields that the operation does not have, and misses those that it needs.
    fn check(&self, operation: Operation) -> Result<(), Refused> {
        let takes_id = operation == Operation::Reserve || operation.needs_id();
        let takes_ttl = matches!(operation, Operation::Reserve | Operation::Renew);
        let is_spending = operation == Operation::Commit;
        let is_noted = operation == Operation::Reset;
        check_note(self.by.as_deref(), self.why.as_deref().unwrap_or_default())?;
        for (name, is_given, is_taken) in [
            ("id", self.id.is_some(), takes_id),
            ("ttl_us", self.ttl_us.is_some(), takes_ttl),
            ("remember_us", self.remember_us.is_some(), operation == Operation::Reserve),
            ("spent", self.spent.is_some(), is_spending),
            ("why", self.why.is_some(), is_noted),
            ("by", self.by.is_some(), is_noted),
        ] {
            if is_given && !is_taken {
                return Err(invalid(&format!(
                    "{name} is given, and {} has none: leave it out",
                    operation.path()
                )));
            }
        }
        if operation.needs_id() && self.id.is_none() {
            return Err(invalid(&format!("{} needs the id of the reservation", operation.path())));
        }
        Ok(())
    }
}

/// Answers `POST /v1/<operation>` of this caller.
pub(super) async fn answer(
    app: &App,
    operation: Operation,
    caller: &Caller,
    request: (Parts, Body),
) -> Response<Body> {
    match perform(app, operation, caller, request).await {
        Ok(response) => response,
        Err(refused) => refused.response(),
    }
}

async fn perform(
    app: &App,
    operation: Operation,
    caller: &Caller,
    (head, body): (Parts, Body),
) -> Result<Response<Body>, Refused> {
    let tells_status = head.uri.query().is_some_and(has_status);
    let body = query::body(app, body).await?;
    if is_many(&body) {
        if tells_status {
            return Err(invalid("status is for a single request: leave it out, or ask one by one"));
        }
        return many(app, operation, query::parse(&body)?, caller).await;
    }
    let prepared = query::parse::<KeyRequest>(&body)?.prepare(app, caller.identity.as_ref())?;
    prepared.check(operation)?;
    let call = prepared.call(operation).map_err(|error| Refused::of(of_error(&error)))?;
    let answer = app.limiter.raw().call(&call).await.map_err(|error| Refused::of(of_error(&error)))?;
    note(app, operation, caller, &prepared);
    if tells_status && let Answer::Decision(decision) = &answer {
        return Ok(with_status(app, &prepared, &call, decision, &head.headers));
    }
    Ok(response(&call, &answer))
}

/// Whether the query asks for the status of a denial.
pub(super) fn has_status(query: &str) -> bool {
    query.split('&').any(|part| part == "status" || part == "status=true")
}

/// Whether the body has many requests. A key may contain the word, too, so it is only a reason to look.
fn is_many(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Shape<'a> {
        #[serde(borrow)]
        requests: Option<&'a RawValue>,
    }
    const WORD: &[u8] = b"\"requests\"";
    body.windows(WORD.len()).any(|window| window == WORD)
        && serde_json::from_slice::<Shape<'_>>(body).is_ok_and(|shape| shape.requests.is_some())
}

async fn many(
    app: &App,
    operation: Operation,
    many: ManyRequests,
    caller: &Caller,
) -> Result<Response<Body>, Refused> {
    let ManyRequests { requests, together, id, ttl_us, remember_us } = many;
    let most = app.options.limits.requests;
    if requests.len() > most {
        app.counters.rejected(Interface::Http, Rejection::TooLarge);
        return Err(too_large(&format!(
            "the body has {} requests: allowed are up to {most}",
            requests.len()
        )));
    }
    if requests.is_empty() {
        return Err(invalid(&format!("the body has no requests: allowed are 1 to {most}")));
    }
    if together && !operation.decides() {
        return Err(invalid(
            "together is given, and only /v1/check, /v1/peek and /v1/reserve have it: leave it out",
        ));
    }
    let reserves = together && operation == Operation::Reserve;
    let given = [("id", id.is_some()), ("ttl_us", ttl_us.is_some()), ("remember_us", remember_us.is_some())];
    if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given && !reserves) {
        return Err(invalid(&format!(
            "{name} is given next to requests, and only /v1/reserve with together has it: leave it out"
        )));
    }
    let prepared = requests.into_iter().map(|request| {
        let request = request.prepare(app, caller.identity.as_ref())?;
        request.check(operation).map(|()| request)
    });
    if together {
        let prepared = prepared.collect::<Result<Vec<_>, _>>()?;
        if prepared.iter().any(Prepared::has_terms) {
            return Err(invalid(
                "a request has an id, a ttl_us or a remember_us, and requests that are reserved together have one: write it next to \
                 requests",
            ));
        }
        let requests: Vec<_> = prepared.iter().map(Prepared::request).collect();
        let decided = async {
            let terms = terms(id.as_deref(), ttl_us, remember_us)?;
            Ok(match operation {
                Operation::Reserve => {
                    let results = app.limiter.reserve_together(&requests, &terms).await?;
                    Results { id: Some(id_text(&terms.id)), results }
                }
                Operation::Peek => Results { id: None, results: app.limiter.peek_together(&requests).await? },
                _ => Results { id: None, results: app.limiter.check_together(&requests).await? },
            })
        };
        let results = decided.await.map_err(|error: Error| Refused::of(of_error(&error)))?;
        return Ok(json(&results));
    }
    // Each is carried out or refused by itself.
    let prepared =
        prepared.map(|request| request.map_or_else(|refused| refused.of_one().map(Err), |made| Ok(Ok(made))));
    let prepared: Vec<Result<Prepared, ErrorBody>> = prepared.collect::<Result<_, Refused>>()?;
    let valid = prepared.iter().flatten();
    let answers: Vec<_> = if operation == Operation::Check {
        let decisions = app.limiter.check_many(valid.map(Prepared::request)).await;
        decisions.into_iter().map(|decided| result(decided.map(|made| raw(&made)))).collect()
    } else {
        let each = valid.map(async |request| {
            let call = request.call(operation)?;
            let answer = app.limiter.raw().call(&call).await?;
            note(app, operation, caller, request);
            Ok(raw_answer(&call, &answer))
        });
        join_all(each).await.into_iter().map(result).collect()
    };
    let mut answers = answers.into_iter();
    let results = prepared.into_iter().filter_map(|request| match request {
        Ok(_) => answers.next(),
        Err(error) => Some(OneResult::Error { error }),
    });
    Ok(json(&Results { id: None, results: results.collect() }))
}

/// Records what takes units or blocks from a key without a decision.
fn note(app: &App, operation: Operation, caller: &Caller, prepared: &Prepared) {
    if operation != Operation::Reset {
        return;
    }
    let record = LogRecord::info("key_reset", "a key was reset").with("policy", prepared.policy());
    let record = record
        .with("key", app.options.show_keys.of(&prepared.key))
        .with("by", author::name(Some(caller), prepared.by.clone()));
    app.log(&record.with("why", prepared.why.as_deref().unwrap_or_default()).with("peer", caller.place()));
}

fn result(answer: Result<Option<Box<RawValue>>, Error>) -> OneResult {
    let (code, detail) = match answer {
        Ok(Some(answer)) => return OneResult::Answer(answer),
        Ok(None) => ("internal", "the answer is no JSON".to_owned()),
        Err(error) => (error.kind().code(), error.message().to_owned()),
    };
    OneResult::Error { error: ErrorBody { code, detail } }
}

fn raw(value: &impl Serialize) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(value).ok()
}

fn raw_answer(call: &Call<'_>, answer: &Answer) -> Option<Box<RawValue>> {
    match (call, answer) {
        (Call::Reserve(_, terms), Answer::Decision(decision)) => {
            raw(&Reserved { id: &id_text(&terms.id), decision })
        }
        (_, Answer::Decision(decision)) => raw(decision),
        (_, Answer::Usage(usage)) => raw(usage),
        _ => None,
    }
}

fn response(call: &Call<'_>, answer: &Answer) -> Response<Body> {
    match (call, answer) {
        (Call::Reserve(_, terms), Answer::Decision(decision)) => {
            json(&Reserved { id: &id_text(&terms.id), decision })
        }
        (_, Answer::Decision(decision)) => json(decision),
        (_, Answer::Usage(usage)) => json(usage),
        _ => refusal::refuse(
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the answer is of another kind",
        ),
    }
}

fn id_text(id: &ReservationId) -> String {
    String::from_utf8_lossy(id.as_bytes()).into_owned()
}

/// The answer with the status and the fields that a middleware would send: 200, or 429 or 503 with a problem document.
fn with_status(
    app: &App,
    prepared: &Prepared,
    call: &Call<'_>,
    decision: &Decision,
    headers: &HeaderMap,
) -> Response<Body> {
    let policy = match app.limiter.raw().policy_in_request(prepared.policy.as_deref()) {
        Ok(policy) => policy,
        Err(error) => return of_error(&error),
    };
    // A key with an override or a plan has other quotas than its policy, which the fields would show wrongly.
    let has_its_numbers = policy.quotas().len() == decision.quotas().len()
        && policy.quotas().iter().zip(decision.quotas()).all(|(quota, used)| quota.limit() == used.limit);
    let style = if has_its_numbers { HeaderStyle::Ietf } else { HeaderStyle::None };
    let outcomes: [(&Policy, &Decision); 1] = [(&policy, decision)];
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let mut response = match problem(&outcomes, prepared.cost) {
        None => response(call, &Answer::Decision(decision.clone())),
        Some(problem) => denied(&problem, accept),
    };
    refusal::add(response.headers_mut(), fields(&outcomes, &HeaderSettings::default().style(style), 0));
    response
}
