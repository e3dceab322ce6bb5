//! Changes of a limiter's configuration, and the wait for them.

use std::ffi::c_char;
use std::ptr;
use std::time::Duration;

use polylimit::admin::PublishOptions;
use polylimit::raw::{Answer, Call};

use crate::arguments::{Sized32, Strided, handle, optional_text, sized, text};
use crate::completions::polylimit_completions;
use crate::configuration::{give, polylimit_configuration};
use crate::error::{Failure, MessageBuffer, POLYLIMIT_OK, POLYLIMIT_PENDING, guard, polylimit_status};
use crate::limiter::polylimit_limiter;
use crate::operations::{STOP_POLL_INTERVAL, is_stopped, wrong_answer};
use crate::request::polylimit_result;

/// Sets an entry.
pub const POLYLIMIT_SET_ENTRY: u32 = 1;
/// Deletes an entry; one that is not there is no error.
pub const POLYLIMIT_DELETE_ENTRY: u32 = 2;
/// Publishes a document to the source `store`.
pub const POLYLIMIT_PUBLISH: u32 = 3;
/// Waits until a version of the configuration, or a later one, is active.
pub const POLYLIMIT_WAIT_FOR_VERSION: u32 = 4;

/// A change of a configuration, or the wait for one. Texts may be NULL where they have no effect.
#[repr(C)]
pub struct polylimit_change {
    /// sizeof(polylimit_change), set by the caller.
    pub size: u32,
    /// One of POLYLIMIT_SET_ENTRY to POLYLIMIT_WAIT_FOR_VERSION.
    pub operation: u32,
    /// The entry: `deny ITEM`, `allow ITEM` or `override POLICY KEY`; for POLYLIMIT_SET_ENTRY and POLYLIMIT_DELETE_ENTRY.
    pub entry: *const c_char,
    /// A JSON object that may have `until`, `by`, `why` and, for an override, `numbers`; for POLYLIMIT_SET_ENTRY. NULL is "{}".
    pub value: *const c_char,
    /// A document in TOML or JSON; for POLYLIMIT_PUBLISH.
    pub document: *const c_char,
    /// The author's name, up to 256 bytes; may be NULL.
    pub by: *const c_char,
    /// The reason, up to 1,024 bytes; may be NULL.
    pub why: *const c_char,
    /// For POLYLIMIT_PUBLISH the version of the document that this one replaces; for POLYLIMIT_WAIT_FOR_VERSION the version of the
    /// configuration.
    pub version: u64,
    /// The longest wait, in microseconds; for POLYLIMIT_WAIT_FOR_VERSION.
    pub timeout_us: u64,
    /// For POLYLIMIT_PUBLISH: 1 to publish over `version` only, 0 to replace whichever document is there.
    pub has_version: u32,
    /// Always 0.
    pub reserved: u32,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_change {
    const NAME: &'static str = "change";
    const MIN_SIZE: u32 = 72;
}

impl polylimit_change {
    /// # Safety
    /// Texts are NULL or end with a NUL, and do not change while the call is used.
    unsafe fn call<'a>(&self) -> Result<Call<'a>, Failure> {
        // SAFETY: the caller guarantees it.
        unsafe {
            Ok(match self.operation {
                POLYLIMIT_SET_ENTRY => {
                    let value = optional_text(self.value, "value")?.unwrap_or("{}");
                    Call::SetEntry(text(self.entry, "entry")?, value)
                }
                POLYLIMIT_DELETE_ENTRY => Call::DeleteEntry(text(self.entry, "entry")?),
                POLYLIMIT_PUBLISH => {
                    let options = PublishOptions::default()
                        .by(optional_text(self.by, "by")?.unwrap_or_default())
                        .why(optional_text(self.why, "why")?.unwrap_or_default());
                    let options = match self.has_version {
                        0 => options,
                        1 => options.expected_version(self.version),
                        other => {
                            return Err(Failure::invalid(format!(
                                "has_version is {other}: allowed are 0 and 1"
                            )));
                        }
                    };
                    Call::Publish(text(self.document, "document")?, options)
                }
                POLYLIMIT_WAIT_FOR_VERSION => {
                    Call::WaitForVersion(self.version, Duration::from_micros(self.timeout_us))
                }
                other => {
                    return Err(Failure::invalid(format!(
                        "change {other} is not known: allowed are {POLYLIMIT_SET_ENTRY} to {POLYLIMIT_WAIT_FOR_VERSION}"
                    )));
                }
            })
        }
    }
}

/// Changes the configuration, or waits for a change, and blocks this thread until that is done, or until another thread sets
/// `*stopped` to a number other than 0; then it returns POLYLIMIT_PENDING, and whether the change was made is unknown. `stopped` may
/// be NULL, and `configuration_out` too; see polylimit_admin_configuration.
///
/// POLYLIMIT_INVALID_ARGUMENT: the entry, its value or the document cannot be read or do not fit; another version than the expected
/// one is there; the limiter's source has no entries, or its document does not come from Redis. POLYLIMIT_STORE_UNAVAILABLE: Redis
/// does not answer, so the change may have been made, or the version is not active after the timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_change(
    limiter: *const polylimit_limiter,
    change: *const polylimit_change,
    stopped: *const u32,
    configuration_out: *mut *mut polylimit_configuration,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and a change.
        let (limiter, call) = unsafe { (handle(limiter, "limiter")?, sized(change)?.call()?) };
        let limiter = &limiter.limiter;
        let answer = if stopped.is_null() {
            limiter.raw().call(&call)?
        } else {
            // SAFETY: the caller guarantees a number.
            let stop = || unsafe { is_stopped(stopped) };
            match limiter.raw().call_until(&call, STOP_POLL_INTERVAL, stop) {
                Some(answer) => answer?,
                None => return Ok(POLYLIMIT_PENDING),
            }
        };
        let Answer::Configuration(status) = answer else { return Err(wrong_answer()) };
        // SAFETY: the caller guarantees an out-parameter, or NULL.
        unsafe { give(&status, configuration_out) }?;
        Ok(POLYLIMIT_OK)
    })
}

