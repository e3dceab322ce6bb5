//! Decisions as fields of an HTTP response.

use std::ffi::c_char;
use std::fmt::Write as _;

use polylimit::headers::{HeaderSettings, fields};
use polylimit::{Decision, Policy};

use crate::decision::polylimit_decision;
use crate::failure::{Failure, MessageBuffer, guard_done};
use crate::limiter::polylimit_limiter;
use crate::pointer::{array, handle, sized};
use crate::status::polylimit_status;
use crate::text::{TextBuffer, optional_text};

/// A policy, and what it decided about a request.
#[repr(C)]
pub struct polylimit_outcome {
    /// As in polylimit_request.
    pub policy: *const c_char,
    /// What the limiter decided.
    pub decision: *const polylimit_decision,
}

/// Writes the header fields of the response to a request, each as "name: value\r\n" with the name in lower case and a value of
/// printable ASCII.
///
/// `outcomes` are the `outcome_count` policies that were applied to the request, with their decisions. `style` says which
/// fields are sent: "ietf" (ratelimit-policy, ratelimit), "legacy" (x-ratelimit-limit, -remaining, -reset), "both" or
/// "none"; retry-after is sent in any style. `reset_form` says how x-ratelimit-reset tells a time: in "seconds" from now, or
/// as an "epoch" time, for which `now_us` is the time in microseconds since the Unix epoch. NULL is the default of either.
/// The length without the NUL goes to `length_out`, which may be NULL, also when the buffer is too small for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_headers_render(
    limiter: *const polylimit_limiter,
    outcomes: *const polylimit_outcome,
    outcome_count: usize,
    style: *const c_char,
    reset_form: *const c_char,
    now_us: u64,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter, outcomes, and texts or NULL.
        let (outcomes, style, reset_form) = unsafe {
            (
                read_outcomes(limiter, outcomes, outcome_count)?,
                optional_text(style, "style")?,
                optional_text(reset_form, "reset_form")?,
            )
        };
        let mut settings = HeaderSettings::default();
        if let Some(style) = style {
            settings = settings.style(style.parse()?);
        }
        if let Some(form) = reset_form {
            settings = settings.reset_form(form.parse()?);
        }
        let mut text = String::new();
        for field in fields(&borrowed(&outcomes), settings, now_us) {
            // Writing to a String does not fail.
            let _ = write!(text, "{}: {}\r\n", field.name, field.value);
        }
        // SAFETY: the caller owes the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&text) }
    })
}

/// Policies with what they decided, as the core has them.
///
/// # Safety
/// `limiter` is NULL or a limiter, `outcomes` NULL or an array of so many outcomes.
pub(crate) unsafe fn read_outcomes(
    limiter: *const polylimit_limiter,
    outcomes: *const polylimit_outcome,
    count: usize,
) -> Result<Vec<(Policy, Decision)>, Failure> {
    // SAFETY: as promised by the caller.
    let (limiter, outcomes) = unsafe { (handle(limiter, "limiter")?, array(outcomes, count, "outcomes")?) };
    let read = outcomes.iter().map(|outcome| {
        // SAFETY: as promised by the caller.
        let (policy, decision) =
            unsafe { (optional_text(outcome.policy, "policy")?, sized(outcome.decision)?) };
        Ok((limiter.limiter.asynchronous().policy_for(policy, None)?, decision.get()?))
    });
    read.collect()
}

pub(crate) fn borrowed(outcomes: &[(Policy, Decision)]) -> Vec<(&Policy, &Decision)> {
    outcomes.iter().map(|(policy, decision)| (policy, decision)).collect()
}
