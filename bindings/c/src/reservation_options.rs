//! How a reservation with a handle is made, kept and ended.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use polylimit::reservation::ReserveOptions;

use crate::arguments::{Sized32, sized_out};
use crate::backoff::whole_us;
use crate::error::{Failure, MessageBuffer, guard_unit, polylimit_status};
use crate::request::reservation_id;

/// How a reservation is made, kept and ended. polylimit_reservation_defaults writes the defaults.
#[repr(C)]
pub struct polylimit_reservation_options {
    /// sizeof(polylimit_reservation_options), set by the caller.
    pub size: u32,
    /// 1 when polylimit_reservation_free commits what was reserved, in place of cancelling; otherwise 0.
    pub commit_at_end: u32,
    /// How long the reservation lasts after its last renewal, in microseconds: 1 ms to 48 h.
    pub ttl_us: u64,
    /// The longest wait in line, in microseconds; 0 does not wait.
    pub timeout_us: u64,
    /// How long the handle renews the reservation in the background, every third of its ttl, in microseconds; 0 never does.
    pub max_age_us: u64,
    /// The caller's own id: any bytes; NULL for a random one.
    pub id: *const c_void,
    /// The length of the id in bytes: 1 to POLYLIMIT_RESERVATION_ID_SIZE.
    pub id_length: usize,
    /// The plan of the key, as in polylimit_request; may be NULL. Ends with a NUL.
    pub plan: *const c_char,
    /// The headroom in percent, as in polylimit_request: 0 to 99.
    pub headroom: u32,
    /// Always 0.
    pub reserved: u32,
    /// How long after its commit the id is remembered, in microseconds: 1 ms to 48 h, or 0 not to remember it. Meanwhile nothing more is
    /// charged for the id: a repeated commit is reported as `repeated`, and a reserve asks for a slot only. A key remembers its 1,000
    /// latest commits.
    pub remember_us: u64,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_reservation_options {
    const NAME: &'static str = "options";
    const MIN_SIZE: u32 = 72;
}

impl polylimit_reservation_options {
    /// # Safety
    /// `id` is NULL or points at `id_length` bytes.
    pub(crate) unsafe fn get(&self) -> Result<ReserveOptions, Failure> {
        let commits = match self.commit_at_end {
            0 => false,
            1 => true,
            other => {
                return Err(Failure::invalid(format!("commit_at_end is {other}: allowed are 0 and 1")));
            }
        };
        let options = ReserveOptions::default()
            .ttl(Duration::from_micros(self.ttl_us))
            .timeout(Duration::from_micros(self.timeout_us))
            .max_age(Duration::from_micros(self.max_age_us))
            .commit_at_end(commits)
            .remember(Duration::from_micros(self.remember_us));
        if self.id.is_null() {
            return Ok(options);
        }
        // SAFETY: the caller guarantees it.
        Ok(options.id(unsafe { reservation_id(self.id, self.id_length) }?))
    }
}

/// Writes the defaults into every field except `size`, which the caller sets: a random id, 30 s, no waiting, renewed for at most an
/// hour, cancelled when the handle is freed, a commit that is not remembered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_defaults(
    options_out: *mut polylimit_reservation_options,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees an out-parameter of the size that it says.
        let options = unsafe { sized_out(options_out)? };
        options.commit_at_end = 0;
        options.ttl_us = whole_us(ReserveOptions::DEFAULT_TTL);
        options.timeout_us = 0;
        options.max_age_us = whole_us(ReserveOptions::DEFAULT_MAX_AGE);
        options.id = std::ptr::null();
        options.id_length = 0;
        options.plan = std::ptr::null();
        options.headroom = 0;
        options.reserved = 0;
        options.remember_us = 0;
        Ok(())
    })
}
