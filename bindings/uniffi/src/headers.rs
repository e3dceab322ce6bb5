//! Parts of an HTTP response that describe its limits.

use std::collections::HashMap;

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
    pub fields: HashMap<String, String>,
    /// The body: a problem document (RFC 9457), or text for clients that prefer it.
    pub body: String,
}

impl Problem {
    pub(crate) fn of(problem: &headers::Problem, response: headers::ProblemResponse) -> Self {
        Self {
            status: response.status.into(),
            detail: problem.detail().to_owned(),
            violated: problem.violated().to_vec(),
            fields: by_name(response.fields),
            body: response.body,
        }
    }
}

/// The values of fields by their names.
pub(crate) fn by_name(fields: Vec<headers::HeaderField>) -> HashMap<String, String> {
    fields.into_iter().map(|field| (field.name.into_owned(), field.value)).collect()
}
