//! A decision as HTTP: response fields, and the body of a denial.
//!
//! Pure functions over the policies that were applied to one request and what they decided. Nothing here depends on a
//! web framework; every value is printable ASCII, so that none can end a field or start another.

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
pub use problem::{Problem, problem};
pub use settings::{HeaderSettings, HeaderStyle, ResetForm};

use crate::rules::decision::Decision;
use crate::rules::policy::Policy;

/// A policy, and what it decided about the request. Where several are applied to one request they have different names.
pub type Outcome<'a> = (&'a Policy, &'a Decision);

/// One field of a response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderField {
    /// Its name in lower case, as in HTTP/2.
    pub name: &'static str,
    /// Its value, printable ASCII.
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
/// `"api";r=5;t=30`. The item of a policy's only quota has the policy's name; of several, each adds a colon and its
/// place from 1 up, as in `"api:2"`. No policy's name has a colon, so that two items never have the same name.
///
/// - `q` is the quota's capacity, and `w` the time in which so many units come back: the period where burst and limit
///   are equal. So `q` in `w` is the rate, and `r` never exceeds `q`, as it could exceed a limit below the burst.
/// - `r` is what remains, and `t` the time in which no more than that should be used: until nothing counts as used any
///   more. It is `w` while nothing counts as used, for then the policy says it all, and a limit of 0 does not ask its
///   clients to come straight back. A quota without a unit left that denies has a `t` that does not end after
///   `retry-after` (section 6.4 of the draft).
///
/// **`x-ratelimit-*`** have room for one quota, the one with the least remaining, and of those the one that takes
/// longest to reset. The limit is its capacity; the reset is its `t` as if the request had not been denied.
///
/// **`retry-after`** is the longest over the denials, at least 1. There is none if one of them is for ever.
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
