//! HTTP responses for decisions: response fields, and the body of a denial.
//!
//! Pure functions of the policies that were applied to one request and of their decisions. Nothing here depends on a web
//! framework. Every value is printable ASCII, so no value can end a field or start another.

mod accept;
mod digits;
mod ietf;
mod legacy;
mod problem;
mod quota_report;
mod retry_after;
mod settings;
mod whole_seconds;

pub use accept::prefers_text;
pub use problem::{Problem, ProblemResponse, problem};
pub use settings::{HeaderSettings, HeaderStyle, ResetForm};

use crate::rules::decision::Decision;
use crate::rules::policy::Policy;

/// A policy and its decision on the request. Policies that are applied to one request have different names.
pub type Outcome<'a> = (&'a Policy, &'a Decision);

/// One field of a response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderField {
    /// The field's name in lower case, as in HTTP/2.
    pub name: &'static str,
    /// The field's value, printable ASCII.
    pub value: String,
}

/// The fields of the response to a request, in a fixed order; none without outcomes.
///
/// | field | when | source |
/// |---|---|---|
/// | `ratelimit-policy`, `ratelimit` | [`Ietf`](HeaderStyle::Ietf), [`Both`](HeaderStyle::Both) | draft-ietf-httpapi-ratelimit-headers-11, sections 3 and 4 |
/// | `x-ratelimit-limit`, `-remaining`, `-reset` | [`Legacy`](HeaderStyle::Legacy), [`Both`](HeaderStyle::Both) | no standard |
/// | `retry-after` | in any style, on a denial that is not for ever | RFC 9110, section 10.2.3 |
///
/// **`ratelimit-policy`** and **`ratelimit`** have one item for each quota, in order, as in `"api";q=100;w=60` and
/// `"api";r=5;t=30`. The item of a policy's only quota has the policy's name; with several quotas, each item adds a colon
/// and its position from 1 up, as in `"api:2"`. No policy's name contains a colon, so two items never have the same name.
///
/// - `q` is the quota's capacity, and `w` the time in which so many units come back: the period where burst and limit
///   are equal. So `q` in `w` is the rate, and `r` never exceeds `q`, as it could exceed a limit below the burst.
/// - `r` is what remains, and `t` the time in which no more than that should be used: until nothing counts as used any
///   more. While nothing counts as used, `t` is `w`, since only the policy limits the client then; so a limit of 0 does
///   not ask its clients to come back at once. For a quota that denies and has no unit left, `t` does not end after
///   `retry-after` (section 6.4 of the draft).
///
/// **`x-ratelimit-*`** describe one quota: the one with the least remaining and, among equals, the one that takes longest
/// to reset. The limit is its capacity; the reset is its `t` as if the request had not been denied.
///
/// **`retry-after`** is the longest over the denials, at least 1. It is absent if one of them is for ever.
///
/// All times are whole seconds, rounded up. `now_us` is the time in microseconds since the Unix epoch, and matters only
/// for [`ResetForm::Epoch`].
///
/// ```
/// use polylimit::headers::{HeaderSettings, fields};
/// use polylimit::{Limiter, Policy};
///
/// let policy = Policy::parse("api", "100/minute")?;
/// let limiter = Limiter::builder().policy(policy.clone()).build()?.blocking();
/// let decision = limiter.check("user:42")?;
/// let fields = fields(&[(&policy, &decision)], HeaderSettings::default(), 0);
/// assert_eq!((fields[0].name, &*fields[0].value), ("ratelimit-policy", r#""api";q=100;w=60"#));
/// assert!(fields[1].value.starts_with(r#""api";r=99;t="#));
/// # Ok::<(), polylimit::Error>(())
/// ```
pub fn fields(outcomes: &[Outcome<'_>], settings: HeaderSettings, now_us: u64) -> Vec<HeaderField> {
    let mut fields = Vec::with_capacity(6);
    let mut add = |name, value| fields.push(HeaderField { name, value });
    if settings.style.has_ietf() && !outcomes.is_empty() {
        add("ratelimit-policy", ietf::policy(outcomes));
        add("ratelimit", ietf::limit(outcomes));
    }
    if settings.style.has_legacy()
        && let Some(report) = legacy::most_constraining(outcomes)
    {
        add("x-ratelimit-limit", report.capacity().to_string());
        add("x-ratelimit-remaining", report.remaining().to_string());
        add("x-ratelimit-reset", legacy::reset(&report, settings.reset_form, now_us).to_string());
    }
    if let Some(seconds) = retry_after::seconds(outcomes) {
        add("retry-after", seconds.to_string());
    }
    fields
}

#[cfg(test)]
mod tests;
