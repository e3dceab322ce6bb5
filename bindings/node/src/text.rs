//! Keys and other strings of a call. A short one is read with a single call of Node-API.
//!
//! Strings are read as UTF-16: the engine copies it fastest, and it preserves an unpaired surrogate, which must be refused.

use std::mem::MaybeUninit;
use std::ptr;

use napi::bindgen_prelude::Unknown;
use napi::{Env, JsValue, sys};

use crate::error::{Code, Result, internal, invalid_argument};

/// The number of UTF-16 units that one call reads. A longer string takes two calls.
const SHORT: usize = 192;

/// The memory that holds a string of JavaScript during a call.
pub(crate) struct TextBuffer {
    units: [MaybeUninit<u16>; SHORT],
    ascii: [MaybeUninit<u8>; SHORT],
    /// Holds a string that is long or not ASCII.
    heap: Vec<u8>,
}

impl TextBuffer {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            units: [const { MaybeUninit::uninit() }; SHORT],
            ascii: [const { MaybeUninit::uninit() }; SHORT],
            heap: Vec::new(),
        }
    }

    /// Reads a key: see [`bytes`](Self::bytes).
    ///
    /// # Safety
    /// The environment and the value must be valid.
    #[inline]
    pub(crate) unsafe fn key(&mut self, env: sys::napi_env, value: sys::napi_value) -> Result<&[u8]> {
        // SAFETY: the caller guarantees it.
        unsafe { self.bytes("key", env, value) }
    }

    /// Reads the argument `name`: the UTF-8 of a string, or the bytes of a `Uint8Array`. Fails for a string with an unpaired
    /// surrogate, which has no UTF-8, and for an array whose buffer is detached, which has no bytes.
    ///
    /// # Safety
    /// The environment and the value must be valid.
    #[inline]
    pub(crate) unsafe fn bytes(
        &mut self,
        name: &str,
        env: sys::napi_env,
        value: sys::napi_value,
    ) -> Result<&[u8]> {
        // SAFETY: the caller guarantees it.
        match unsafe { self.string(env, value) } {
            Read::Bytes(bytes) => Ok(bytes),
            Read::UnpairedSurrogate => Err(invalid_argument(format!(
                "{name} is text with an unpaired surrogate, which has no UTF-8: allowed is any other text"
            ))),
            // SAFETY: the caller guarantees it.
            Read::NotAString => unsafe { array_bytes(name, env, value) },
        }
    }

    /// Reads a string; `None` for a value that is not one, or has an unpaired surrogate.
    ///
    /// # Safety
    /// The environment and the value must be valid.
    #[inline]
    pub(crate) unsafe fn text(&mut self, env: sys::napi_env, value: sys::napi_value) -> Option<&str> {
        // SAFETY: the caller guarantees it.
        match unsafe { self.string(env, value) } {
            Read::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            Read::UnpairedSurrogate | Read::NotAString => None,
        }
    }

    /// Reads a string that may be `undefined` or `null`. Any other value is the error that `refused` makes.
    ///
    /// # Safety
    /// The environment and the value must be valid.
    #[inline]
    pub(crate) unsafe fn optional_text(
        &mut self,
        env: sys::napi_env,
        value: sys::napi_value,
        refused: fn() -> napi::Error<Code>,
    ) -> Result<Option<&str>> {
        let mut kind = -1;
        // SAFETY: the caller guarantees it.
        let status = unsafe { sys::napi_typeof(env, value, &raw mut kind) };
        let absent = [sys::ValueType::napi_undefined, sys::ValueType::napi_null];
        if status == sys::Status::napi_ok && absent.contains(&kind) {
            return Ok(None);
        }
        // SAFETY: the caller guarantees it.
        unsafe { self.text(env, value) }.map(Some).ok_or_else(refused)
    }

    /// # Safety
    /// The environment and the value must be valid.
    #[inline]
    unsafe fn string(&mut self, env: sys::napi_env, value: sys::napi_value) -> Read<'_> {
        let mut length = 0;
        // SAFETY: the buffer has the length that is passed.
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
            return Read::NotAString;
        }
        // Node-API reserves one unit for a zero: a string that fills all others may be longer.
        if length < SHORT - 1 {
            // SAFETY: that many elements were written.
            let units = unsafe { std::slice::from_raw_parts(self.units.as_ptr().cast::<u16>(), length) };
            let mut all = 0;
            for (byte, unit) in self.ascii.iter_mut().zip(units) {
                all |= unit;
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "checked below: nothing is used unless all units are ASCII"
                )]
                byte.write(*unit as u8);
            }
            if all < 0x80 {
                // SAFETY: that many elements were written.
                return Read::Bytes(unsafe {
                    std::slice::from_raw_parts(self.ascii.as_ptr().cast(), length)
                });
            }
            return Self::to_utf8(units, &mut self.heap);
        }
        // SAFETY: the caller guarantees it.
        match unsafe { long_string(env, value) } {
            Some(units) => Self::to_utf8(&units, &mut self.heap),
            None => Read::NotAString,
        }
    }

    #[cold]
    fn to_utf8<'a>(units: &[u16], heap: &'a mut Vec<u8>) -> Read<'a> {
        let Ok(text) = String::from_utf16(units) else { return Read::UnpairedSurrogate };
        *heap = text.into_bytes();
        Read::Bytes(heap)
    }
}

