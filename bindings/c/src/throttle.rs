//! HTTP clients that stay within a limit of their own and wait as servers demand.

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use polylimit::http::Backoff;
use polylimit::http::client::{Attempts, Step, Throttle};

use crate::arguments::{TextBuffer, bytes, handle, out_param, sized, text};
use crate::attributes::polylimit_pair;
use crate::backoff::{polylimit_backoff, read_fields, whole_us};
use crate::decision::{POLYLIMIT_NEVER, polylimit_decision};
use crate::error::{Failure, MessageBuffer, guard_or, guard_unit, polylimit_status};

/// A step: wait, then ask again.
pub const POLYLIMIT_STEP_WAIT: u32 = 1;
/// A step: acquire from the limiter, and call polylimit_attempts_acquired.
pub const POLYLIMIT_STEP_ACQUIRE: u32 = 2;
/// A step: send the request, and call polylimit_attempts_responded.
pub const POLYLIMIT_STEP_SEND: u32 = 3;
/// A step: do not send the request; polylimit_attempts_refusal says why.
pub const POLYLIMIT_STEP_REFUSE: u32 = 4;

/// The backoff of an HTTP client, and the pauses that servers have asked it for. Any thread may use it at any time.
pub struct polylimit_throttle {
    throttle: Throttle,
}

/// The attempts of one request. Any thread may use them, one at a time.
pub struct polylimit_attempts {
    attempts: Mutex<Attempts>,
}

impl polylimit_attempts {
    fn with<R>(&self, work: impl FnOnce(&mut Attempts) -> R) -> R {
        work(&mut self.attempts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Creates a throttle, which all requests of a client share. `backoff` may be NULL for the defaults; its `max_wait_us` bounds all
/// waits of a request together. Freed by polylimit_throttle_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_throttle_new(
    backoff: *const polylimit_backoff,
    throttle_out: *mut *mut polylimit_throttle,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a backoff or NULL, and an out-parameter.
        let throttle_out = unsafe { out_param(throttle_out, "throttle_out")? };
        // SAFETY: as above.
        let backoff =
            if backoff.is_null() { Backoff::default() } else { unsafe { sized(backoff)? }.core()? };
        *throttle_out = Box::into_raw(Box::new(polylimit_throttle { throttle: Throttle::new(backoff) }));
        Ok(())
    })
}

/// Frees a throttle; the attempts of its requests stay usable. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_throttle_free(throttle: *mut polylimit_throttle) {
    guard_or((), || {
        if !throttle.is_null() {
            // SAFETY: the caller guarantees a throttle that no thread uses any more.
            drop(unsafe { Box::from_raw(throttle) });
        }
    });
}

/// Starts a request. Requests with the same key share pauses. `method` is the HTTP method in upper case, `replayable` is 1 if the
/// body can be sent again. All waits end `timeout_us` from now, or after `max_wait_us` of the backoff if that is shorter;
/// POLYLIMIT_NEVER is no timeout. Freed by polylimit_attempts_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_attempts_new(
    throttle: *const polylimit_throttle,
    key: *const c_char,
    key_length: usize,
    method: *const c_char,
    replayable: u32,
    timeout_us: u64,
    attempts_out: *mut *mut polylimit_attempts,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a throttle, the bytes of a key, a text and an out-parameter.
        let (throttle, key, method, attempts_out) = unsafe {
            (
                handle(throttle, "throttle")?,
                bytes(key.cast(), key_length, "key")?,
                text(method, "method")?,
                out_param(attempts_out, "attempts_out")?,
            )
        };
        let timeout = (timeout_us != POLYLIMIT_NEVER).then(|| Duration::from_micros(timeout_us));
        let attempts = throttle.throttle.start(key, method, replayable != 0, timeout)?;
        *attempts_out = Box::into_raw(Box::new(polylimit_attempts { attempts: Mutex::new(attempts) }));
        Ok(())
    })
}

/// Writes what to do next, one of POLYLIMIT_STEP_WAIT and the other steps, and the microseconds to wait or the timeout of the
/// acquire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_attempts_step(
    attempts: *const polylimit_attempts,
    step_out: *mut u32,
    us_out: *mut u64,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees attempts and out-parameters.
        let (attempts, step_out, us_out) = unsafe {
            (handle(attempts, "attempts")?, out_param(step_out, "step_out")?, out_param(us_out, "us_out")?)
        };
        (*step_out, *us_out) = match attempts.with(Attempts::step) {
            Step::Wait(wait) => (POLYLIMIT_STEP_WAIT, whole_us(wait)),
            Step::Acquire(timeout) => (POLYLIMIT_STEP_ACQUIRE, whole_us(timeout)),
            Step::Send => (POLYLIMIT_STEP_SEND, 0),
            Step::Refuse(_) => (POLYLIMIT_STEP_REFUSE, 0),
        };
        Ok(())
    })
}

/// Reports the decision of the limiter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_attempts_acquired(
    attempts: *const polylimit_attempts,
    decision: *const polylimit_decision,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees attempts and a decision.
        let (attempts, decision) = unsafe { (handle(attempts, "attempts")?, sized(decision)?) };
        let retry_after_us = decision.retry_after_us;
        let retry_after = (retry_after_us != POLYLIMIT_NEVER).then(|| Duration::from_micros(retry_after_us));
        attempts.with(|attempts| attempts.acquired(decision.allowed != 0, retry_after));
        Ok(())
    })
}

/// Reports a response. Writes 1 if the client discards it and asks for the next step, and 0 if it is the caller's.
///
/// `fields` are the `field_count` header fields of the response, a pair for each line, of which polylimit_server_wait has those
/// that are read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_attempts_responded(
    attempts: *const polylimit_attempts,
    status: u32,
    fields: *const polylimit_pair,
    field_count: usize,
    again_out: *mut u32,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees attempts, fields and an out-parameter.
        let (attempts, fields, again_out) = unsafe {
            (
                handle(attempts, "attempts")?,
                read_fields(fields, field_count)?,
                out_param(again_out, "again_out")?,
            )
        };
        let status = u16::try_from(status).map_err(|_| {
            Failure::invalid(format!("status is {status}: allowed is the status of an HTTP response"))
        })?;
        *again_out = attempts.with(|attempts| attempts.responded(status, fields)).into();
        Ok(())
    })
}

/// Writes why a request is refused as a sentence, and after how many microseconds it would be sent; POLYLIMIT_NEVER if the limiter
/// never admits it. The text is empty if the request is not refused. 512 bytes are always enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_attempts_refusal(
    attempts: *const polylimit_attempts,
    retry_after_us_out: *mut u64,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees attempts and an out-parameter.
        let (attempts, retry_after_us_out) =
            unsafe { (handle(attempts, "attempts")?, out_param(retry_after_us_out, "retry_after_us_out")?) };
        let (message, retry_after) = match attempts.with(Attempts::step) {
            Step::Refuse(refusal) => (refusal.message().to_owned(), refusal.retry_after()),
            _ => (String::new(), None),
        };
        *retry_after_us_out = retry_after.map_or(POLYLIMIT_NEVER, whole_us);
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&message) }
    })
}

/// Frees the attempts of a request. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_attempts_free(attempts: *mut polylimit_attempts) {
    guard_or((), || {
        if !attempts.is_null() {
            // SAFETY: the caller guarantees attempts that no thread uses any more.
            drop(unsafe { Box::from_raw(attempts) });
        }
    });
}
