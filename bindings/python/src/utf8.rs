//! Text as the interpreter itself holds it in UTF-8: without a copy.

use std::ffi::c_char;
use std::ops::Deref;

use pyo3::exceptions::{PyTypeError, PyUnicodeEncodeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::invalid_argument;

unsafe extern "C" {
    /// In the stable ABI from 3.10 on. 3.9 exports it with the same signature, and will not change any more.
    fn PyUnicode_AsUTF8AndSize(text: *mut ffi::PyObject, length: *mut ffi::Py_ssize_t) -> *const c_char;
}

/// A text, kept alive for as long as its bytes are read.
pub(crate) struct Utf8 {
    object: Py<PyString>,
    start: *const u8,
    length: usize,
}

// SAFETY: a `str` never changes, and neither do the bytes that it keeps until it is freed.
unsafe impl Send for Utf8 {}
// SAFETY: as above.
unsafe impl Sync for Utf8 {}

impl Utf8 {
    /// Reads a text that the caller calls `name`; half of a surrogate pair is no text.
    pub(crate) fn of(text: &Bound<'_, PyString>, name: &str) -> PyResult<Self> {
        let py = text.py();
        let Some(read) = borrowed(text) else {
            let error = PyErr::fetch(py);
            if error.is_instance_of::<PyUnicodeEncodeError>(py) {
                return Err(invalid_argument(
                    py,
                    &format!("{name} has half of a surrogate pair: it is no text"),
                ));
            }
            return Err(error);
        };
        Ok(Self::holding(text, read))
    }

    /// Reads what the caller calls `name`, which has to be a text.
    pub(crate) fn read(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let Ok(text) = value.cast::<PyString>() else {
            let kind = value.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{name} is of type {kind}: allowed is str")));
        };
        Self::of(text, name)
    }

    /// Keeps what was read of a text.
    pub(crate) fn holding(text: &Bound<'_, PyString>, read: &str) -> Self {
        Self { object: text.clone().unbind(), start: read.as_ptr(), length: read.len() }
    }

    /// Ends it on a thread that is attached to the interpreter without pyo3 knowing it.
    pub(crate) fn release(self, py: Python<'_>) {
        self.object.drop_ref(py);
    }
}

impl Deref for Utf8 {
    type Target = str;

    fn deref(&self) -> &str {
        // SAFETY: the interpreter gave so many bytes of UTF-8, and keeps them for as long as the object lives.
        unsafe { str::from_utf8_unchecked(std::slice::from_raw_parts(self.start, self.length)) }
    }
}

/// Reads a text for as long as it is borrowed; `None` when the interpreter has set an exception instead.
pub(crate) fn borrowed<'a>(text: &'a Bound<'_, PyString>) -> Option<&'a str> {
    let mut length = 0;
    // SAFETY: `text` is a `str`, and this thread is attached to the interpreter.
    let start = unsafe { PyUnicode_AsUTF8AndSize(text.as_ptr(), &raw mut length) };
    if start.is_null() {
        return None;
    }
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: the interpreter gave so many bytes of UTF-8, and keeps them for as long as the object lives.
    Some(unsafe { str::from_utf8_unchecked(std::slice::from_raw_parts(start.cast(), length)) })
}
