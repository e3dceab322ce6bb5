//! Parts of an HTTP response that describe its limits.

use polylimit::headers;

use crate::decision::Decision;
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

impl From<headers::HeaderField> for HeaderField {
    fn from(field: headers::HeaderField) -> Self {
        Self { name: field.name.to_string(), value: field.value }
    }
}

/// The response to a request that does not proceed, besides the fields of its limits.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Problem {
    /// The status of the response: 429 or the guard's own for a request over its limit, 503 for an outage, 400 for a request
    /// without a key.
    pub status: i32,
    /// One sentence for a person about this denial.
    pub detail: String,
    /// The quotas that were exceeded, by their names in `ratelimit-policy`.
    pub violated: Vec<String>,
    /// The fields `content-type` and `vary`.
    pub fields: Vec<HeaderField>,
    /// The body: a problem document (RFC 9457), or text for clients that prefer it.
    pub body: String,
}

impl Problem {
    pub(crate) fn of(problem: &headers::Problem, accept: Option<&str>) -> Self {
        let response = problem.response(accept);
        Self {
            status: response.status.into(),
            detail: problem.detail().to_owned(),
            violated: problem.violated().to_vec(),
            fields: response.fields.into_iter().map(Into::into).collect(),
            body: response.body,
        }
    }
}