/// Changes the configuration, or waits for a change, without blocking; see polylimit_admin_change. The statuses are those of
/// polylimit_completions_submit. The answer of a result is not written: polylimit_admin_configuration returns the active one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_submit_change(
    completions: *const polylimit_completions,
    limiter: *const polylimit_limiter,
    change: *const polylimit_change,
    tag: u64,
    result_out: *mut polylimit_result,
    result_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees completions, a limiter, a change and a result.
        let (completions, limiter, call, result) = unsafe {
            (
                handle(completions, "completions")?,
                handle(limiter, "limiter")?,
                sized(change)?.call()?,
                Strided::new(result_out, result_size, 1)?,
            )
        };
        match completions.call(limiter.limiter.asynchronous(), &call, tag.into()) {
            None => Ok(POLYLIMIT_PENDING),
            Some(answer) => {
                // SAFETY: it is the only element of the array, and any bytes are valid in its fields.
                unsafe { &mut *result.at::<polylimit_result>(0) }.set(tag, Ok(answer?));
                Ok(POLYLIMIT_OK)
            }
        }
    })
}

/// Sets an entry: `deny ITEM`, `allow ITEM` or `override POLICY KEY`. `value` is a JSON object that may have `until`, `by`, `why` and,
/// for an override, `numbers`; NULL is "{}". `configuration_out` may be NULL. See polylimit_admin_change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_set_entry(
    limiter: *const polylimit_limiter,
    entry: *const c_char,
    value: *const c_char,
    configuration_out: *mut *mut polylimit_configuration,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    let change = polylimit_change { operation: POLYLIMIT_SET_ENTRY, entry, value, ..NOTHING };
    // SAFETY: the caller guarantees what polylimit_admin_change needs.
    unsafe {
        polylimit_admin_change(
            limiter,
            &raw const change,
            ptr::null(),
            configuration_out,
            error_buffer,
            error_capacity,
        )
    }
}

/// Deletes an entry; one that is not there is no error. `configuration_out` may be NULL. See polylimit_admin_change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_delete_entry(
    limiter: *const polylimit_limiter,
    entry: *const c_char,
    configuration_out: *mut *mut polylimit_configuration,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    let change = polylimit_change { operation: POLYLIMIT_DELETE_ENTRY, entry, ..NOTHING };
    // SAFETY: the caller guarantees what polylimit_admin_change needs.
    unsafe {
        polylimit_admin_change(
            limiter,
            &raw const change,
            ptr::null(),
            configuration_out,
            error_buffer,
            error_capacity,
        )
    }
}

/// Publishes a document, in TOML or JSON, to the Redis store that this limiter's configuration comes from, and waits until it is
/// active here; every process that follows the store takes it within a second. `expected_version` points at the version of the
/// document that this one replaces, or is NULL to replace whichever is there. `by` and `why`, the author's name and the reason, may be
/// NULL, and `configuration_out` too. See polylimit_admin_change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_publish(
    limiter: *const polylimit_limiter,
    document: *const c_char,
    expected_version: *const u64,
    by: *const c_char,
    why: *const c_char,
    configuration_out: *mut *mut polylimit_configuration,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    let version = if expected_version.is_null() || !expected_version.is_aligned() {
        None
    } else {
        // SAFETY: the caller guarantees a number.
        Some(unsafe { *expected_version })
    };
    let change = polylimit_change {
        operation: POLYLIMIT_PUBLISH,
        document,
        by,
        why,
        has_version: version.is_some().into(),
        version: version.unwrap_or(0),
        ..NOTHING
    };
    // SAFETY: the caller guarantees what polylimit_admin_change needs.
    unsafe {
        polylimit_admin_change(
            limiter,
            &raw const change,
            ptr::null(),
            configuration_out,
            error_buffer,
            error_capacity,
        )
    }
}

/// Waits until this version of the configuration, or a later one, is active, for at most `timeout_us` microseconds; then it fails
/// with POLYLIMIT_STORE_UNAVAILABLE. `configuration_out` may be NULL. See polylimit_admin_change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_wait_for_version(
    limiter: *const polylimit_limiter,
    version: u64,
    timeout_us: u64,
    configuration_out: *mut *mut polylimit_configuration,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    let change = polylimit_change { operation: POLYLIMIT_WAIT_FOR_VERSION, version, timeout_us, ..NOTHING };
    // SAFETY: the caller guarantees what polylimit_admin_change needs.
    unsafe {
        polylimit_admin_change(
            limiter,
            &raw const change,
            ptr::null(),
            configuration_out,
            error_buffer,
            error_capacity,
        )
    }
}

const NOTHING: polylimit_change = polylimit_change {
    size: polylimit_change::MIN_SIZE,
    operation: 0,
    entry: ptr::null(),
    value: ptr::null(),
    document: ptr::null(),
    by: ptr::null(),
    why: ptr::null(),
    version: 0,
    timeout_us: 0,
    has_version: 0,
    reserved: 0,
};
