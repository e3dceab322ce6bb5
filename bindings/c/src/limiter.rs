//! A limiter: opening, closing, and its policies.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use polylimit::{Limiter, LimiterBuilder, Policy, blocking};

use crate::arguments::{TextBuffer, array, handle, optional_text, out_param, text};
use crate::clock::polylimit_clock;
use crate::credentials::{CredentialsFunction, polylimit_give_credentials, polylimit_release_context};
use crate::error::{Failure, MessageBuffer, guard_or, guard_unit, polylimit_status};
use crate::options::{self, polylimit_option};

/// Decides whether requests may proceed. Any thread may use it at any time until it is freed. So may a forked child, which
/// makes its own connections.
pub struct polylimit_limiter {
    pub(crate) limiter: blocking::Limiter,
}

/// Opens a limiter on a store: "memory:", "local:<name>", "file:///path" or a URL of Redis such as
/// "redis://localhost?deadline=20ms". Opening does not connect: a store that cannot be reached is not an error here.
///
/// `options` are `option_count` settings; see polylimit_option. `clock` is NULL, or a clock for tests that replaces the clock of
/// any store. The limiter is freed by polylimit_limiter_free.
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees texts, an array of texts, a clock or NULL, and an out-parameter.
        unsafe { open(url, options, option_count, clock, limiter_out, Ok) }
    })
}

/// As polylimit_limiter_open, with a function that gives user and password for each new connection to Redis, in place of those in the
/// URL and the options: for passwords that expire, such as the tokens of a cloud.
///
/// `give_credentials` is called with `context` on a thread of its own, on one at a time, for each new connection, and again when the
/// server refuses what it gave. After a refusal or a failure it is not called for 0.25 to 10 seconds, growing with each time in a
/// row. It may block: decisions have their deadline meanwhile. It must not throw or jump out. It gives its result by
/// polylimit_credentials_set or polylimit_credentials_fail before it returns. polylimit_admin_set_credentials replaces it.
///
/// `release_context` is NULL, or is called once with `context` when the library will not use it any more, on any thread; also when
/// this function fails. That may be after polylimit_limiter_free has returned, because a call of `give_credentials` is not waited
/// for. A forked child calls both in its own memory. Stores without a server do not call `give_credentials`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_open_with_credentials(
    url: *const c_char,
    options: *const polylimit_option,
    option_count: usize,
    clock: *const polylimit_clock,
    give_credentials: polylimit_give_credentials,
    context: *mut c_void,
    release_context: polylimit_release_context,
    limiter_out: *mut *mut polylimit_limiter,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees functions that may be called with the context.
        let function = unsafe { CredentialsFunction::new(give_credentials, context, release_context) };
        // SAFETY: the caller guarantees texts, an array of texts, a clock or NULL, and an out-parameter.
        unsafe { open(url, options, option_count, clock, limiter_out, |builder| function.give_to(builder)) }
    })
}

/// # Safety
/// Texts, an array of texts, a clock or NULL, and an out-parameter.
unsafe fn open(
    url: *const c_char,
    options: *const polylimit_option,
    option_count: usize,
    clock: *const polylimit_clock,
    limiter_out: *mut *mut polylimit_limiter,
    finish: impl FnOnce(LimiterBuilder) -> Result<LimiterBuilder, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees it.
    let (limiter_out, url, options, clock) = unsafe {
        (
            out_param(limiter_out, "limiter_out")?,
            text(url, "url")?,
            array(options, option_count, "options")?,
            clock.as_ref(),
        )
    };
    // SAFETY: the caller guarantees texts.
    let mut builder = unsafe { options::apply(Limiter::builder().store(url), options) }?;
    if let Some(clock) = clock {
        builder = builder.clock(clock.clock.clone());
    }
    let limiter = finish(builder)?.build()?.blocking();
    *limiter_out = Box::into_raw(Box::new(polylimit_limiter { limiter }));
    Ok(())
}

