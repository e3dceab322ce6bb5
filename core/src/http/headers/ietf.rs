//! `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11: Lists of Strings with parameters
//! (RFC 9651, sections 3.1 and 3.1.2).

use crate::http::headers::Outcome;
use crate::http::headers::digits::push_digits;
use crate::http::headers::quota_report::{QuotaReport, reports};
use crate::http::headers::whole_seconds::whole_seconds;

/// The largest Integer of a structured field: 15 digits (RFC 9651, section 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;
/// The initial capacity of a value, enough for most.
const USUAL_LENGTH: usize = 64;

/// The value of `RateLimit-Policy`.
pub(crate) fn policy(outcomes: &[Outcome<'_>]) -> String {
    list(outcomes, |report| [('q', report.capacity()), ('w', whole_seconds(report.window_us()))])
}

/// The value of `RateLimit`.
pub(crate) fn limit(outcomes: &[Outcome<'_>]) -> String {
    list(outcomes, |report| [('r', report.remaining()), ('t', whole_seconds(report.effective_window_us()))])
}

/// One item for each quota, with these parameters.
fn list(outcomes: &[Outcome<'_>], parameters: impl Fn(&QuotaReport<'_>) -> [(char, u64); 2]) -> String {
    let mut list = String::with_capacity(USUAL_LENGTH);
    for report in reports(outcomes) {
        list.push_str(if list.is_empty() { "\"" } else { ", \"" });
        report.push_name(&mut list);
        list.push('"');
        for (parameter, number) in parameters(&report) {
            list.extend([';', parameter, '=']);
            push_digits(&mut list, number.min(MAX_INTEGER));
        }
    }
    list
}
