//! HTTP header fields and problem documents of decisions.

use std::time::{SystemTime, UNIX_EPOCH};

use polylimit::headers::{self, HeaderSettings};

use crate::decision::Decision;
use crate::error::{Result, guarded};
use crate::number::unsigned;
use crate::request::Policy;

/// A policy, and what it decided about a request. Where several are applied to one request they have different names.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Outcome {
    /// The policy.
    pub policy: Policy,
    /// Its decision.
    pub decision: Decision,
}

/// One field of a response.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct HeaderField {
    /// Its name in lower case.
    pub name: String,
    /// Its value, printable ASCII.
    pub value: String,
}

/// The response to a denied request.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Problem {
    /// The status of the response: 429, or 503 when the denial comes from an outage.
    pub status: i32,
    /// One sentence for a person about this denial.
    pub detail: String,
    /// The quotas that were exceeded, by their names in `ratelimit-policy`.
    pub violated: Vec<String>,
    /// The body's content type.
    pub content_type: String,
    /// The body: a problem document (RFC 9457), or text for clients that prefer it.
    pub body: String,
}

/// The parts of a response that describe its limits.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Response {
    /// The fields, in a fixed order.
    pub fields: Vec<HeaderField>,
    /// The response, if the request was denied.
    pub problem: Option<Problem>,
}

/// The parts of a response that describe its limits.
///
/// `cost` is the number of units that the request asked for, 1 by default, `style` one of `ietf`, `legacy`, `both` and `none`,
/// `reset_form` how `x-ratelimit-reset` tells a time, `seconds` or `epoch`, and `accept` the request's field of that name.
#[uniffi::export]
pub fn respond(
    outcomes: Vec<Outcome>,
    cost: Option<i64>,
    style: Option<String>,
    reset_form: Option<String>,
    accept: Option<String>,
) -> Result<Response> {
    guarded(|| {
        let mut settings = HeaderSettings::default();
        if let Some(style) = style {
            settings = settings.style(style.parse()?);
        }
        if let Some(form) = reset_form {
            settings = settings.reset_form(form.parse()?);
        }
        let each = outcomes.iter().map(|outcome| Ok((outcome.policy.parsed()?, outcome.decision.core()?)));
        let each: Vec<_> = each.collect::<Result<_>>()?;
        let each: Vec<_> = each.iter().map(|(policy, decision)| (policy, decision)).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let fields = headers::fields(&each, &settings, u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
        let cost = cost.map_or(Ok(1), |cost| unsigned("cost", cost))?;
        let problem = headers::problem(&each, cost).map(|problem| {
            let (content_type, body) = problem.body(accept.as_deref());
            Problem {
                status: problem.status().into(),
                detail: problem.detail().to_owned(),
                violated: problem.violated().to_vec(),
                content_type: content_type.to_owned(),
                body,
            }
        });
        let field =
            |field: headers::HeaderField| HeaderField { name: field.name.into_owned(), value: field.value };
        Ok(Response { fields: fields.into_iter().map(field).collect(), problem })
    })
}
