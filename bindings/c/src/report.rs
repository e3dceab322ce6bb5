//! What an operator wants to know: findings and counters.

use std::ffi::{CString, c_char};
use std::fmt::Write as _;
use std::sync::LazyLock;

use polylimit::Stats;

use crate::failure::{MessageBuffer, guard_done};
use crate::limiter::polylimit_limiter;
use crate::pointer::{handle, place};
use crate::status::polylimit_status;
use crate::text::TextBuffer;

/// One counter of a limiter.
#[repr(C)]
pub struct polylimit_stat {
    /// What is counted. Not to be freed.
    pub name: *const c_char,
    /// How many there were since the limiter was opened.
    pub value: u64,
}

/// Looks at the store with the eyes of an operator, and writes each finding as a line "severity: subject: message\n"; the
/// severity is fine, advice or problem. It makes a decision on a key of its own and forgets it. Stores without a server
/// have no findings. The length without the NUL goes to `length_out`, which may be NULL, also when the buffer is too small
/// for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_doctor(
    limiter: *const polylimit_limiter,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter.
        let findings = unsafe { handle(limiter, "limiter") }?.limiter.doctor()?;
        let mut text = String::new();
        for finding in findings {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{finding}");
        }
        // SAFETY: the caller owes the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&text) }
    })
}

/// Writes up to `capacity` counters to `stats_out`, and to `count_out` how many there are altogether. Their order and names
/// stay the same while a program runs; `stats_out` may be NULL when `capacity` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_stats(
    limiter: *const polylimit_limiter,
    stats_out: *mut polylimit_stat,
    capacity: usize,
    count_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter and a place.
        let (limiter, count_out) = unsafe { (handle(limiter, "limiter")?, place(count_out, "count_out")?) };
        let stats = limiter.limiter.asynchronous().stats();
        let mut count = 0;
        for (at, ((_, value), name)) in stats.iter().zip(&*NAMES).enumerate() {
            if at < capacity {
                // SAFETY: the caller owes an array of `capacity` elements.
                *unsafe { place(stats_out.wrapping_add(at), "stats_out") }? =
                    polylimit_stat { name: name.as_ptr(), value };
            }
            count += 1;
        }
        *count_out = count;
        Ok(())
    })
}

/// The names of the counters, in their order. None has a NUL in it.
static NAMES: LazyLock<Vec<CString>> = LazyLock::new(|| {
    Stats::default().iter().map(|(name, _)| CString::new(name).unwrap_or_default()).collect()
});
