//! Keys and costs as a caller gives them.

use polylimit::Request;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};

use crate::error::invalid_argument;
use crate::utf8::Utf8;

/// Text, bytes, or a whole number, which stands for its decimal text; the same bytes are the same key.
pub(crate) enum Key {
    Text(Utf8),
    Bytes(PyBackedBytes),
    /// Made here.
    Own(Box<[u8]>),
}

impl Key {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::Own(bytes) => bytes,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Key {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Self::Text(Utf8::of(&text, "key")?));
        }
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.to_owned().into()));
        }
        if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
            return Ok(Self::Own(decimal(&value)?.into_bytes().into()));
        }
        Err(PyTypeError::new_err(format!(
            "key is of type {}: allowed are str, bytes and int",
            value.get_type().name()?
        )))
    }
}

/// A whole number as text, whatever a subclass such as an enumeration shows.
fn decimal(number: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = number.call_method0(intern!(number.py(), "__index__"))?.str();
    text.map(|text| text.to_string())
        .map_err(|_| invalid_argument(number.py(), "key is a number of more digits than Python writes out"))
}

/// Reads a cost; what is no whole number of units is refused as one that is out of range is.
pub(crate) fn cost(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = value.py();
    if value.is_instance_of::<PyInt>() {
        if let Some(cost) = value.extract().ok().filter(|cost| *cost <= Request::MAX_COST) {
            return Ok(cost);
        }
    } else if !value.is_instance_of::<PyFloat>() {
        return Err(PyTypeError::new_err(format!(
            "cost is of type {}: allowed is int",
            value.get_type().name()?
        )));
    }
    Err(invalid_argument(
        py,
        &format!("cost is {}: allowed is a whole number from 0 to {}", shown(value), Request::MAX_COST),
    ))
}

/// Reads another whole number that the caller calls `name`; what does not fit its type is refused as the core refuses what is
/// out of bounds.
pub(crate) fn whole<N>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<N>
where
    N: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    let py = value.py();
    if !value.is_instance_of::<PyInt>() {
        let kind = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{name} is of type {kind}: allowed is int")));
    }
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(py) {
            invalid_argument(py, &format!("{name} is {}: it is out of bounds", shown(value)))
        } else {
            error
        }
    })
}

/// A number as text, however long it is.
fn shown(number: &Bound<'_, PyAny>) -> String {
    const LONGEST: usize = 40;
    match number.repr().map(|repr| repr.to_string()) {
        Ok(text) if text.len() <= LONGEST => text,
        _ => "a number of many digits".to_owned(),
    }
}