/// Reads the argument `name` of the current call, which is text or bytes, for longer than the call.
pub(crate) fn owned_bytes(name: &str, env: Env, value: Unknown<'_>) -> Result<Vec<u8>> {
    let mut text = TextBuffer::new();
    // SAFETY: the value is an argument of this call, or a property of one.
    Ok(unsafe { text.bytes(name, env.raw(), value.raw())? }.to_vec())
}

/// The result of reading a value as a string.
enum Read<'a> {
    Bytes(&'a [u8]),
    UnpairedSurrogate,
    NotAString,
}

/// # Safety
/// The environment and the value must be valid.
#[cold]
unsafe fn long_string(env: sys::napi_env, value: sys::napi_value) -> Option<Vec<u16>> {
    let mut length = 0;
    // SAFETY: without a buffer the call only returns the length.
    let status = unsafe { sys::napi_get_value_string_utf16(env, value, ptr::null_mut(), 0, &raw mut length) };
    if status != sys::Status::napi_ok {
        return None;
    }
    let mut units = vec![0; length + 1];
    // SAFETY: the buffer has the length that is passed.
    let status = unsafe {
        sys::napi_get_value_string_utf16(env, value, units.as_mut_ptr(), units.len(), &raw mut length)
    };
    units.truncate(length);
    (status == sys::Status::napi_ok).then_some(units)
}

/// The bytes of a `Uint8Array`, such as a `Buffer`. JavaScript, which could change them, does not run meanwhile.
///
/// # Safety
/// Both must be valid for as long as the bytes are used.
unsafe fn array_bytes<'a>(name: &str, env: sys::napi_env, value: sys::napi_value) -> Result<&'a [u8]> {
    let (mut kind, mut length, mut data, mut buffer) = (-1, 0, ptr::null_mut(), ptr::null_mut());
    // SAFETY: Node-API returns an error for a value that is not a typed array.
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
        return Err(not_bytes(name));
    }
    if length > 0 {
        // SAFETY: the array has that many bytes.
        return Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) });
    }
    let mut is_detached = false;
    // SAFETY: `buffer` is the buffer of the array.
    let status = unsafe { sys::napi_is_detached_arraybuffer(env, buffer, &raw mut is_detached) };
    if status == sys::Status::napi_ok && is_detached {
        return Err(invalid_argument(format!(
            "{name} is a Uint8Array whose buffer is detached: allowed is one whose buffer was not transferred"
        )));
    }
    Ok(&[])
}

fn not_bytes(name: &str) -> napi::Error<Code> {
    invalid_argument(format!(
        "{name} is neither text nor bytes: allowed are text without unpaired surrogates, and a Uint8Array"
    ))
}

/// Creates a JavaScript string from ASCII.
///
/// # Safety
/// The environment must be valid.
pub(crate) unsafe fn string(env: sys::napi_env, text: &str) -> Result<sys::napi_value> {
    let mut string = ptr::null_mut();
    // SAFETY: the text has the length that is passed.
    let status = unsafe {
        sys::napi_create_string_latin1(env, text.as_ptr().cast(), text.len().cast_signed(), &raw mut string)
    };
    if status == sys::Status::napi_ok {
        Ok(string)
    } else {
        Err(internal("Node-API refused to create a string"))
    }
}
