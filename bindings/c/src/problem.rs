//! What to answer to a denied request.

use std::ffi::c_char;

use polylimit::headers::{prefers_text, problem};

use crate::failure::{MessageBuffer, guard_done, guard_quietly};
use crate::headers::{borrowed, polylimit_outcome, read_outcomes};
use crate::limiter::polylimit_limiter;
use crate::pointer::place;
use crate::status::polylimit_status;
use crate::text::{TextBuffer, foreign_text};

/// Writes the body of the response to a denied request: a problem document (RFC 9457, application/problem+json) when `json`
/// is not 0, otherwise a line of text (text/plain; charset=utf-8).
///
/// The HTTP status goes to `http_status_out`: 429 (Too Many Requests), 503 (Service Unavailable) when the denial comes from
/// an outage of the store, and 0 when nothing was denied; then the text is empty. `outcomes` are as in
/// polylimit_headers_render, and `cost` is the number of units that the request asked for. The length without the NUL goes
/// to `length_out`, which may be NULL, also when the buffer is too small for it.
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
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter, outcomes and a place.
        let (outcomes, http_status_out) = unsafe {
            (read_outcomes(limiter, outcomes, outcome_count)?, place(http_status_out, "http_status_out")?)
        };
        let problem = problem(&borrowed(&outcomes), cost);
        let body = problem.as_ref().map(|problem| if json == 0 { problem.text() } else { problem.json() });
        // SAFETY: the caller owes the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&body.unwrap_or_default()) }?;
        *http_status_out = problem.as_ref().map_or(0, |problem| problem.status().into());
        Ok(())
    })
}

/// The `json` of polylimit_problem_render for a client that sent this `Accept` field: 0 when it prefers text (RFC 9110, section
/// 12.5.1), otherwise 1; 1 also for NULL, which is no such field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_problem_json_for(accept: *const c_char) -> u32 {
    guard_quietly(1, || {
        // SAFETY: the caller owes a text, or NULL.
        unsafe { foreign_text(accept, "accept") }.map_or(1, |accept| u32::from(!prefers_text(&accept)))
    })
}

/// The content type of what polylimit_problem_render writes, for the same `json`. Never NULL; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_problem_content_type(json: u32) -> *const c_char {
    if json == 0 { TEXT_TYPE.as_ptr() } else { JSON_TYPE.as_ptr() }
}

const JSON_TYPE: &std::ffi::CStr = c"application/problem+json";
const TEXT_TYPE: &std::ffi::CStr = c"text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use polylimit::headers::Problem;

    use super::*;

    #[test]
    fn content_types_are_the_core_s() {
        assert_eq!(JSON_TYPE.to_str(), Ok(Problem::JSON_TYPE));
        assert_eq!(TEXT_TYPE.to_str(), Ok(Problem::TEXT_TYPE));
    }
}
