//! HTTP responses for decisions: response fields, and the body of a denial.
//!
//! Pure functions of the policies that were applied to one request and of their decisions. Nothing here depends on a web
//! framework. Every value is printable ASCII, so no value can end a field or start another.

mod accept;
mod digits;
mod ietf;
mod legacy;
mod names;
mod problem;
mod quota_report;
mod retry_after;
mod settings;
mod whole_seconds;

pub use accept::prefers_text;
pub use problem::{Problem, ProblemResponse, problem};
pub use settings::{HeaderSettings, HeaderStyle, ResetForm};

use std::borrow::Cow;

use names::Field;

use crate::rules::decision::Decision;
use crate::rules::policy::Policy;

/// A policy and its decision on the request. Policies that are applied to one request have different names.
pub type Outcome<'a> = (&'a Policy, &'a Decision);

/// One field of a response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderField {
    /// The field's name in lower case, as in HTTP/2.
    pub name: Cow<'static, str>,
    /// The field's value, printable ASCII.
    pub value: String,
}

/// The fields of the response to a request, in a fixed order; none without outcomes. All names but `retry-after` may be
/// [changed](HeaderSettings::names).
///
/// | field | when | source |
/// |---|---|---|
/// | `ratelimit-policy`, `ratelimit` | [`Ietf`](HeaderStyle::Ietf), [`Both`](HeaderStyle::Both) | draft-ietf-httpapi-ratelimit-headers-11, sections 3 and 4 |
/// | `x-ratelimit-limit`, `-remaining`, `-reset` | [`Legacy`](HeaderStyle::Legacy), [`Both`](HeaderStyle::Both) | no standard |
/// | `retry-after` | in any style, on a denial that is not for ever | RFC 9110, section 10.2.3 |
/// | `x-ratelimit-outage` | in any style but [`None`](HeaderStyle::None), when a [guard](crate::guard) admitted without the store; only in [`RequestLimits::fields`](crate::guard::RequestLimits::fields) | no standard |
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
/// let fields = fields(&[(&policy, &decision)], &HeaderSettings::default(), 0);
/// assert_eq!((&*fields[0].name, &*fields[0].value), ("ratelimit-policy", r#""api";q=100;w=60"#));
/// assert!(fields[1].value.starts_with(r#""api";r=99;t="#));
/// # Ok::<(), polylimit::Error>(())
/// ```
pub fn fields(outcomes: &[Outcome<'_>], settings: &HeaderSettings, now_us: u64) -> Vec<HeaderField> {
    let mut fields = Vec::with_capacity(6);
    push_limits(&mut fields, outcomes, settings, now_us);
    push_retry_after(&mut fields, outcomes);
    fields
}

/// Adds the fields that a style selects, which are all but `retry-after`.
pub(crate) fn push_limits(
    fields: &mut Vec<HeaderField>,
    outcomes: &[Outcome<'_>],
    settings: &HeaderSettings,
    now_us: u64,
) {
    let mut add = |field, value: &dyn Fn() -> String| {
        if let Some(name) = settings.name_of(field) {
            fields.push(HeaderField { name, value: value() });
        }
    };
    if settings.style.has_ietf() && !outcomes.is_empty() {
        add(Field::Policy, &|| ietf::policy(outcomes));
        add(Field::Limit, &|| ietf::limit(outcomes));
    }
    if settings.style.has_legacy()
        && let Some(report) = legacy::most_constraining(outcomes)
    {
        add(Field::LegacyLimit, &|| report.capacity().to_string());
        add(Field::LegacyRemaining, &|| report.remaining().to_string());
        add(Field::LegacyReset, &|| legacy::reset(&report, settings.reset_form, now_us).to_string());
    }
}

/// Adds `retry-after`, if there is a denial that is not for ever.
pub(crate) fn push_retry_after(fields: &mut Vec<HeaderField>, outcomes: &[Outcome<'_>]) {
    if let Some(seconds) = retry_after::seconds(outcomes) {
        fields.push(HeaderField { name: Cow::Borrowed("retry-after"), value: seconds.to_string() });
    }
}

/// The field that says which rule admitted a request without the store; none where the settings turn it off.
pub(crate) fn outage_field(source: &'static str, settings: &HeaderSettings) -> Option<HeaderField> {
    let name = settings.name_of(Field::Outage).filter(|_| settings.style != HeaderStyle::None)?;
    Some(HeaderField { name, value: source.to_owned() })
}

#[cfg(test)]
mod tests;
