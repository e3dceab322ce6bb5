//! Errors as Python exceptions: `PolylimitError`, and one subclass for each kind of the core's table.

use std::panic::{AssertUnwindSafe, catch_unwind};

use polylimit::{Error, ErrorKind};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// The exception of every kind, in the order of [`ErrorKind::ALL`], after that of all.
static CLASSES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();

const BASE_DOC: &str = "Why no decision could be made. A denial is a value and raises nothing.\n\n\
    ``code`` is the kind of error, the same text in every language.";

/// Adds the exceptions to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for class in classes(py)? {
        let class = class.bind(py);
        module.add(class.name()?, class)?;
    }
    Ok(())
}

fn classes(py: Python<'_>) -> PyResult<&Vec<Py<PyType>>> {
    CLASSES.get_or_try_init(py, || {
        let exception = py.get_type::<PyException>();
        let base = class(py, "PolylimitError", BASE_DOC, None, PyTuple::new(py, [exception])?)?;
        let mut classes = vec![base.clone().unbind()];
        for kind in ErrorKind::ALL {
            let bases = match kind {
                ErrorKind::InvalidArgument => {
                    PyTuple::new(py, [base.clone(), py.get_type::<PyValueError>()])?
                }
                _ => PyTuple::new(py, [base.clone()])?,
            };
            classes.push(class(py, &class_name(kind), about(kind), Some(kind.code()), bases)?.unbind());
        }
        Ok(classes)
    })
}

fn class<'py>(
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

fn about(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidArgument => "Something that is not allowed was passed; the same input fails again.",
        ErrorKind::StoreUnavailable => "The store could not be reached in time; it may be later.",
        ErrorKind::StoreFailed => "The store was reached and could not decide.",
        ErrorKind::Closed => "The limiter was closed.",
        _ => "A defect in polylimit itself.",
    }
}

/// An exception of a kind.
pub(crate) fn raise(py: Python<'_>, kind: ErrorKind, message: &str) -> PyErr {
    let class = classes(py).map(|classes| {
        let at = ErrorKind::ALL.iter().position(|other| *other == kind).map_or(0, |at| at + 1);
        classes[at].bind(py).clone()
    });
    match class {
        Ok(class) => PyErr::from_type(class, message.to_owned()),
        Err(error) => error,
    }
}

/// The one conversion of the core's errors.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    raise(py, error.kind(), error.message())
}

pub(crate) fn invalid_argument(py: Python<'_>, message: &str) -> PyErr {
    raise(py, ErrorKind::InvalidArgument, message)
}

/// Calls the core; its errors become exceptions, and a panic becomes `InternalError`.
pub(crate) fn guarded<R>(py: Python<'_>, call: impl FnOnce() -> Result<R, Error>) -> PyResult<R> {
    unpanicked(py, catch_unwind(AssertUnwindSafe(call)))?.map_err(|error| to_python(py, &error))
}

/// What was called, unless it panicked.
pub(crate) fn unpanicked<R>(py: Python<'_>, result: std::thread::Result<R>) -> PyResult<R> {
    result.map_err(|panic| {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown");
        raise(py, ErrorKind::Internal, &format!("polylimit panicked, please report it: {said}"))
    })
}
