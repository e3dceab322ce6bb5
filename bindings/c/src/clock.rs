//! The manual clock for tests.

use std::ffi::c_char;
use std::time::Duration;

use polylimit::clock::ManualClock;

use crate::arguments::{handle, out_param};
use crate::error::{MessageBuffer, guard_or, guard_unit, polylimit_status};

/// A clock for tests. It stands still until it is set or advanced, and may go back. Any thread may use it at any time.
pub struct polylimit_clock {
    pub(crate) clock: ManualClock,
}

/// Creates a clock that shows `now_us` microseconds since the Unix epoch, at most 2^53 - 1. Freed by polylimit_clock_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_clock_new(
    now_us: u64,
    clock_out: *mut *mut polylimit_clock,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees the out-parameter.
        let clock_out = unsafe { out_param(clock_out, "clock_out") }?;
        *clock_out = Box::into_raw(Box::new(polylimit_clock { clock: ManualClock::new(now_us)? }));
        Ok(())
    })
}

/// The time that a clock shows, in microseconds since the Unix epoch; 0 when it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_clock_now_us(clock: *const polylimit_clock) -> u64 {
    // SAFETY: the caller guarantees a clock, or NULL.
    guard_or(0, || unsafe { clock.as_ref() }.map_or(0, |clock| clock.clock.now_us()))
}

/// Sets the time, in microseconds since the Unix epoch, at most 2^53 - 1; it may go back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_clock_set(
    clock: *const polylimit_clock,
    now_us: u64,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a clock.
        Ok(unsafe { handle(clock, "clock") }?.clock.set(now_us)?)
    })
}

/// Moves the time forward by `by_us` microseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_clock_advance(
    clock: *const polylimit_clock,
    by_us: u64,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a clock.
        Ok(unsafe { handle(clock, "clock") }?.clock.advance(Duration::from_micros(by_us))?)
    })
}

/// Frees a clock. Limiters that were opened with it keep its time. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_clock_free(clock: *mut polylimit_clock) {
    guard_or((), || {
        if !clock.is_null() {
            // SAFETY: the caller guarantees a clock that no thread uses any more.
            drop(unsafe { Box::from_raw(clock) });
        }
    });
}
