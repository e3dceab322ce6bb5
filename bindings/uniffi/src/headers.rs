//! Parts of an HTTP response that describe its limits: those that a guard makes, and those of a decision that a program has made itself.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use polylimit::http::headers::{self, HeaderSettings};

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

/// The header fields of the response to a request that a program has decided itself: values by names in lower case. A guard makes
/// them together with its decision. `headers` are words in any order, separated by spaces, and `ietf seconds` by default: `ietf`,
/// `legacy`, `both` or `none`; whether `x-ratelimit-reset` is in `seconds` from now or since the `epoch`; and other names of fields,
/// such as `ratelimit=x-quota`. A denial has `retry-after` in any case.
#[uniffi::export(default(headers = None))]
pub fn header_fields(outcomes: Vec<Outcome>, headers: Option<String>) -> Result<HashMap<String, String>> {
    guarded(|| Ok(by_name(fields(&known(outcomes)?, headers.as_deref())?)))
}

/// The response to a request that a program has decided itself; nothing when no decision is a denial. `cost` is the number of units
/// that the request asked for, 0 to 10^12 (1 by default), and `accept` the field of the request.
#[uniffi::export(default(cost = None, accept = None))]
pub fn problem_of(
    outcomes: Vec<Outcome>,
    cost: Option<i64>,
    accept: Option<String>,
) -> Result<Option<Problem>> {
    guarded(|| {
        let found = problem(&known(outcomes)?, cost, accept.as_deref())?;
        Ok(found.map(|(problem, response)| Problem::of(&problem, response)))
    })
}

/// Policies of the core, each with its decision.
type Known = Vec<(polylimit::Policy, polylimit::Decision)>;

fn known(outcomes: Vec<Outcome>) -> Result<Known> {
    let one = |outcome: Outcome| Ok((outcome.policy.parsed()?, outcome.decision.to_core()?));
    outcomes.into_iter().map(one).collect()
}

fn borrowed(outcomes: &Known) -> Vec<headers::Outcome<'_>> {
    outcomes.iter().map(|(policy, decision)| (policy, decision)).collect()
}

/// The fields of these outcomes at the system's time.
pub(crate) fn fields(outcomes: &Known, headers: Option<&str>) -> Result<Vec<headers::HeaderField>> {
    let settings: HeaderSettings = headers.unwrap_or_default().parse()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    Ok(headers::fields(&borrowed(outcomes), &settings, now_us))
}

/// The problem of these outcomes, and the response to a client that accepts this.
pub(crate) fn problem(
    outcomes: &Known,
    cost: Option<i64>,
    accept: Option<&str>,
) -> Result<Option<(headers::Problem, headers::ProblemResponse)>> {
    let cost = cost.map_or(Ok(1), |cost| unsigned("cost", cost))?;
    Ok(headers::problem(&borrowed(outcomes), cost).map(|problem| {
        let response = problem.response(accept);
        (problem, response)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Limiter;
    use crate::request::Request;
    use crate::settings::Settings;

    fn policy(quotas: &str) -> Policy {
        Policy { name: "api".to_owned(), quotas: quotas.to_owned(), outage: None, lease: None }
    }

    fn outcome(quotas: &str, cost: i64) -> Outcome {
        let settings = Settings {
            store: Some("memory:".to_owned()),
            policies: vec![policy(quotas)],
            options: HashMap::new(),
            clock: None,
            document: None,
        };
        let limiter = Limiter::new(settings).unwrap();
        let request =
            Request { key: b"key".to_vec(), policy: None, cost: Some(cost), headroom: None, plan: None };
        Outcome { policy: limiter.policy_for(None, None).unwrap(), decision: limiter.check(request).unwrap() }
    }

    #[test]
    fn fields_have_the_style_and_the_names_of_the_options() {
        let outcomes = vec![outcome("5/hour", 2)];
        let fields = header_fields(outcomes.clone(), None).unwrap();
        assert_eq!(fields["ratelimit-policy"], r#""api";q=5;w=3600"#);
        assert!(fields["ratelimit"].starts_with(r#""api";r=3;t="#), "{fields:?}");
        assert_eq!(fields.len(), 2);
        let headers = "legacy x-ratelimit-limit=x-limit x-ratelimit-reset=".to_owned();
        let expected = [("x-limit", "5"), ("x-ratelimit-remaining", "3")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(header_fields(outcomes.clone(), Some(headers)).unwrap(), expected);
        let refused = header_fields(outcomes, Some("new".to_owned())).unwrap_err();
        assert_eq!(refused.kind(), polylimit::ErrorKind::InvalidArgument);
    }

    #[test]
    fn reset_since_the_epoch_is_after_the_time_of_the_system() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let fields = header_fields(vec![outcome("5/hour", 2)], Some("legacy epoch".to_owned())).unwrap();
        assert!(fields["x-ratelimit-reset"].parse::<u64>().unwrap() > before, "{fields:?}");
    }

    #[test]
    fn problem_names_the_quotas_that_have_too_few_units() {
        let outcomes = vec![outcome("5/minute; 9/hour", 7)];
        let found = problem_of(outcomes.clone(), Some(7), Some("text/plain".to_owned())).unwrap().unwrap();
        assert_eq!((found.status, &*found.violated), (429, &["api:1".to_owned()][..]));
        assert_eq!(found.body, "The request costs more than the quota can ever admit.\n");
        assert_eq!(found.fields["content-type"], "text/plain; charset=utf-8");
        let document = problem_of(outcomes.clone(), None, None).unwrap().unwrap();
        assert_eq!(document.fields["content-type"], "application/problem+json");
        assert_eq!(problem_of(vec![outcome("5/minute", 1)], None, None), Ok(None));
        problem_of(outcomes, Some(-1), None).unwrap_err();
    }

    #[test]
    fn decisions_that_no_limiter_makes_are_refused() {
        let changes: [fn(&mut Decision); 3] = [
            |decision| decision.source = "guess".to_owned(),
            |decision| decision.degraded = Some("guess".to_owned()),
            |decision| decision.quotas.clear(),
        ];
        for change in changes {
            let mut outcome = outcome("5/minute", 1);
            change(&mut outcome.decision);
            let refused = header_fields(vec![outcome], None).unwrap_err();
            assert_eq!(refused.kind(), polylimit::ErrorKind::InvalidArgument);
        }
    }
}
