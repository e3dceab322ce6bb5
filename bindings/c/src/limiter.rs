//! A limiter: opened, changed, closed.

use std::ffi::c_char;
use std::time::Duration;

use polylimit::{Limiter, Policy, blocking};

use crate::clock::polylimit_clock;
use crate::failure::{MessageBuffer, guard_done, guard_quietly};
use crate::options::{self, polylimit_option};
use crate::pointer::{array, handle, place};
use crate::status::polylimit_status;
use crate::text::{TextBuffer, optional_text, text};

/// Decides whether requests may proceed. Any thread may use it at any time, until it is freed; so may a child that was
/// forked, which then makes connections of its own.
pub struct polylimit_limiter {
    pub(crate) limiter: blocking::Limiter,
}

/// Opens a limiter on a store: "memory:", "local:<name>", "file:///path" or a URL of Redis such as
/// "redis://localhost?deadline=20ms". Connects to nothing: a store that cannot be reached may be found later.
///
/// `options` are `option_count` settings; see polylimit_option. `clock` is NULL, or a clock for tests by which it decides
/// wherever the states are. The limiter is freed by polylimit_limiter_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_open(
    url: *const c_char,
    options: *const polylimit_option,
    option_count: usize,
    clock: *const polylimit_clock,
    limiter_out: *mut *mut polylimit_limiter,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes texts, an array of texts, a clock or NULL, and a place.
        let (limiter_out, url, options, clock) = unsafe {
            (
                place(limiter_out, "limiter_out")?,
                text(url, "url")?,
                array(options, option_count, "options")?,
                clock.as_ref(),
            )
        };
        // SAFETY: the caller owes texts.
        let mut builder = unsafe { options::apply(Limiter::builder().store(url), options) }?;
        if let Some(clock) = clock {
            builder = builder.clock(clock.clock.clone());
        }
        let limiter = builder.build()?.blocking();
        *limiter_out = Box::into_raw(Box::new(polylimit_limiter { limiter }));
        Ok(())
    })
}

/// Gives back what is leased and closes the connections. Operations after it, and those that still wait, end with
/// POLYLIMIT_CLOSED. It may be called again, and at any time; NULL is allowed. The limiter is still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_close(limiter: *const polylimit_limiter) {
    guard_quietly((), || {
        // SAFETY: the caller owes a limiter, or NULL.
        if let Some(limiter) = unsafe { limiter.as_ref() } {
            limiter.limiter.asynchronous().close();
        }
    });
}

/// Closes a limiter and frees it: no thread may use it any more. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_free(limiter: *mut polylimit_limiter) {
    guard_quietly((), || {
        if !limiter.is_null() {
            // SAFETY: the caller owes a limiter that nobody uses any more.
            let limiter = unsafe { Box::from_raw(limiter) };
            limiter.limiter.asynchronous().close();
        }
    });
}

/// Waits until the store answers, for at most `timeout_us` microseconds; POLYLIMIT_STORE_UNAVAILABLE when it does not.
/// Nothing needs it; a service that starts may want it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_ready(
    limiter: *const polylimit_limiter,
    timeout_us: u64,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter.
        Ok(unsafe { handle(limiter, "limiter") }?.limiter.ready(Duration::from_micros(timeout_us))?)
    })
}

/// Registers a policy, or changes the quotas of the one of that name; what was used is kept by every quota whose
/// algorithm, period, step and buckets stay. `quotas` is as in polylimit_option.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_set_policy(
    limiter: *const polylimit_limiter,
    name: *const c_char,
    quotas: *const c_char,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter and texts.
        let (limiter, name, quotas) =
            unsafe { (handle(limiter, "limiter")?, text(name, "name")?, text(quotas, "quotas")?) };
        Ok(limiter.limiter.asynchronous().set_policy(Policy::parse(name, quotas)?)?)
    })
}

/// Finds the policy by which requests that name `policy` are decided, or the only one when that is NULL, and writes its
/// name (1 to 64 bytes), which requests may use from then on. Programs call it when they start, so that mistakes are found
/// before the first request.
///
/// Quotas as text become a policy of the limiter. In a `scope` (1 to 256 bytes, such as "/login"; NULL is none) they have a
/// budget of their own, in every store and process; a policy with a name is shared whatever the scope. Two texts whose names are
/// equal are the same policy.
/// The length without the NUL goes to `length_out`, which may be NULL, also when the buffer is too small for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_policy_for(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    scope: *const c_char,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter and texts, or NULL.
        let (limiter, policy, scope) = unsafe {
            (handle(limiter, "limiter")?, optional_text(policy, "policy")?, optional_text(scope, "scope")?)
        };
        let policy = limiter.limiter.asynchronous().policy_for(policy, scope)?;
        // SAFETY: the caller owes the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(policy.name()) }
    })
}

/// Writes the quotas of a policy, or of the only one when `name` is NULL, as text, in their canonical form and separated by
/// "; ", such as "10/second; 1000/hour".
/// The length without the NUL goes to `length_out`, which may be NULL, also when the buffer is too small for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_policy(
    limiter: *const polylimit_limiter,
    name: *const c_char,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter and a text, or NULL.
        let (limiter, name) = unsafe { (handle(limiter, "limiter")?, optional_text(name, "name")?) };
        let policy = limiter.limiter.asynchronous().policy_for(name, None)?;
        let quotas: Vec<_> = policy.quotas().iter().map(ToString::to_string).collect();
        // SAFETY: the caller owes the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&quotas.join("; ")) }
    })
}

/// Authenticates new connections with another password from now on, and with another user name unless that is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_set_credentials(
    limiter: *const polylimit_limiter,
    username: *const c_char,
    password: *const c_char,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter and texts.
        let (limiter, username, password) = unsafe {
            (handle(limiter, "limiter")?, optional_text(username, "username")?, text(password, "password")?)
        };
        Ok(limiter.limiter.asynchronous().set_credentials(username, password)?)
    })
}
