//! The body of a denial: a problem document (RFC 9457), or its text.

use crate::http::headers::Outcome;
use crate::http::headers::accept::prefers_text;
use crate::http::headers::quota_report::reports;
use crate::http::headers::retry_after;
use crate::rules::decision::Source;

/// The answer to a denied request.
///
/// The problem type is `quota-exceeded` of draft-ietf-httpapi-ratelimit-headers-11, section 5. A denial by the outage
/// policy [`deny`](crate::Outage::Deny) is not caused by the client: its type is `temporary-reduced-capacity`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Whether an outage policy denied and no quota was exceeded.
    is_outage: bool,
    detail: String,
    violated: Vec<String>,
}

/// The problem of a request that was denied under at least one of these policies; `None` when all admit it.
///
/// `cost` is the number of units that the request asked for. Each quota of a denial that has fewer left is violated.
///
/// ```
/// use polylimit::headers::problem;
/// use polylimit::{Limiter, Policy, Request};
///
/// let policy = Policy::parse("api", "100/minute; 1000/hour")?;
/// let limiter = Limiter::builder().policy(policy.clone()).build()?.blocking();
/// let decision = limiter.check(Request::new("user:42").cost(101))?;
/// let problem = problem(&[(&policy, &decision)], 101).expect("101 units do not fit into 100");
/// assert_eq!((problem.status(), problem.violated()), (429, &["api:1".to_owned()][..]));
/// assert_eq!(problem.text(), "The request costs more than the quota can ever admit.\n");
/// # Ok::<(), polylimit::Error>(())
/// ```
pub fn problem(outcomes: &[Outcome<'_>], cost: u64) -> Option<Problem> {
    if outcomes.iter().all(|(_, decision)| decision.allowed()) {
        return None;
    }
    let denials = outcomes.iter().map(|(_, decision)| decision).filter(|decision| !decision.allowed());
    let is_outage = denials.clone().all(|denial| denial.source() == Source::Deny);
    if is_outage {
        let seconds = retry_after::seconds(outcomes).unwrap_or(1);
        let detail = format!("The request cannot be counted at the moment: retry in {seconds} s.");
        return Some(Problem { is_outage, detail, violated: Vec::new() });
    }
    let violated = reports(outcomes).filter(|report| report.is_violated(cost));
    Some(Problem {
        is_outage,
        detail: match retry_after::seconds(outcomes) {
            Some(seconds) => format!("Not enough of the quota is left: retry in {seconds} s."),
            None => "The request costs more than the quota can ever admit.".to_owned(),
        },
        violated: violated.map(|report| report.name()).collect(),
    })
}

impl Problem {
    /// The content type of [`json`](Self::json).
    pub const JSON_TYPE: &str = "application/problem+json";
    /// The content type of [`text`](Self::text).
    pub const TEXT_TYPE: &str = "text/plain; charset=utf-8";

    /// The status of the response: 429 (RFC 6585, section 4), or 503 (RFC 9110, section 15.6.4) when the denial comes
    /// from an outage.
    pub fn status(&self) -> u16 {
        if self.is_outage { 503 } else { 429 }
    }

    /// The URI of the problem type.
    pub fn type_uri(&self) -> &'static str {
        if self.is_outage {
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
        } else {
            "https://iana.org/assignments/http-problem-types#quota-exceeded"
        }
    }

    /// The title of the problem type.
    pub fn title(&self) -> &'static str {
        if self.is_outage {
            "Request cannot be satisfied due to temporary server capacity constraints"
        } else {
            "Request cannot be satisfied as assigned quota has been exceeded"
        }
    }

    /// What the client's user can do about this denial: one sentence, printable ASCII without quotes and backslashes.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The quotas that were exceeded, by their names in `ratelimit-policy`.
    pub fn violated(&self) -> &[String] {
        &self.violated
    }

    /// The problem document: a JSON object with `type`, `title`, `status`, `detail` and `violated-policies`.
    pub fn json(&self) -> String {
        // No part needs escapes; see `push_name` and `detail`.
        let violated: Vec<_> = self.violated.iter().map(|name| format!("\"{name}\"")).collect();
        format!(
            r#"{{"type":"{}","title":"{}","status":{},"detail":"{}","violated-policies":[{}]}}"#,
            self.type_uri(),
            self.title(),
            self.status(),
            self.detail(),
            violated.join(",")
        )
    }

    /// The content type and the body for a client with this `accept` field (RFC 9110, section 12.5.1): text where it prefers
    /// that, and otherwise the problem document.
    pub fn body(&self, accept: Option<&str>) -> (&'static str, String) {
        if accept.is_some_and(prefers_text) {
            (Self::TEXT_TYPE, self.text())
        } else {
            (Self::JSON_TYPE, self.json())
        }
    }

    /// The detail and a line end, for clients that prefer text.
    pub fn text(&self) -> String {
        format!("{}\n", self.detail)
    }
}
