//! HTTP responses for decisions: response fields, and the body of a denial.
//!
//! Pure functions of the policies that were applied to one request and of their decisions. Nothing here depends on a web
//! framework. Every value is printable ASCII, so no value can end a field or start another.

mod grpc;
mod jitter;
mod names;
mod problem;
mod request;
mod settings;

pub use grpc::GrpcStatus;
#[cfg(feature = "actix")]
pub(crate) use grpc::percent_encoded;
pub use jitter::RetryJitter;
pub(crate) use problem::problem_by_costs;
pub use problem::{Problem, ProblemResponse, prefers_text, problem};
pub use request::{request_fields, request_problem};
pub use settings::{HeaderSettings, HeaderStyle, ResetForm};

use std::borrow::Cow;
use std::cmp::Reverse;

use names::Field;
use smallvec::SmallVec;

use polylimit_rules::decision::{Decision, QuotaUsage};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Quota;
use polylimit_runtime::backoff::random;

/// The largest Integer of a structured field: 15 digits (RFC 9651, section 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

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
/// | `x-ratelimit-outage` | in any style but [`None`](HeaderStyle::None), when a [guard](crate::http::guard) admitted without the store; only in [`RequestLimits::fields`](crate::http::guard::RequestLimits::fields) | no standard |
///
/// **`ratelimit-policy`** and **`ratelimit`** have one item for each quota, in order, as in `"api";q=100;w=60` and
/// `"api";r=5;t=30`. The item of a policy's only quota has the policy's name; with several quotas, each item adds a colon
/// and its position from 1 up, as in `"api:2"`. No policy's name contains a colon, so two items never have the same name.
///
/// - `q` is the quota's capacity, and `w` the time in which that many units come back: the period where burst and limit
///   are equal. So `q` in `w` is the rate, and `r` never exceeds `q`, as it could exceed a limit below the burst.
/// - `r` is what remains, and `t` the time in which no more than that should be used: until nothing counts as used any
///   more. While nothing counts as used, `t` is `w`, since only the policy limits the client then; so a limit of 0 does
///   not ask its clients to come back at once. For a quota that denies and has no unit left, `t` does not end after
///   `retry-after` (section 6.4 of the draft).
/// - A quota of concurrency has no `w` and no `t`, since its slots come back when requests end: `"model:1";q=20;qu="concurrent-requests"`
///   and `"model:1";r=5`, where `r` are free slots.
///
/// **`x-ratelimit-*`** describe one quota: the one with the least remaining and, among equals, the one that takes longest
/// to reset; one of concurrency only while no slot is free, or where there is no other. The limit is its capacity; the reset is its `t` as
/// if the request had not been denied, and for concurrency the time after which no slot is taken if no reservation is renewed.
///
/// **`retry-after`** is the longest over the denials, at least 1, and longer with a [jitter](HeaderSettings::jitter). It is absent if one of
/// them is for ever.
///
/// All times are whole seconds, rounded up. `now_us` is the time in microseconds since the Unix epoch, and matters only
/// for [`ResetForm::Epoch`] and for quotas by the calendar, whose `w` is the length of the current window.
///
/// ```
/// use polylimit::http::headers::{HeaderSettings, fields};
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
    fields_at(outcomes, settings, &|| now_us)
}

