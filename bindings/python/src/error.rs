//! Errors as Python exceptions: `PolylimitError`, and one subclass for each kind of error in the core's table.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use polylimit::{Error, ErrorKind};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyDict, PyTuple, PyType};

use crate::once::OnceBox;

/// The base class, followed by the class of each kind in the order of [`ErrorKind::ALL`].
static CLASSES: OnceBox<Vec<Py<PyType>>> = OnceBox::new();

const BASE_DOC: &str = "Raised when no decision could be made. A denial is a value and raises nothing.\n\n\
    ``code`` is the kind of error, the same text in every language.";

/// Adds the exception classes to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for class in classes(py)? {
        let class = class.bind(py);
        module.add(class.name()?, class)?;
    }
    Ok(())
}

fn classes(py: Python<'_>) -> PyResult<&Vec<Py<PyType>>> {
    CLASSES.get_or_try_init(|| {
        let exception = py.get_type::<PyException>();
        let base = new_class(py, "PolylimitError", BASE_DOC, None, PyTuple::new(py, [exception])?)?;
        let mut classes = vec![base.clone().unbind()];
        for kind in ErrorKind::ALL {
            let bases = match kind {
                ErrorKind::InvalidArgument => {
                    PyTuple::new(py, [base.clone(), py.get_type::<PyValueError>()])?
                }
                _ => PyTuple::new(py, [base.clone()])?,
            };
            let class = new_class(py, &class_name(kind), class_doc(kind), Some(kind.code()), bases)?;
            classes.push(class.unbind());
        }
        Ok(Box::new(classes))
    })
}

fn new_class<'py>(
    py: Python<'py>,
    name: &str,
    doc: &str,
    code: Option<&str>,
    bases: Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyType>> {
    let dict = PyDict::new(py);
    dict.set_item("__module__", "polylimit")?;
    dict.set_item("__doc__", doc)?;
    if let Some(code) = code {
        dict.set_item("code", code)?;
    }
    Ok(py.get_type::<PyType>().call1((name, bases, dict))?.cast_into()?)
}

/// `store_unavailable` becomes `StoreUnavailableError`.
fn class_name(kind: ErrorKind) -> String {
    let mut name = String::new();
    for word in kind.code().split('_') {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name + "Error"
}

fn class_doc(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidArgument => "An argument is not valid; the same arguments fail again.",
        ErrorKind::StoreUnavailable => "The store could not be reached in time; a later call may succeed.",
        ErrorKind::StoreFailed => "The store was reached and could not decide.",
        ErrorKind::Closed => "The limiter was closed.",
        _ => "A defect in polylimit itself.",
    }
}

/// A new exception of a kind.
pub(crate) fn exception(py: Python<'_>, kind: ErrorKind, message: &str) -> PyErr {
    let class = classes(py).map(|classes| {
        let at = ErrorKind::ALL.iter().position(|other| *other == kind).map_or(0, |at| at + 1);
        classes[at].bind(py).clone()
    });
    match class {
        Ok(class) => PyErr::from_type(class, message.to_owned()),
        Err(error) => error,
    }
}

/// Converts an error of the core.
pub(crate) fn to_exception(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error.kind(), error.message())
}

pub(crate) fn invalid_argument(py: Python<'_>, message: &str) -> PyErr {
    exception(py, ErrorKind::InvalidArgument, message)
}

/// Calls the core: an error becomes an exception, and a panic becomes `InternalError`.
pub(crate) fn call_core<R>(py: Python<'_>, call: impl FnOnce() -> Result<R, Error>) -> PyResult<R> {
    raise_panic(py, catch_unwind(AssertUnwindSafe(call)))?.map_err(|error| to_exception(py, &error))
}

/// As [`call_core`], where arguments were converted: an error about one of them, `name is ...: allowed ...`, shows its value as the
/// caller wrote it.
pub(crate) fn call_core_with<R>(
    py: Python<'_>,
    arguments: &[(&str, Option<&Bound<'_, PyAny>>)],
    call: impl FnOnce() -> Result<R, Error>,
) -> PyResult<R> {
    raise_panic(py, catch_unwind(AssertUnwindSafe(call)))?.map_err(|error| {
        let written = arguments.iter().find_map(|(name, value)| {
            let (subject, rest) = error.message().split_once(" is ")?;
            subject.split(' ').find(|word| word == name)?;
            let allowed = &rest[rest.find(": ").or_else(|| rest.find("; "))?..];
            // The core writes a time as well as a `timedelta` does.
            let value = value.filter(|value| value.cast::<PyDelta>().is_err())?.repr().ok()?;
            Some(format!("{name} is {value}{allowed}"))
        });
        written.map_or_else(|| to_exception(py, &error), |text| exception(py, error.kind(), &text))
    })
}

/// Converts a caught panic to `InternalError`.
pub(crate) fn raise_panic<R>(py: Python<'_>, result: std::thread::Result<R>) -> PyResult<R> {
    result.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown");
        exception(py, ErrorKind::Internal, &format!("polylimit panicked, please report it: {text}"))
    })
}

/// Returns a result as functions of the C API do: the object, or null with the exception set.
pub(crate) fn into_ptr(py: Python<'_>, result: PyResult<Py<PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            null_mut()
        }
    }
}
