//! Texts of callers, and texts written into buffers of callers.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};

use crate::failure::Failure;
use crate::pointer::place;

/// A text that ends with a NUL.
///
/// # Safety
/// `text` is NULL or points at bytes that end with a NUL and stay as they are during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: as promised by the caller.
    unsafe { optional_text(text, name) }?.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}

/// A text that ends with a NUL; none when it is NULL.
///
/// # Safety
/// As [`text`].
#[inline]
pub(crate) unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as promised by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

/// A text that ends with a NUL and that somebody else wrote: what is no UTF-8 is shown as U+FFFD.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn foreign_text<'a>(text: *const c_char, name: &str) -> Result<Cow<'a, str>, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL")));
    }
    // SAFETY: as promised by the caller.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// The caller's buffer for a text: where it is, how big it is, and where its length goes.
pub(crate) struct TextBuffer {
    pub(crate) start: *mut c_char,
    pub(crate) capacity: usize,
    pub(crate) length_out: *mut usize,
}

impl TextBuffer {
    /// Writes the text and a NUL. The length is reported also when there is too little room; then nothing is written.
    ///
    /// # Safety
    /// `start` is NULL or there are `capacity` writable bytes; `length_out` is NULL or writable.
    pub(crate) unsafe fn write(&self, text: &str) -> Result<(), Failure> {
        if !self.length_out.is_null() {
            // SAFETY: as promised by the caller.
            *unsafe { place(self.length_out, "length_out") }? = text.len();
        }
        if self.start.is_null() || self.capacity <= text.len() {
            let capacity = if self.start.is_null() { 0 } else { self.capacity };
            return Err(Failure::invalid(format!(
                "the buffer has room for {capacity} bytes: {} are needed, the NUL at the end included",
                text.len() + 1
            )));
        }
        // SAFETY: there is room for the text and the NUL.
        unsafe {
            text.as_ptr().copy_to_nonoverlapping(self.start.cast(), text.len());
            self.start.add(text.len()).write(0);
        }
        Ok(())
    }
}
