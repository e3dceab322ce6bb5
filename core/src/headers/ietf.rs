//! `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11: Lists of Strings with parameters
//! (RFC 9651, sections 3.1 and 3.1.2).

use super::Outcome;
use super::quota_report::reports;
use super::whole_seconds::whole_seconds;

/// The largest Integer of a structured field: 15 digits (RFC 9651, section 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The value of `RateLimit-Policy`.
pub(super) fn policy(outcomes: &[Outcome<'_>]) -> String {
    list(reports(outcomes).map(|report| {
        let (q, w) = (integer(report.capacity()), integer(whole_seconds(report.window_us())));
        format!("\"{}\";q={q};w={w}", report.name())
    }))
}

/// The value of `RateLimit`.
pub(super) fn limit(outcomes: &[Outcome<'_>]) -> String {
    list(reports(outcomes).map(|report| {
        let (r, t) = (integer(report.remaining()), integer(whole_seconds(report.effective_window_us())));
        format!("\"{}\";r={r};t={t}", report.name())
    }))
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

fn integer(number: u64) -> u64 {
    number.min(MAX_INTEGER)
}
