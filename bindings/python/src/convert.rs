//! Conversion of arguments: text, keys, costs, other whole numbers, and durations.

use std::ops::Deref;
use std::time::Duration;

use polylimit::Request;
use pyo3::PyClass;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeEncodeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBool, PyBytes, PyDelta, PyDeltaAccess, PyFloat, PyInt, PyString};

use crate::error::invalid_argument;
use crate::once::intern;

/// A Python `str` whose UTF-8 form is read without copying it. The interpreter caches that form in the object, which this
/// type keeps alive.
pub(crate) struct Utf8Text {
    object: Py<PyString>,
    start: *const u8,
    length: usize,
}

// SAFETY: a `str` is immutable, and its cached UTF-8 form lives as long as the object.
unsafe impl Send for Utf8Text {}
// SAFETY: as above.
unsafe impl Sync for Utf8Text {}

impl Utf8Text {
    /// Reads the argument `name`. A lone surrogate cannot be encoded and is an invalid argument.
    pub(crate) fn new(text: &Bound<'_, PyString>, name: &str) -> PyResult<Self> {
        let py = text.py();
        let Some(utf8) = borrow_utf8(text) else {
            let error = PyErr::fetch(py);
            if error.is_instance_of::<PyUnicodeEncodeError>(py) {
                return Err(invalid_argument(
                    py,
                    &format!("{name} has half of a surrogate pair: it is no text"),
                ));
            }
            return Err(error);
        };
        Ok(Self::from_borrowed(text, utf8))
    }

    /// Reads the argument `name`; raises `TypeError` unless it is a `str`.
    pub(crate) fn read(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        match value.cast::<PyString>() {
            Ok(text) => Self::new(text, name),
            Err(_) => Err(wrong_type(name, value, "allowed is str")),
        }
    }

    /// Keeps `text` alive together with `utf8`, which [`borrow_utf8`] returned for it.
    pub(crate) fn from_borrowed(text: &Bound<'_, PyString>, utf8: &str) -> Self {
        Self { object: text.clone().unbind(), start: utf8.as_ptr(), length: utf8.len() }
    }

    /// Drops the text where pyo3 does not know that this thread is attached to the interpreter: its own `drop` would defer
    /// the release.
    pub(crate) fn release(self, py: Python<'_>) {
        self.object.drop_ref(py);
    }
}

impl Deref for Utf8Text {
    type Target = str;

    fn deref(&self) -> &str {
        // SAFETY: the interpreter returned this many bytes of UTF-8 and keeps them as long as the object lives.
        unsafe { str::from_utf8_unchecked(std::slice::from_raw_parts(self.start, self.length)) }
    }
}

/// Borrows the UTF-8 form of a text; `None` with an exception set when it has none.
pub(crate) fn borrow_utf8<'a>(text: &'a Bound<'_, PyString>) -> Option<&'a str> {
    let mut length = 0;
    // SAFETY: `text` is a `str`, and this thread is attached to the interpreter.
    let start = unsafe { ffi::PyUnicode_AsUTF8AndSize(text.as_ptr(), &raw mut length) };
    if start.is_null() {
        return None;
    }
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: the interpreter returned this many bytes of UTF-8 and keeps them as long as the object lives.
    Some(unsafe { str::from_utf8_unchecked(std::slice::from_raw_parts(start.cast(), length)) })
}

/// The error of an argument of another type than the allowed ones.
#[cold]
pub(crate) fn wrong_type(name: &str, value: &Bound<'_, PyAny>, allowed: &str) -> PyErr {
    let kind = value.get_type();
    match kind.name() {
        Ok(kind) => PyTypeError::new_err(format!("{name} is of type {kind}: {allowed}")),
        Err(error) => error,
    }
}

/// Reads the argument `name`, an object of one of this module's classes.
pub(crate) fn read_object<'a, 'py, T: PyClass>(
    name: &str,
    value: &'a Bound<'py, PyAny>,
) -> PyResult<&'a Bound<'py, T>> {
    let class = || {
        format!(
            "allowed is {}",
            value.py().get_type::<T>().name().map_or_else(|_| String::new(), |name| name.to_string())
        )
    };
    value.cast::<T>().map_err(|_| wrong_type(name, value, &class()))
}

