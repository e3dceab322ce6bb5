//! The configuration of a limiter: its status and its document.

use std::ffi::{CString, c_char};
use std::ptr;

use polylimit::admin::ConfigurationStatus;

use crate::arguments::{handle, out_param, text};
use crate::error::{Failure, MessageBuffer, guard_or, guard_unit, polylimit_status};
use crate::limiter::polylimit_limiter;

/// Which configuration is active. Made by the library, with its texts; freed by polylimit_configuration_free.
#[repr(C)]
pub struct polylimit_configuration {
    /// The size of this struct, set by the library.
    pub size: u32,
    /// Always 0.
    pub reserved: u32,
    /// Raised with each change. 0 before the first.
    pub version: u64,
    /// Which document of Redis is active, counted from 1: what polylimit_publish expects to replace. 0 where the document does
    /// not come from Redis.
    pub document_version: u64,
    /// When this version was applied, in microseconds since the Unix epoch; 0 before the first.
    pub applied_at_us: u64,
    /// For how long the source has been unreachable, in microseconds; 0 when it is not.
    pub unreachable_for_us: u64,
    /// Where it comes from: "document" for one that the program gives, otherwise as the option `configuration` names it.
    pub source: *const c_char,
    /// SHA-256 of the active document in canonical form, as hexadecimal digits; empty before the first.
    pub digest: *const c_char,
    /// Why a newer configuration was not applied, or may not be known; NULL when there is no error.
    pub error: *const c_char,
}

/// A status with the texts that it points at.
#[repr(C)]
struct Owned {
    plain: polylimit_configuration,
    source: CString,
    digest: CString,
    error: Option<CString>,
}

impl Owned {
    fn new(status: &ConfigurationStatus) -> Self {
        let (source, digest) = (c_text(&status.source), c_text(&status.digest));
        let error = status.error.as_deref().map(c_text);
        let plain = polylimit_configuration {
            size: SIZE,
            reserved: 0,
            version: status.version,
            document_version: status.document_version,
            applied_at_us: status.applied_at_us,
            unreachable_for_us: status.unreachable_for_us,
            source: source.as_ptr(),
            digest: digest.as_ptr(),
            error: error.as_ref().map_or(ptr::null(), |error| error.as_ptr()),
        };
        Self { plain, source, digest, error }
    }
}

const SIZE: u32 = 64;
const _: () = assert!(SIZE as usize == size_of::<polylimit_configuration>());

/// A text for C. A NUL in it, which would end it, becomes U+FFFD.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// Gives a status to the caller, which may pass NULL.
///
/// # Safety
/// `place` is NULL or writable.
pub(crate) unsafe fn give(
    status: &ConfigurationStatus,
    place: *mut *mut polylimit_configuration,
) -> Result<(), Failure> {
    if !place.is_null() {
        // SAFETY: the caller guarantees it.
        *unsafe { out_param(place, "configuration_out") }? =
            Box::into_raw(Box::new(Owned::new(status))).cast();
    }
    Ok(())
}

/// Which configuration is active. `*configuration_out` becomes NULL for a limiter that has none; otherwise it is freed by
/// polylimit_configuration_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_configuration(
    limiter: *const polylimit_limiter,
    configuration_out: *mut *mut polylimit_configuration,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and an out-parameter.
        let (limiter, place) =
            unsafe { (handle(limiter, "limiter")?, out_param(configuration_out, "configuration_out")?) };
        let status = limiter.limiter.asynchronous().admin().configuration();
        *place = status.map_or(ptr::null_mut(), |status| Box::into_raw(Box::new(Owned::new(&status))).cast());
        Ok(())
    })
}

/// Frees a status and its texts. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_configuration_free(configuration: *mut polylimit_configuration) {
    guard_or((), || {
        if !configuration.is_null() {
            // SAFETY: the caller guarantees a status of this library, which is the first field of its owner.
            drop(unsafe { Box::from_raw(configuration.cast::<Owned>()) });
        }
    });
}

/// Replaces the document that the program has given, in TOML or JSON; its entries stay. A document that cannot be used is
/// POLYLIMIT_INVALID_ARGUMENT, with a message "line L, column C: ..." that says what was read and what is allowed; the one before
/// stays active. So it is for a limiter whose configuration comes from elsewhere. `configuration_out` may be NULL; see
/// polylimit_admin_configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_set_document(
    limiter: *const polylimit_limiter,
    document: *const c_char,
    configuration_out: *mut *mut polylimit_configuration,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and a text.
        let (limiter, document) = unsafe { (handle(limiter, "limiter")?, text(document, "document")?) };
        let status = limiter.limiter.asynchronous().admin().set_document(document)?;
        // SAFETY: the caller guarantees an out-parameter, or NULL.
        unsafe { give(&status, configuration_out) }
    })
}
