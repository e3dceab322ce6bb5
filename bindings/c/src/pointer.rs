//! Pointers of callers, checked before they are used.

use crate::failure::Failure;

/// A struct whose first field is its size as the caller knows it.
///
/// # Safety
/// The first field is a `u32`, and `FIRST` is the size of the struct in the first version that had it.
pub(crate) unsafe trait Sized32 {
    /// Its name, for messages.
    const NAME: &'static str;
    /// How big it was at first: no caller's is smaller.
    const FIRST: u32;
}

/// What a handle points at.
///
/// # Safety
/// `handle` is NULL or came from the function that makes such handles and was not freed.
pub(crate) unsafe fn handle<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: as promised by the caller.
    unsafe { handle.as_ref() }.ok_or_else(|| null(name))
}

/// A place that an output is written to.
///
/// # Safety
/// `place` is NULL or points at a `T` that may be written.
pub(crate) unsafe fn place<'a, T>(place: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    aligned(place, name)?;
    // SAFETY: as promised by the caller, and it is aligned.
    unsafe { place.as_mut() }.ok_or_else(|| null(name))
}

/// A struct that an output is written to, if it is as big as this library needs.
///
/// # Safety
/// `place` is NULL or points at as many writable bytes as its first field says.
#[inline]
pub(crate) unsafe fn sized_place<'a, T: Sized32>(place: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: as promised by the caller.
    unsafe { check_size(place) }?;
    // SAFETY: it is neither NULL nor misaligned, and as big as the struct.
    Ok(unsafe { &mut *place })
}

/// A struct of the caller's, if it is as big as this library needs.
///
/// # Safety
/// As [`sized_place`], for reading.
#[inline]
pub(crate) unsafe fn sized<'a, T: Sized32>(given: *const T) -> Result<&'a T, Failure> {
    // SAFETY: as promised by the caller.
    unsafe { check_size(given) }?;
    // SAFETY: it is neither NULL nor misaligned, and as big as the struct.
    Ok(unsafe { &*given })
}

#[inline]
unsafe fn check_size<T: Sized32>(given: *const T) -> Result<(), Failure> {
    const { assert!(T::FIRST as usize == size_of::<T>(), "a struct that has grown needs its new fields guarded") };
    if given.is_null() {
        return Err(null(T::NAME));
    }
    aligned(given, T::NAME)?;
    // SAFETY: it points at such a struct, whose first field this is.
    let size = unsafe { *given.cast::<u32>() };
    if size < T::FIRST { Err(too_small(T::NAME, size, T::FIRST)) } else { Ok(()) }
}

/// An array of the caller's, whose elements are `stride` bytes apart.
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
        if start.is_null() && count > 0 {
            return Err(null(T::NAME));
        }
        aligned(start, T::NAME)?;
        if stride < T::FIRST as usize {
            return Err(too_small(T::NAME, stride, T::FIRST));
        }
        if !stride.is_multiple_of(align_of::<T>())
            || stride.checked_mul(count).is_none_or(|bytes| bytes > MOST)
        {
            return Err(Failure::invalid(format!(
                "{count} of {} with {stride} bytes each: that is no array",
                T::NAME
            )));
        }
        Ok(Self { start: start.cast(), stride })
    }

    /// # Safety
    /// `T` is what [`new`](Self::new) was told, and `at` is below its count.
    pub(crate) unsafe fn at<T: Sized32>(&self, at: usize) -> *mut T {
        // SAFETY: it is within the array.
        unsafe { self.start.add(at * self.stride) }.cast()
    }
}

/// No object is bigger.
const MOST: usize = isize::MAX as usize;

/// Bytes of the caller's; NULL is allowed when there are none.
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
    if length > MOST {
        return Err(Failure::invalid(format!("{name} has {length} bytes, which no object has")));
    }
    // SAFETY: as promised by the caller, and checked as far as it can be.
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// An array of the caller's structs that do not grow; NULL is allowed when it is empty.
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
    aligned(start, name)?;
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > MOST) {
        return Err(Failure::invalid(format!("{name} has {count} elements, which no array has")));
    }
    // SAFETY: as promised by the caller, and checked as far as it can be.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

#[inline]
fn aligned<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_aligned() { Ok(()) } else { Err(misaligned(name)) }
}

#[cold]
fn misaligned(name: &str) -> Failure {
    Failure::invalid(format!("{name} is not aligned as its type has to be"))
}

#[cold]
fn null(name: &str) -> Failure {
    Failure::invalid(format!("{name} is NULL"))
}

#[cold]
fn too_small(name: &str, size: impl std::fmt::Display, least: u32) -> Failure {
    Failure::invalid(format!("{name} has size {size}: set it to sizeof, which is at least {least}"))
}
