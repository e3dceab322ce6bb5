//! `Retry-After` in seconds (RFC 9110, section 10.2.3).

use crate::http::headers::Outcome;
use crate::http::headers::whole_seconds::whole_seconds;

/// How long a denied client has to wait, in seconds and at least 1; `None` without a denial, and when a denial is for
/// ever.
pub(crate) fn seconds(outcomes: &[Outcome<'_>]) -> Option<u64> {
    let denials = outcomes.iter().filter(|(_, decision)| !decision.allowed());
    let waits_us: Option<Vec<_>> = denials.map(|(_, decision)| decision.retry_after_us()).collect();
    let longest_us = waits_us?.into_iter().max()?;
    Some(whole_seconds(longest_us.into()).max(1))
}
