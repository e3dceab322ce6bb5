//! For clients of limited services: the wait that a response asks for, and when to retry.

use std::ffi::c_char;
use std::time::Duration;

use polylimit::http::{Backoff, server_wait};

use crate::arguments::{Sized32, array, bytes, out_param, sized, sized_out};
use crate::attributes::polylimit_pair;
use crate::decision::POLYLIMIT_NEVER;
use crate::error::{Failure, MessageBuffer, guard_unit, polylimit_status};

/// When the client of a limited service tries again, and when it gives up: exponential backoff with full jitter. The wait before
/// retry n, counted from 0, is random from 0 to the smaller of cap_us and base_us * 2^n. A wait that the server asks for is
/// added to it. polylimit_backoff_defaults writes the defaults.
#[repr(C)]
pub struct polylimit_backoff {
    /// sizeof(polylimit_backoff), set by the caller.
    pub size: u32,
    /// The number of retries that may follow the first try; 0 for none.
    pub max_retries: u32,
    /// The longest wait before the first retry in microseconds: 1000 to cap_us.
    pub base_us: u64,
    /// Where the doubling ends: base_us to a day.
    pub cap_us: u64,
    /// The longest wait that a server may ask for: 0 to 366 days.
    pub max_wait_us: u64,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_backoff {
    const NAME: &'static str = "backoff";
    const MIN_SIZE: u32 = 32;
}

impl polylimit_backoff {
    pub(crate) fn core(&self) -> Result<Backoff, Failure> {
        let builder = Backoff::builder()
            .base(Duration::from_micros(self.base_us))
            .cap(Duration::from_micros(self.cap_us))
            .max_wait(Duration::from_micros(self.max_wait_us))
            .max_retries(self.max_retries);
        Ok(builder.build()?)
    }
}

pub(crate) fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Writes the defaults into every field except `size`, which the caller sets: 100 ms, 20 s, 5 minutes, 5 retries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_backoff_defaults(
    backoff_out: *mut polylimit_backoff,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees an out-parameter of the size that it says.
        let backoff = unsafe { sized_out(backoff_out)? };
        let defaults = Backoff::default();
        backoff.max_retries = defaults.max_retries();
        backoff.base_us = whole_us(defaults.base());
        backoff.cap_us = whole_us(defaults.cap());
        backoff.max_wait_us = whole_us(defaults.max_wait());
        Ok(())
    })
}

/// Writes how many microseconds to wait before the next try, or POLYLIMIT_NEVER to give up: once `max_retries` retries were made,
/// and when the server asks for more than `max_wait_us`.
///
/// `retry` is the number of retries that were made before, 0 after the first failure. `server_wait_us` is what
/// polylimit_server_wait wrote for the last response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_backoff_wait(
    backoff: *const polylimit_backoff,
    retry: u32,
    server_wait_us: u64,
    wait_us_out: *mut u64,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a backoff and an out-parameter.
        let (backoff, wait_us_out) = unsafe { (sized(backoff)?, out_param(wait_us_out, "wait_us_out")?) };
        let told = (server_wait_us != POLYLIMIT_NEVER).then(|| Duration::from_micros(server_wait_us));
        *wait_us_out = backoff.core()?.wait(retry, told).map_or(POLYLIMIT_NEVER, whole_us);
        Ok(())
    })
}

/// Writes how many microseconds a response asks its client to wait, counted from `now_us`, or POLYLIMIT_NEVER if it does not say.
///
/// `fields` are the `field_count` header fields of the response, a pair for each line, with names in any letter case. Those that
/// are read, in their order: Retry-After-Ms, Retry-After, whose date is compared with that of Date, and the policies of RateLimit
/// that have nothing left, of which the longest time counts. A malformed field is ignored, and a wait above 285 years is cut to
/// that. `now_us` is the time in microseconds since the Unix epoch; only a date is compared with it, if the response has no Date.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_server_wait(
    fields: *const polylimit_pair,
    field_count: usize,
    now_us: u64,
    wait_us_out: *mut u64,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees fields and an out-parameter.
        let (fields, wait_us_out) =
            unsafe { (read_fields(fields, field_count)?, out_param(wait_us_out, "wait_us_out")?) };
        *wait_us_out = server_wait(fields, now_us).map_or(POLYLIMIT_NEVER, whole_us);
        Ok(())
    })
}

/// A header field: its name and its value.
type Field<'a> = (&'a [u8], &'a [u8]);

/// # Safety
/// The pointer is NULL or points at `count` pairs, whose bytes stay as they are.
pub(crate) unsafe fn read_fields<'a>(
    fields: *const polylimit_pair,
    count: usize,
) -> Result<Vec<Field<'a>>, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe {
        let fields = array(fields, count, "fields")?.iter();
        fields
            .map(|field| {
                let name = bytes(field.name.start.cast(), field.name.length, "the name of a field")?;
                let value = bytes(field.value.start.cast(), field.value.length, "the value of a field")?;
                Ok((name, value))
            })
            .collect()
    }
}