/// Reads the argument `name`, a truth value.
pub(crate) fn read_bool(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.extract().map_err(|_| wrong_type(name, value, "allowed is bool"))
}

/// Reads the argument `name`, an iterable; `allowed` says of what. The characters of a text are no items.
pub(crate) fn read_items<'py, T>(
    name: &str,
    value: &Bound<'py, PyAny>,
    allowed: &str,
    mut read: impl FnMut(Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let is_text = value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>();
    match value.try_iter() {
        Ok(items) if !is_text => items.map(|item| read(item?)).collect(),
        Err(error) if !error.is_instance_of::<PyTypeError>(value.py()) => Err(error),
        _ => Err(wrong_type(name, value, &format!("allowed is {allowed}"))),
    }
}

/// A key, or the value of an attribute: text, bytes, a whole number, which counts as its decimal text, or a UUID, which counts as its
/// text. Equal bytes are the same key.
pub(crate) enum Key {
    Text(Utf8Text),
    Bytes(PyBackedBytes),
    Owned(Box<[u8]>),
}

impl Key {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl Key {
    /// Reads the argument `name`.
    pub(crate) fn read(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Self::Text(Utf8Text::new(text, name)?));
        }
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.to_owned().into()));
        }
        if let Some(number) = whole_number(value) {
            return Ok(Self::Owned(decimal(name, &number?)?.into_bytes().into()));
        }
        if is_uuid(value)? {
            return Ok(Self::Owned(value.str()?.to_string().into_bytes().into()));
        }
        Err(wrong_type(name, value, "allowed are str, bytes, int and UUID"))
    }
}

impl<'py> FromPyObject<'_, 'py> for Key {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Self::read("key", &value)
    }
}

/// The whole number that a value stands for: an `int`, or what `operator.index` makes one of, such as the numbers of numpy. `None` for
/// any other value, and for truth values.
fn whole_number<'py>(value: &Bound<'py, PyAny>) -> Option<PyResult<Bound<'py, PyAny>>> {
    // SAFETY: the object is borrowed from the interpreter.
    let is_whole = unsafe { ffi::PyIndex_Check(value.as_ptr()) != 0 };
    if !is_whole || value.is_instance_of::<PyBool>() {
        return None;
    }
    // SAFETY: as above.
    Some(unsafe { Bound::from_owned_ptr_or_err(value.py(), ffi::PyNumber_Index(value.as_ptr())) })
}

/// Whether a value is a `uuid.UUID`. There is none before that module is imported.
fn is_uuid(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    match modules.get_item(intern!(py, "uuid")) {
        Ok(uuid) => value.is_instance(&uuid.getattr(intern!(py, "UUID"))?),
        Err(_) => Ok(false),
    }
}

/// The decimal text of an `int`. A subclass such as an enumeration may have another `str`.
fn decimal(name: &str, number: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = number.call_method0(intern!(number.py(), "__index__"))?.str();
    text.map(|text| text.to_string()).map_err(|_| {
        invalid_argument(number.py(), &format!("{name} is a number of more digits than Python writes out"))
    })
}

/// The decimal text of a whole number; `None` for any other value.
pub(crate) fn whole_text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    whole_number(value).map(|number| decimal(name, &number?)).transpose()
}

/// Reads a cost.
pub(crate) fn read_cost(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    read_units("cost", value)
}

/// Reads the argument `name`, units from 0 to the largest cost.
pub(crate) fn read_units(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    read_number(name, value, Request::MAX_COST)
}

/// Reads a headroom, in percent.
pub(crate) fn read_headroom(value: &Bound<'_, PyAny>) -> PyResult<u8> {
    let percent = read_number("headroom", value, Request::MAX_HEADROOM.into())?;
    Ok(u8::try_from(percent).unwrap_or(u8::MAX))
}

