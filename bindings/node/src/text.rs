//! A key or another text of a call, read with one call of Node-API where it is short.
//!
//! It is read in UTF-16, which is how the engine can write it fastest, and which shows half a surrogate pair for what it is.

use std::mem::MaybeUninit;
use std::ptr;

use napi::sys;

use crate::failure::{Code, Result, internal, invalid_argument};

/// How many units are read in one call: longer texts take two.
const SHORT: usize = 192;

/// Where a text is written while it is used.
pub(crate) struct Text {
    units: [MaybeUninit<u16>; SHORT],
    ascii: [MaybeUninit<u8>; SHORT],
    /// What is long, is not ASCII or is bytes.
    other: Vec<u8>,
}

impl Text {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            units: [const { MaybeUninit::uninit() }; SHORT],
            ascii: [const { MaybeUninit::uninit() }; SHORT],
            other: Vec::new(),
        }
    }

    /// A key: the UTF-8 of a string, or the bytes of a `Uint8Array`. A string with half a surrogate pair has no UTF-8, and an
    /// array whose buffer was handed on has no bytes.
    ///
    /// # Safety
    /// Both have to be valid.
    #[inline]
    pub(crate) unsafe fn key(&mut self, env: sys::napi_env, value: sys::napi_value) -> Result<&[u8]> {
        // SAFETY: as the caller's.
        match unsafe { self.string(env, value) } {
            Read::Bytes(bytes) => Ok(bytes),
            Read::HalfPair => Err(no_key()),
            // SAFETY: as the caller's.
            Read::NoString => unsafe { array(env, value) },
        }
    }

    /// The text of a string; `None` is none.
    ///
    /// # Safety
    /// Both have to be valid.
    #[inline]
    pub(crate) unsafe fn text(&mut self, env: sys::napi_env, value: sys::napi_value) -> Option<&str> {
        // SAFETY: as the caller's.
        match unsafe { self.string(env, value) } {
            Read::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            Read::HalfPair | Read::NoString => None,
        }
    }

    /// The same of a text that need not be there. What is something else is refused.
    ///
    /// # Safety
    /// Both have to be valid.
    #[inline]
    pub(crate) unsafe fn optional(
        &mut self,
        env: sys::napi_env,
        value: sys::napi_value,
        refused: fn() -> napi::Error<Code>,
    ) -> Result<Option<&str>> {
        let mut kind = -1;
        // SAFETY: as the caller's.
        let status = unsafe { sys::napi_typeof(env, value, &raw mut kind) };
        let nothing = [sys::ValueType::napi_undefined, sys::ValueType::napi_null];
        if status == sys::Status::napi_ok && nothing.contains(&kind) {
            return Ok(None);
        }
        // SAFETY: as the caller's.
        unsafe { self.text(env, value) }.map(Some).ok_or_else(refused)
    }

    /// # Safety
    /// Both have to be valid.
    #[inline]
    unsafe fn string(&mut self, env: sys::napi_env, value: sys::napi_value) -> Read<'_> {
        let mut length = 0;
        // SAFETY: the buffer is as long as it says.
        let status = unsafe {
            sys::napi_get_value_string_utf16(
                env,
                value,
                self.units.as_mut_ptr().cast(),
                SHORT,
                &raw mut length,
            )
        };
        if status != sys::Status::napi_ok {
            return Read::NoString;
        }
        // Node-API leaves room for a zero: one that fills the rest may be longer.
        if length < SHORT - 1 {
            // SAFETY: so many were written.
            let units = unsafe { std::slice::from_raw_parts(self.units.as_ptr().cast::<u16>(), length) };
            let mut all = 0;
            for (byte, unit) in self.ascii.iter_mut().zip(units) {
                all |= unit;
                #[expect(clippy::cast_possible_truncation, reason = "looked at below")]
                byte.write(*unit as u8);
            }
            if all < 0x80 {
                // SAFETY: so many were written.
                return Read::Bytes(unsafe {
                    std::slice::from_raw_parts(self.ascii.as_ptr().cast(), length)
                });
            }
            return Self::converted(units, &mut self.other);
        }
        // SAFETY: as the caller's.
        match unsafe { long(env, value) } {
            Some(units) => Self::converted(&units, &mut self.other),
            None => Read::NoString,
        }
    }

    #[cold]
    fn converted<'a>(units: &[u16], other: &'a mut Vec<u8>) -> Read<'a> {
        let Ok(text) = String::from_utf16(units) else { return Read::HalfPair };
        *other = text.into_bytes();
        Read::Bytes(other)
    }
}

enum Read<'a> {
    Bytes(&'a [u8]),
    HalfPair,
    NoString,
}

/// # Safety
/// Both have to be valid.
#[cold]
unsafe fn long(env: sys::napi_env, value: sys::napi_value) -> Option<Vec<u16>> {
    let mut length = 0;
    // SAFETY: without a buffer it only tells the length.
    let status = unsafe { sys::napi_get_value_string_utf16(env, value, ptr::null_mut(), 0, &raw mut length) };
    if status != sys::Status::napi_ok {
        return None;
    }
    let mut units = vec![0; length + 1];
    // SAFETY: the buffer is as long as it says.
    let status = unsafe {
        sys::napi_get_value_string_utf16(env, value, units.as_mut_ptr(), units.len(), &raw mut length)
    };
    units.truncate(length);
    (status == sys::Status::napi_ok).then_some(units)
}

/// The bytes of a `Uint8Array`, of which `Buffer` is one. JavaScript, which could change them, does not run meanwhile.
///
/// # Safety
/// Both have to be valid, for as long as the bytes are used.
unsafe fn array<'a>(env: sys::napi_env, value: sys::napi_value) -> Result<&'a [u8]> {
    let (mut kind, mut length, mut data, mut buffer) = (-1, 0, ptr::null_mut(), ptr::null_mut());
    // SAFETY: Node-API refuses what is no typed array.
    let status = unsafe {
        sys::napi_get_typedarray_info(
            env,
            value,
            &raw mut kind,
            &raw mut length,
            &raw mut data,
            &raw mut buffer,
            ptr::null_mut(),
        )
    };
    if status != sys::Status::napi_ok || kind != sys::TypedarrayType::uint8_array {
        return Err(no_key());
    }
    if length > 0 {
        // SAFETY: so many bytes are there.
        return Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) });
    }
    let mut is_detached = false;
    // SAFETY: the buffer is the one of the array.
    let status = unsafe { sys::napi_is_detached_arraybuffer(env, buffer, &raw mut is_detached) };
    if status == sys::Status::napi_ok && is_detached {
        return Err(invalid_argument(
            "key is a Uint8Array whose buffer is detached: its bytes were handed on, allowed is one that has them",
        ));
    }
    Ok(&[])
}

fn no_key() -> napi::Error<Code> {
    invalid_argument(
        "key is neither text nor bytes: allowed are a string without half a surrogate pair, and a Uint8Array",
    )
}

/// A JavaScript string of ASCII.
///
/// # Safety
/// The environment has to be valid.
pub(crate) unsafe fn string(env: sys::napi_env, text: &str) -> Result<sys::napi_value> {
    let mut string = ptr::null_mut();
    // SAFETY: the text is as long as it says.
    let status = unsafe {
        sys::napi_create_string_latin1(env, text.as_ptr().cast(), text.len().cast_signed(), &raw mut string)
    };
    if status == sys::Status::napi_ok {
        Ok(string)
    } else {
        Err(internal("Node-API refused to make a string"))
    }
}