/// As [`fields`]; reads the time only where a field needs it.
pub(crate) fn fields_at(
    outcomes: &[Outcome<'_>],
    settings: &HeaderSettings,
    now_us: &dyn Fn() -> u64,
) -> Vec<HeaderField> {
    let mut fields = Vec::with_capacity(6);
    push_limits(&mut fields, outcomes, settings, now_us);
    push_over(&mut fields, outcomes.iter().map(|(_, decision)| (*decision, settings)));
    let extra = |seconds| settings.jitter.map_or(0, |jitter| jitter.extra(seconds, random()));
    push_retry_after(&mut fields, outcomes, extra);
    fields
}

/// Adds the fields that a style selects, which are all but `retry-after`.
pub(crate) fn push_limits(
    fields: &mut Vec<HeaderField>,
    outcomes: &[Outcome<'_>],
    settings: &HeaderSettings,
    now_us: &dyn Fn() -> u64,
) {
    let mut add = |field, value: &dyn Fn() -> String| {
        if let Some(name) = settings.name_of(field) {
            fields.push(HeaderField { name, value: value() });
        }
    };
    if matches!(settings.style, HeaderStyle::Ietf | HeaderStyle::Both) && !outcomes.is_empty() {
        let policy = |report: &QuotaReport<'_>, list: &mut String| {
            push_parameter(list, ";q=", report.quota.regular_capacity());
            if report.counts_slots() {
                list.push_str(";qu=\"concurrent-requests\"");
            } else {
                push_parameter(list, ";w=", whole_seconds(report.window_us(now_us)));
            }
        };
        add(Field::Policy, &|| list(outcomes, policy));
        let limit = |report: &QuotaReport<'_>, list: &mut String| {
            push_parameter(list, ";r=", report.remaining());
            if !report.counts_slots() {
                push_parameter(list, ";t=", whole_seconds(report.effective_window_us(now_us)));
            }
        };
        add(Field::Limit, &|| list(outcomes, limit));
    }
    if matches!(settings.style, HeaderStyle::Legacy | HeaderStyle::Both)
        && let Some(report) = reports(outcomes).min_by_key(|report| {
            (report.has_free_slots(), report.remaining(), Reverse(report.reset_us(now_us)))
        })
    {
        add(Field::LegacyLimit, &|| report.quota.regular_capacity().to_string());
        add(Field::LegacyRemaining, &|| report.remaining().to_string());
        let from_us = match settings.reset_form {
            ResetForm::Seconds => 0,
            ResetForm::Epoch => now_us().into(),
        };
        add(Field::LegacyReset, &|| whole_seconds(from_us + report.reset_us(now_us)).to_string());
    }
}

