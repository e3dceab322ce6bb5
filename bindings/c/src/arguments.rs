//! Checked access to the pointers, arrays and texts that callers pass.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};

use crate::error::Failure;

/// A struct whose first field is its size in the caller's version of the header.
///
/// # Safety
/// The first field is a `u32`, and `MIN_SIZE` is the size of the struct in its first version.
pub(crate) unsafe trait Sized32 {
    /// The name of the struct in error messages.
    const NAME: &'static str;
    /// The size in the first version. A smaller one is an error of the caller.
    const MIN_SIZE: u32;
}

/// Dereferences a handle.
///
/// # Safety
/// `handle` is NULL or a handle of this type that was not freed.
pub(crate) unsafe fn handle<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { handle.as_ref() }.ok_or_else(|| null(name))
}

/// Dereferences an out-parameter.
///
/// # Safety
/// `place` is NULL or points at a writable `T`.
pub(crate) unsafe fn out_param<'a, T>(place: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    check_aligned(place, name)?;
    // SAFETY: the caller guarantees it, and it is aligned.
    unsafe { place.as_mut() }.ok_or_else(|| null(name))
}

/// Dereferences an out-parameter that is a struct with a size, and checks the size.
///
/// # Safety
/// `place` is NULL or points at as many writable bytes as its first field says.
#[inline]
pub(crate) unsafe fn sized_out<'a, T: Sized32>(place: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { check_size(place) }?;
    // SAFETY: it is neither NULL nor misaligned, and has at least the size of the struct.
    Ok(unsafe { &mut *place })
}

/// Dereferences an input that is a struct with a size, and checks the size.
///
/// # Safety
/// As [`sized_out`], for reading.
#[inline]
pub(crate) unsafe fn sized<'a, T: Sized32>(given: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { check_size(given) }?;
    // SAFETY: it is neither NULL nor misaligned, and has at least the size of the struct.
    Ok(unsafe { &*given })
}

const fn assert_first_version<T: Sized32>() {
    assert!(
        T::MIN_SIZE as usize == size_of::<T>(),
        "reading and writing the new fields of a larger struct must depend on its size"
    );
}

#[inline]
unsafe fn check_size<T: Sized32>(given: *const T) -> Result<(), Failure> {
    const { assert_first_version::<T>() };
    if given.is_null() {
        return Err(null(T::NAME));
    }
    check_aligned(given, T::NAME)?;
    // SAFETY: the first field of such a struct is its size.
    let size = unsafe { *given.cast::<u32>() };
    if size < T::MIN_SIZE { Err(too_small(T::NAME, size, T::MIN_SIZE)) } else { Ok(()) }
}

/// An array whose elements are `stride` bytes apart: the size of the struct in the caller's version of the header.
pub(crate) struct Strided {
    start: *mut u8,
    stride: usize,
}

impl Strided {
    /// # Safety
    /// `start` is NULL or points at `count` elements of `stride` bytes each.
    pub(crate) unsafe fn new<T: Sized32>(
        start: *mut T,
        stride: usize,
        count: usize,
    ) -> Result<Self, Failure> {
        const { assert_first_version::<T>() };
        if start.is_null() && count > 0 {
            return Err(null(T::NAME));
        }
        check_aligned(start, T::NAME)?;
        if stride < T::MIN_SIZE as usize {
            return Err(too_small(T::NAME, stride, T::MIN_SIZE));
        }
        if !stride.is_multiple_of(align_of::<T>())
            || stride.checked_mul(count).is_none_or(|bytes| bytes > MAX_BYTES)
        {
            return Err(Failure::invalid(format!(
                "{count} of {} with {stride} bytes each: an array cannot have this size",
                T::NAME
            )));
        }
        Ok(Self { start: start.cast(), stride })
    }

    /// # Safety
    /// `T` is the type that was passed to [`new`](Self::new), and `at` is less than its `count`.
    pub(crate) unsafe fn at<T: Sized32>(&self, at: usize) -> *mut T {
        // SAFETY: the element is within the array.
        unsafe { self.start.add(at * self.stride) }.cast()
    }
}

/// The maximum size of an object.
const MAX_BYTES: usize = isize::MAX as usize;

/// The bytes of an input; `start` may be NULL when `length` is 0.
///
/// # Safety
/// `start` is NULL or points at `length` bytes.
#[inline]
pub(crate) unsafe fn bytes<'a>(start: *const u8, length: usize, name: &str) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(null(name));
    }
    if length > MAX_BYTES {
        return Err(Failure::invalid(format!("{name} has {length} bytes: an object cannot have this size")));
    }
    // SAFETY: the caller guarantees it; what can be checked was checked.
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// An array of structs without a size field; `start` may be NULL when `count` is 0.
///
/// # Safety
/// `start` is NULL or points at `count` elements.
pub(crate) unsafe fn array<'a, T>(start: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(null(name));
    }
    check_aligned(start, name)?;
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > MAX_BYTES) {
        return Err(Failure::invalid(format!("{name} has {count} elements: an array cannot have this size")));
    }
    // SAFETY: the caller guarantees it; what can be checked was checked.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

#[inline]
fn check_aligned<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_aligned() { Ok(()) } else { Err(misaligned(name)) }
}

#[cold]
fn misaligned(name: &str) -> Failure {
    Failure::invalid(format!("{name} is not aligned for its type"))
}

#[cold]
fn null(name: &str) -> Failure {
    Failure::invalid(format!("{name} is NULL"))
}

#[cold]
fn too_small(name: &str, size: impl std::fmt::Display, least: u32) -> Failure {
    Failure::invalid(format!("{name} has size {size}: set it to sizeof, which is at least {least}"))
}

/// Reads a text that ends with a NUL.
///
/// # Safety
/// `text` is NULL or points at bytes that end with a NUL and stay as they are during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { optional_text(text, name) }?.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}

/// Reads a text that ends with a NUL; `None` when the pointer is NULL.
///
/// # Safety
/// As [`text`].
#[inline]
pub(crate) unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

/// Reads a text that another system has written: invalid UTF-8 becomes U+FFFD.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn foreign_text<'a>(text: *const c_char, name: &str) -> Result<Cow<'a, str>, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL")));
    }
    // SAFETY: the caller guarantees it.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// The caller's buffer for a text, and the out-parameter for the length of the text.
pub(crate) struct TextBuffer {
    pub(crate) start: *mut c_char,
    pub(crate) capacity: usize,
    pub(crate) length_out: *mut usize,
}

impl TextBuffer {
    /// Writes the text and a NUL. If the buffer is too small, it fails and writes only the length.
    ///
    /// # Safety
    /// `start` is NULL or there are `capacity` writable bytes; `length_out` is NULL or writable.
    pub(crate) unsafe fn write(&self, text: &str) -> Result<(), Failure> {
        if !self.length_out.is_null() {
            // SAFETY: the caller guarantees it.
            *unsafe { out_param(self.length_out, "length_out") }? = text.len();
        }
        if self.start.is_null() || self.capacity <= text.len() {
            let capacity = if self.start.is_null() { 0 } else { self.capacity };
            return Err(Failure::invalid(format!(
                "the buffer has {capacity} bytes: {} are needed, the NUL at the end included",
                text.len() + 1
            )));
        }
        // SAFETY: the buffer has room for the text and the NUL.
        unsafe {
            text.as_ptr().copy_to_nonoverlapping(self.start.cast(), text.len());
            self.start.add(text.len()).write(0);
        }
        Ok(())
    }
}