/// Returns leased units to the store and closes the connections. Pending and later operations end with POLYLIMIT_CLOSED. It may
/// be called at any time and more than once; NULL is allowed. The limiter must still be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_close(limiter: *const polylimit_limiter) {
    guard_or((), || {
        // SAFETY: the caller guarantees a limiter, or NULL.
        if let Some(limiter) = unsafe { limiter.as_ref() } {
            limiter.limiter.asynchronous().close();
        }
    });
}

/// Closes a limiter and frees it. No thread may use it during the call or afterwards. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_free(limiter: *mut polylimit_limiter) {
    guard_or((), || {
        if !limiter.is_null() {
            // SAFETY: the caller guarantees a limiter that no thread uses any more.
            let limiter = unsafe { Box::from_raw(limiter) };
            limiter.limiter.asynchronous().close();
        }
    });
}

/// Waits until the store answers, for at most `timeout_us` microseconds; POLYLIMIT_STORE_UNAVAILABLE when it does not.
/// A service calls it at its start, so that its first decisions are the store's; a limiter works without it too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_ready(
    limiter: *const polylimit_limiter,
    timeout_us: u64,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter.
        Ok(unsafe { handle(limiter, "limiter") }?.limiter.ready(Duration::from_micros(timeout_us))?)
    })
}

/// Adds a policy, or changes the quotas of the one of that name. A quota keeps its usage if its algorithm, period, step and
/// buckets stay the same. `quotas` is as in polylimit_option.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_set_policy(
    limiter: *const polylimit_limiter,
    name: *const c_char,
    quotas: *const c_char,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and texts.
        let (limiter, name, quotas) =
            unsafe { (handle(limiter, "limiter")?, text(name, "name")?, text(quotas, "quotas")?) };
        Ok(limiter.limiter.asynchronous().set_policy(Policy::parse(name, quotas)?)?)
    })
}

/// Finds the policy that decides requests with this `policy` (NULL is the limiter's only one), and writes its name (1 to 64
/// bytes), which requests may use from then on. Programs call it at their start, so that mistakes are found before the first
/// request.
///
/// Quotas as text become a policy of the limiter. In a `scope` (1 to 256 bytes, such as "/login"; NULL is none) they have a
/// budget of their own, the same in every process; a policy with a name has one budget in all scopes. Two texts with equal names
/// are the same policy.
/// The length without the NUL is written to `length_out`, which may be NULL, even if the buffer is too small.
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and texts, or NULL.
        let (limiter, policy, scope) = unsafe {
            (handle(limiter, "limiter")?, optional_text(policy, "policy")?, optional_text(scope, "scope")?)
        };
        let policy = limiter.limiter.asynchronous().policy_for(policy, scope)?;
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(policy.name()) }
    })
}

/// Writes the quotas of a policy (NULL is the limiter's only one) as text in canonical form, such as "10/second; 1000/hour"; also after
/// polylimit_limiter_close.
/// The length without the NUL is written to `length_out`, which may be NULL, even if the buffer is too small.
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and a text, or NULL.
        let (limiter, name) = unsafe { (handle(limiter, "limiter")?, optional_text(name, "name")?) };
        let limiter = limiter.limiter.asynchronous();
        let known = match name {
            Some(name) => limiter.policy(name),
            None => <[_; 1]>::try_from(limiter.policies()).ok().map(|[only]| only),
        };
        let policy = known.map_or_else(|| limiter.policy_for(name, None), Ok)?;
        let quotas: Vec<_> = policy.quotas().iter().map(ToString::to_string).collect();
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&quotas.join("; ")) }
    })
}

/// Sets the password, and the user name unless that is NULL, with which new connections authenticate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_set_credentials(
    limiter: *const polylimit_limiter,
    username: *const c_char,
    password: *const c_char,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and texts.
        let (limiter, username, password) = unsafe {
            (handle(limiter, "limiter")?, optional_text(username, "username")?, text(password, "password")?)
        };
        Ok(limiter.limiter.asynchronous().admin().set_credentials(username, password)?)
    })
}