/// Adds the number of units beyond a limit that an excess has admitted, the most over the decisions whose settings name the
/// field alike; no field while there are none.
pub(crate) fn push_over<'a>(
    fields: &mut Vec<HeaderField>,
    decisions: impl Iterator<Item = (&'a Decision, &'a HeaderSettings)>,
) {
    let over =
        decisions.filter(|(decision, settings)| decision.over() > 0 && settings.style != HeaderStyle::None);
    let mut most: SmallVec<[(Cow<'static, str>, u64); 1]> = SmallVec::new();
    for (decision, settings) in over {
        let Some(name) = settings.name_of(Field::Over) else { continue };
        match most.iter_mut().find(|(known, _)| *known == name) {
            Some((_, units)) => *units = decision.over().max(*units),
            None => most.push((name, decision.over())),
        }
    }
    fields.extend(most.into_iter().map(|(name, units)| HeaderField { name, value: units.to_string() }));
}

/// Adds `retry-after`, with `extra` seconds, if there is a denial that is not for ever.
pub(crate) fn push_retry_after(
    fields: &mut Vec<HeaderField>,
    outcomes: &[Outcome<'_>],
    extra: impl FnOnce(u64) -> u64,
) {
    if let Some(seconds) = retry_after(outcomes) {
        let value = seconds.saturating_add(extra(seconds)).to_string();
        fields.push(HeaderField { name: Cow::Borrowed("retry-after"), value });
    }
}

/// The field that says which rule admitted a request without the store; none where the settings turn it off.
pub(crate) fn outage_field(source: &'static str, settings: &HeaderSettings) -> Option<HeaderField> {
    let name = settings.name_of(Field::Outage).filter(|_| settings.style != HeaderStyle::None)?;
    Some(HeaderField { name, value: source.to_owned() })
}

/// How long a denied client has to wait, in seconds and at least 1; `None` without a denial, and when a denial is for
/// ever.
fn retry_after(outcomes: &[Outcome<'_>]) -> Option<u64> {
    retry_after_us(outcomes).map(retry_seconds)
}

/// The same in microseconds.
fn retry_after_us(outcomes: &[Outcome<'_>]) -> Option<u64> {
    let denials = outcomes.iter().filter(|(_, decision)| !decision.allowed());
    let waits_us: Option<Vec<_>> = denials.map(|(_, decision)| decision.retry_after_us()).collect();
    waits_us?.into_iter().max().map(|longest| longest.max(1))
}

/// A wait of a denied client in seconds.
fn retry_seconds(us: u64) -> u64 {
    whole_seconds(us.into()).max(1)
}

/// A time in seconds, rounded up, so that a client that waits this long does not come too early.
fn whole_seconds(us: u128) -> u64 {
    // Dividing 64 bits by a constant takes a fraction of the time that 128 bits take.
    u64::try_from(us).map_or_else(
        |_| u64::try_from(us.div_ceil(1_000_000)).unwrap_or(u64::MAX),
        |us| us.div_ceil(1_000_000),
    )
}

/// A List of Strings with parameters (RFC 9651, sections 3.1 and 3.1.2): one item for each quota, with the parameters that a function
/// adds.
fn list(outcomes: &[Outcome<'_>], push_parameters: impl Fn(&QuotaReport<'_>, &mut String)) -> String {
    let mut list = String::with_capacity(64);
    for report in reports(outcomes) {
        list.push_str(if list.is_empty() { "\"" } else { ", \"" });
        report.push_name(&mut list);
        list.push('"');
        push_parameters(&report, &mut list);
    }
    list
}

/// Appends a parameter of an item.
fn push_parameter(list: &mut String, name: &str, number: u64) {
    list.push_str(name);
    push_digits(list, number.min(MAX_INTEGER));
}

/// Writes a number; several times as fast as through `Display`.
fn push_digits(text: &mut String, number: u64) {
    if number >= 10 {
        push_digits(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

/// The quotas of all outcomes, in order.
fn reports<'a>(outcomes: &[Outcome<'a>]) -> impl Iterator<Item = QuotaReport<'a>> {
    outcomes.iter().flat_map(|&(policy, decision)| {
        policy
            .quotas()
            .iter()
            .zip(decision.quotas())
            .enumerate()
            .map(move |(at, (quota, &usage))| QuotaReport { policy, decision, at, quota, usage })
    })
}

/// A quota of a policy, with its usage from the policy's decision.
#[derive(Clone, Copy)]
struct QuotaReport<'a> {
    policy: &'a Policy,
    decision: &'a Decision,
    /// The quota's index in the policy, from 0.
    at: usize,
    quota: &'a Quota,
    usage: QuotaUsage,
}

impl QuotaReport<'_> {
    /// Whether the quota is one of concurrency, which counts slots and no units, and has no period.
    fn counts_slots(&self) -> bool {
        !self.quota.algorithm().is_rate()
    }

    /// Whether slots are free, so that they do not limit a request now.
    fn has_free_slots(&self) -> bool {
        self.counts_slots() && self.usage.remaining > 0
    }

    /// The time in which as many units come back as can be spent at once; the period where the limit is 0. By the calendar, the length
    /// of the current window. 0 only for concurrency: a capacity is at least 1, a period at least 1 ms.
    fn window_us(&self, now_us: &dyn Fn() -> u64) -> u128 {
        let period_us = u128::from(match self.quota.calendar() {
            Some(calendar) => {
                let window = calendar.window_us(now_us());
                window.end - window.start
            }
            None => self.quota.period_us(),
        });
        match u128::from(self.quota.limit()) {
            0 => period_us,
            limit if limit == u128::from(self.quota.regular_capacity()) => period_us,
            limit => (u128::from(self.quota.regular_capacity()) * period_us).div_ceil(limit),
        }
    }

    /// What remains of the limit; an excess is not a part of it.
    fn remaining(&self) -> u64 {
        self.usage.remaining.saturating_sub(self.quota.excess())
    }

    /// How long until nothing counts as used any more; the window where nothing counts already.
    fn reset_us(&self, now_us: &dyn Fn() -> u64) -> u128 {
        match self.usage.reset_after_us {
            0 => self.window_us(now_us),
            reset_after_us => reset_after_us.into(),
        }
    }

    /// The time in which no more than the remaining units should be used.
    fn effective_window_us(&self, now_us: &dyn Fn() -> u64) -> u128 {
        let decision = self.decision;
        match decision.retry_after_us() {
            Some(retry_after_us) if !decision.allowed() && self.usage.remaining == 0 => {
                self.reset_us(now_us).min(retry_after_us.into())
            }
            _ => self.reset_us(now_us),
        }
    }

    /// Whether this quota contributes to the denial of a request at this cost.
    fn is_violated(&self, cost: u64) -> bool {
        // An `acquire` that was denied because its wait would be too long may have enough units left in every quota. Then
        // the quota with the least is reported, so that every denial has a reason.
        let has_too_few = if self.counts_slots() {
            self.usage.remaining == 0
        } else {
            self.usage.remaining < cost || self.usage.remaining == self.decision.remaining()
        };
        !self.decision.allowed() && has_too_few
    }

    /// Appends the quota's name: unique among all quotas of policies with different names, because no policy's name
    /// contains a colon.
    ///
    /// A policy's name is a token (RFC 9110, section 5.6.2), which contains neither quotes nor backslashes, so within
    /// quotes it needs no escapes: neither in a String of a structured field (RFC 9651, section 3.3.3) nor in one of
    /// JSON.
    fn push_name(&self, text: &mut String) {
        text.push_str(self.policy.public_name());
        if self.policy.quotas().len() > 1 {
            text.push(':');
            push_digits(text, self.at as u64 + 1);
        }
    }
}

#[cfg(test)]
mod tests;
