//! `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: fields without a standard that many services
//! send.

use std::cmp::Reverse;

use crate::http::headers::quota_report::{QuotaReport, reports};
use crate::http::headers::whole_seconds::whole_seconds;
use crate::http::headers::{Outcome, ResetForm};

/// The quota that these fields describe: only one, so that the three numbers belong together.
pub(crate) fn most_constraining<'a>(outcomes: &[Outcome<'a>]) -> Option<QuotaReport<'a>> {
    reports(outcomes).min_by_key(|report| (report.remaining(), Reverse(report.reset_us())))
}

/// The value of `X-RateLimit-Reset`.
pub(crate) fn reset(report: &QuotaReport<'_>, form: ResetForm, now_us: u64) -> u64 {
    match form {
        ResetForm::Seconds => whole_seconds(report.reset_us()),
        ResetForm::Epoch => whole_seconds(u128::from(now_us) + report.reset_us()),
    }
}
