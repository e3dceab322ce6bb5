//! The response to a request that a guard has decided about, and the decisions.

use std::ffi::CStr;
use std::ffi::c_char;

use crate::arguments::TextBuffer;
use crate::arguments::handle;
use crate::arguments::out_param;
use crate::arguments::sized_out;
use crate::decision::polylimit_decision;
use crate::error::Failure;
use crate::error::MessageBuffer;
use crate::error::guard_or;
use crate::error::guard_unit;
use crate::error::polylimit_status;
use crate::guard_check::polylimit_guard_check;
use crate::headers::lines;

/// Writes the fields of the response for all guards of the request so far, each as "name: value\r\n" with the name in lower case and
/// a value of printable ASCII. They replace those that an earlier guard wrote. The length without the NUL is written to
/// `length_out`, which may be NULL, even if the buffer is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_fields(
    check: *const polylimit_guard_check,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check.
        let fields = unsafe { handle(check, "check") }?.lock().check.fields();
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&lines(&fields, "")) }
    })
}

/// Writes the default response to a request that does not proceed: the fields of its body, each as "name: value\r\n", an empty line
/// "\r\n", and the body. Its status is written to `http_status_out`. polylimit_guard_check_fields has its other fields.
///
/// `accept` is the `accept` field of the request, or NULL: a client that prefers text gets text, any other one a problem
/// document (RFC 9457), and for "application/grpc" the fields have the status of a call, too: "grpc-status", "grpc-message" and
/// "grpc-status-details-bin". The length without the NUL is written to `length_out`, which may be NULL, even if the buffer is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_response(
    check: *const polylimit_guard_check,
    accept: *const c_char,
    http_status_out: *mut u32,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check and an out-parameter.
        let (check, http_status_out) =
            unsafe { (handle(check, "check")?, out_param(http_status_out, "http_status_out")?) };
        // SAFETY: the caller guarantees a text, or NULL.
        let accept = (!accept.is_null()).then(|| unsafe { CStr::from_ptr(accept) }.to_string_lossy());
        let state = check.lock();
        let Some(problem) = &state.problem else {
            return Err(Failure::invalid("the check has not denied its request: there is no response to it"));
        };
        let response = problem.response(accept.as_deref());
        let text = lines(&response.fields, "\r\n") + &response.body;
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&text) }?;
        *http_status_out = response.status.into();
        Ok(())
    })
}

/// The number of policies with a decision: those of this guard in their order or, when `of_request` is not 0, those of all guards of
/// the request so far. 0 when `check` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_outcomes(
    check: *const polylimit_guard_check,
    of_request: u32,
) -> usize {
    guard_or(0, || {
        // SAFETY: the caller guarantees a check, or NULL.
        unsafe { check.as_ref() }.map_or(0, |check| check.lock().outcomes(of_request).len())
    })
}

/// Writes one of those decisions, and the name of its policy (1 to 64 bytes); `at` counts from 0. After a refund a decision of the
/// request shows what is left. The length of the name without the NUL is written to `length_out`, which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_outcome(
    check: *const polylimit_guard_check,
    of_request: u32,
    at: usize,
    decision_out: *mut polylimit_decision,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check and a decision.
        let (check, decision_out) = unsafe { (handle(check, "check")?, sized_out(decision_out)?) };
        let outcomes = check.lock().outcomes(of_request);
        let Some((policy, decision)) = outcomes.get(at) else {
            return Err(Failure::invalid(format!("there is no outcome {at}: there are {}", outcomes.len())));
        };
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(policy.name()) }?;
        decision_out.set(decision);
        Ok(())
    })
}