/// Reads the argument `name`, a whole number from 0 to `max`.
fn read_number(name: &str, value: &Bound<'_, PyAny>, max: u64) -> PyResult<u64> {
    // A fraction is refused in the same way as a number out of range.
    let number = if value.is_instance_of::<PyFloat>() { value.clone() } else { read_whole(name, value)? };
    if let Some(number) = number.extract().ok().filter(|number| *number <= max) {
        return Ok(number);
    }
    Err(invalid_argument(
        value.py(),
        &format!("{name} is {}: allowed is a whole number from 0 to {max}", short_repr(&number)),
    ))
}

/// Reads the argument `name`, a whole number of any size. A fraction is an invalid argument.
fn read_whole<'py>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if let Some(number) = whole_number(value) {
        return number;
    }
    if value.is_instance_of::<PyFloat>() {
        return Err(invalid_argument(
            value.py(),
            &format!("{name} is {}: allowed is a whole number, as an int", short_repr(value)),
        ));
    }
    Err(wrong_type(name, value, "allowed is int"))
}

/// Reads the argument `name`, a whole number. One that does not fit into `N` is an invalid argument.
pub(crate) fn read_integer<N>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<N>
where
    N: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    let py = value.py();
    let number = read_whole(name, value)?;
    number.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(py) {
            invalid_argument(py, &format!("{name} is {}: it is out of bounds", short_repr(&number)))
        } else {
            error
        }
    })
}

fn short_repr(number: &Bound<'_, PyAny>) -> String {
    const MAX_LENGTH: usize = 40;
    match number.repr().map(|repr| repr.to_string()) {
        Ok(text) if text.len() <= MAX_LENGTH => text,
        _ => "a number of many digits".to_owned(),
    }
}

/// Reads the argument `name`, a `timedelta` or seconds as a number, in whole microseconds.
pub(crate) fn read_duration(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = value.py();
    let out_of_range = || {
        let shown = value.repr().map_or_else(|_| "unreadable".to_owned(), |repr| repr.to_string());
        invalid_argument(
            py,
            &format!("{name} is {shown}: allowed are seconds from 0 up, or a timedelta of 0 or more"),
        )
    };
    if let Ok(delta) = value.cast::<PyDelta>() {
        let days = u64::try_from(delta.get_days()).map_err(|_| out_of_range())?;
        let seconds = u64::try_from(delta.get_seconds()).map_err(|_| out_of_range())?;
        let us = u64::try_from(delta.get_microseconds()).map_err(|_| out_of_range())?;
        return Ok(Duration::from_secs(days * 86_400 + seconds) + Duration::from_micros(us));
    }
    if !is_real(value) {
        return Err(wrong_type(name, value, "allowed are seconds as a number, or a timedelta"));
    }
    let seconds: f64 = value.extract().map_err(|_| out_of_range())?;
    match seconds {
        seconds if seconds == f64::INFINITY => Ok(Duration::MAX),
        seconds if seconds >= 0.0 => {
            Ok(Duration::try_from_secs_f64(seconds).map_or(Duration::MAX, round_to_microseconds))
        }
        _ => Err(out_of_range()),
    }
}

/// Whether a value is a number of the language, or one that converts to a `float` or an `int` as those of numpy do; a truth value is
/// none, and neither is a `Decimal` or a `Fraction`.
pub(crate) fn is_real(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is borrowed from the interpreter.
    let is_whole = unsafe { ffi::PyIndex_Check(value.as_ptr()) != 0 };
    (value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() || is_whole)
        && !value.is_instance_of::<PyBool>()
}

/// Rounds a float of seconds, which is near a whole number of microseconds but rarely equal to it.
fn round_to_microseconds(duration: Duration) -> Duration {
    let us = duration.saturating_add(Duration::from_nanos(500)).as_micros();
    u64::try_from(us).map_or(Duration::MAX, Duration::from_micros)
}

/// Microseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "every float has an exact twin in microseconds")]
pub(crate) fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
