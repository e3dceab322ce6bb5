//! The HTTP side of decisions: header fields of a response, and the response to a denied request.

use std::ffi::c_char;

use polylimit::http::headers::{HeaderField, HeaderSettings, fields, prefers_text, problem};
use polylimit::{Decision, Policy};

use crate::arguments::{TextBuffer, array, foreign_text, handle, optional_text, out_param, sized};
use crate::decision::polylimit_decision;
use crate::error::{Failure, MessageBuffer, guard_or, guard_unit, polylimit_status};
use crate::limiter::polylimit_limiter;

/// The decision of a policy about a request.
#[repr(C)]
pub struct polylimit_outcome {
    /// As in polylimit_request.
    pub policy: *const c_char,
    /// The decision, as the limiter returned it.
    pub decision: *const polylimit_decision,
}

/// Writes the header fields of the response to a request, each as "name: value\r\n" with the name in lower case and a value of
/// printable ASCII.
///
/// `outcomes` are the `outcome_count` decisions about the request. `headers` are words, separated by spaces, in any order; NULL and what
/// they do not mention are the defaults, "ietf seconds":
///
/// - which fields are sent: "ietf" (ratelimit-policy, ratelimit), "legacy" (x-ratelimit-limit, -remaining, -reset), "both" or "none";
///   retry-after is sent in any case;
/// - the form of x-ratelimit-reset: "seconds" from now, or the time since the "epoch", for which `now_us` is the current time in
///   microseconds since the Unix epoch;
/// - another name for a field, such as "x-ratelimit-limit=x-limit"; an empty one turns the field off.
///
/// The length without the NUL is written to `length_out`, which may be NULL, even if the buffer is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_headers_render(
    limiter: *const polylimit_limiter,
    outcomes: *const polylimit_outcome,
    outcome_count: usize,
    headers: *const c_char,
    now_us: u64,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter, outcomes, and a text or NULL.
        let (outcomes, headers) =
            unsafe { (read_outcomes(limiter, outcomes, outcome_count)?, optional_text(headers, "headers")?) };
        let settings: HeaderSettings = headers.unwrap_or_default().parse()?;
        let text = lines(&fields(&borrowed(&outcomes), &settings, now_us), "");
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&text) }
    })
}

/// Fields as lines of a response, with this text after them.
pub(crate) fn lines(fields: &[HeaderField], end: &str) -> String {
    let mut text = String::with_capacity(160);
    for field in fields {
        for part in [&field.name, ": ", &field.value, "\r\n"] {
            text.push_str(part);
        }
    }
    text.push_str(end);
    text
}

/// Reads outcomes as policies and decisions of the core.
///
/// # Safety
/// `limiter` is NULL or a limiter, `outcomes` NULL or an array of `count` outcomes.
pub(crate) unsafe fn read_outcomes(
    limiter: *const polylimit_limiter,
    outcomes: *const polylimit_outcome,
    count: usize,
) -> Result<Vec<(Policy, Decision)>, Failure> {
    // SAFETY: the caller guarantees it.
    let (limiter, outcomes) = unsafe { (handle(limiter, "limiter")?, array(outcomes, count, "outcomes")?) };
    let read = outcomes.iter().map(|outcome| {
        // SAFETY: the caller guarantees it.
        let (policy, decision) =
            unsafe { (optional_text(outcome.policy, "policy")?, sized(outcome.decision)?) };
        Ok((limiter.limiter.asynchronous().raw().policy_in_request(policy)?, decision.get()?))
    });
    read.collect()
}

pub(crate) fn borrowed(outcomes: &[(Policy, Decision)]) -> Vec<(&Policy, &Decision)> {
    outcomes.iter().map(|(policy, decision)| (policy, decision)).collect()
}

/// Writes the body of the response to a denied request: a problem document (RFC 9457, application/problem+json) when `json`
/// is not 0, otherwise a line of text (text/plain; charset=utf-8).
///
/// The HTTP status is written to `http_status_out`: 429 (Too Many Requests), 503 (Service Unavailable) when the denial is due to
/// an outage of the store, or 0 when no outcome is a denial; then the text is empty. `outcomes` are as in
/// polylimit_headers_render, and `cost` is the cost of the request. The length without the NUL is written to `length_out`,
/// which may be NULL, even if the buffer is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_problem_render(
    limiter: *const polylimit_limiter,
    outcomes: *const polylimit_outcome,
    outcome_count: usize,
    cost: u64,
    json: u32,
    http_status_out: *mut u32,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter, outcomes and an out-parameter.
        let (outcomes, http_status_out) = unsafe {
            (read_outcomes(limiter, outcomes, outcome_count)?, out_param(http_status_out, "http_status_out")?)
        };
        let problem = problem(&borrowed(&outcomes), cost);
        let body = problem.as_ref().map(|problem| if json == 0 { problem.text() } else { problem.json() });
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&body.unwrap_or_default()) }?;
        *http_status_out = problem.as_ref().map_or(0, |problem| problem.status().into());
        Ok(())
    })
}

/// The `json` of polylimit_problem_render for a client that sent this `Accept` field: 0 when it prefers text (RFC 9110, section
/// 12.5.1), otherwise 1. NULL means that there is no such field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_problem_json_for(accept: *const c_char) -> u32 {
    guard_or(1, || {
        // SAFETY: the caller guarantees a text, or NULL.
        unsafe { foreign_text(accept, "accept") }.map_or(1, |accept| u32::from(!prefers_text(&accept)))
    })
}

/// The content type of the body that polylimit_problem_render writes, for the same `json`. Never NULL; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_problem_content_type(json: u32) -> *const c_char {
    if json == 0 { TEXT_TYPE.as_ptr() } else { JSON_TYPE.as_ptr() }
}

const JSON_TYPE: &std::ffi::CStr = c"application/problem+json";
const TEXT_TYPE: &std::ffi::CStr = c"text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use polylimit::http::headers::Problem;

    use super::*;

    #[test]
    fn content_types_are_those_of_the_core() {
        assert_eq!(JSON_TYPE.to_str(), Ok(Problem::JSON_TYPE));
        assert_eq!(TEXT_TYPE.to_str(), Ok(Problem::TEXT_TYPE));
    }
}
