//! The blocking operations on reservations by their ids.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use polylimit::raw::{Call, ReservationTerms};
use polylimit::reservation::ReservationId;

use crate::arguments::out_param;
use crate::decision::{polylimit_decision, polylimit_usage};
use crate::error::{Failure, MessageBuffer, guard_unit, polylimit_status};
use crate::limiter::polylimit_limiter;
use crate::operations::{decide, spend};
use crate::request::{request, reservation_id, units_spent};

/// Writes a random id of a reservation, which no other process chooses: POLYLIMIT_RESERVATION_ID_SIZE bytes at `id` are always
/// enough, and its length goes to `id_length_out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_id_random(
    id: *mut c_void,
    id_length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a length and room for the longest id.
        unsafe { write_random_id(id, out_param(id_length_out, "id_length_out")?) }.map(drop)
    })
}

/// Decides as a check does and, when every quota admits the request, sets its cost aside until the reservation is committed or
/// cancelled by its id, or until `ttl_us` microseconds have passed: 1 ms to 48 h. Nothing is spent before the commit. It waits in
/// line as an acquire does, for at most `timeout_us`. See polylimit_limiter_check.
///
/// `id` has room for POLYLIMIT_RESERVATION_ID_SIZE bytes. If `*id_length` is 0, a random id and its length are written there, also
/// when no decision could be made; otherwise they are the caller's own id. A reserve with an id that is there is allowed and
/// changes nothing, so a caller that has received no answer repeats it with the same id. `remember_us` is how long after its commit the
/// id is remembered, as in polylimit_reservation_options. polylimit_reservation_new keeps a reservation renewed.
///
/// A leaky bucket and a leased policy cannot be reserved: POLYLIMIT_INVALID_ARGUMENT. So is a check, a take and an acquire where a
/// quota counts reservations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_reserve(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
    id: *mut c_void,
    id_length: *mut usize,
    ttl_us: u64,
    timeout_us: u64,
    remember_us: u64,
    decision_out: *mut polylimit_decision,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a length, and an id or room for one.
        let id = unsafe {
            match out_param(id_length, "id_length")? {
                0 => write_random_id(id, &mut *id_length)?,
                length => reservation_id(id, *length)?,
            }
        };
        let terms = ReservationTerms {
            id,
            ttl: Duration::from_micros(ttl_us),
            timeout: Duration::from_micros(timeout_us),
            remember: Duration::from_micros(remember_us),
        };
        let reserve = |request| Call::Reserve(request, terms);
        // SAFETY: as for polylimit_limiter_check.
        unsafe { decide(limiter, request(policy, key, key_length, cost)?, reserve, decision_out) }
    })
}

/// Ends the reservation with this id and spends `spent` units as a charge does, or what was reserved for POLYLIMIT_AS_RESERVED. If
/// the reservation is gone, nothing changes and the usage's `found` is 0: a repeated commit never charges twice. Where the reservation
/// was made to remember its commit, the usage's `repeated` says whether this is a repetition.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_commit(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    id: *const c_void,
    id_length: usize,
    spent: u64,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees an id.
        let id = unsafe { reservation_id(id, id_length) }?;
        let commit = |request| Call::Commit(request, id, units_spent(spent));
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, 0)?, commit, usage_out) }
    })
}

/// Ends the reservation with this id and spends nothing. The usage's `found` is 0 when it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_cancel(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    id: *const c_void,
    id_length: usize,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees an id.
        let id = unsafe { reservation_id(id, id_length) }?;
        // SAFETY: as for polylimit_limiter_check.
        unsafe {
            let cancel = |request| Call::Cancel(request, id);
            spend(limiter, request(policy, key, key_length, 0)?, cancel, usage_out)
        }
    })
}

/// Makes the reservation with this id end `ttl_us` microseconds from now: 1 ms to 48 h. The usage's `found` is 0 when it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_renew(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    id: *const c_void,
    id_length: usize,
    ttl_us: u64,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees an id.
        let id = unsafe { reservation_id(id, id_length) }?;
        let renew = |request| Call::Renew(request, id, Duration::from_micros(ttl_us));
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, 0)?, renew, usage_out) }
    })
}

/// Writes a random id to the caller's buffer.
///
/// # Safety
/// `place` is NULL or has room for the longest id.
unsafe fn write_random_id(place: *mut c_void, length_out: &mut usize) -> Result<ReservationId, Failure> {
    // SAFETY: the caller guarantees it; a byte is never misaligned.
    let place = std::ptr::from_mut(unsafe { out_param(place.cast::<u8>(), "id") }?);
    let id = ReservationId::random()?;
    // SAFETY: the caller guarantees room for the longest id.
    unsafe { id.as_bytes().as_ptr().copy_to_nonoverlapping(place, id.as_bytes().len()) };
    *length_out = id.as_bytes().len();
    Ok(id)
}
