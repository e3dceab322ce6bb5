//! `Sender`: what an application in ASGI sends its response through.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::plain_guard::Passed;

/// Adds the fields to a response when it starts. What it returns is what the next one returns, so that it adds no step to
/// what is awaited.
#[pyclass(name = "Sender", module = "polylimit._core", frozen)]
pub(crate) struct Sender {
    send: Py<PyAny>,
    decided: Decided,
    has_started: AtomicBool,
}

/// What was decided about the request.
enum Decided {
    Alone(Py<Passed>),
    /// An object of Python that starts the response itself.
    More(Py<PyAny>),
}

#[pymethods]
impl Sender {
    #[new]
    fn new(send: Py<PyAny>, outcomes: Py<PyAny>) -> Self {
        Self { send, decided: Decided::More(outcomes), has_started: AtomicBool::new(false) }
    }

    #[getter]
    fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Relaxed)
    }

    /// Sends a message on.
    fn __call__(&self, message: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = message.py();
        if !self.starts(message)? {
            return self.send.call1(py, (message,));
        }
        self.has_started.store(true, Ordering::Relaxed);
        let passed = match &self.decided {
            Decided::Alone(passed) => passed.get(),
            Decided::More(outcomes) => {
                return outcomes.call_method1(py, intern!(py, "start"), (&self.send, message));
            }
        };
        if let Some(outcomes) = passed.more() {
            return outcomes.call_method1(py, intern!(py, "start"), (&self.send, message));
        }
        let name = intern!(py, "headers");
        // The application's own message and list stay as they are.
        let started = if let Ok(message) = message.cast::<PyDict>() {
            message.copy()?
        } else {
            let started = PyDict::new(py);
            started.update(message.cast()?)?;
            started
        };
        let headers = PyList::empty(py);
        if let Some(own) = started.get_item(name)? {
            headers.call_method1(intern!(py, "extend"), (own,))?;
        }
        passed.append_to(&headers)?;
        started.set_item(name, headers)?;
        self.send.call1(py, (started,))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.send)?;
        match &self.decided {
            Decided::Alone(passed) => visit.call(passed),
            Decided::More(outcomes) => visit.call(outcomes),
        }
    }
}

impl Sender {
    /// For a request that one guard decided.
    pub(crate) fn of(send: Py<PyAny>, passed: Py<Passed>) -> Self {
        Self { send, decided: Decided::Alone(passed), has_started: AtomicBool::new(false) }
    }

    /// Whether a message starts the response.
    fn starts(&self, message: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.has_started() {
            return Ok(false);
        }
        let py = message.py();
        message.get_item(intern!(py, "type"))?.eq(intern!(py, "http.response.start"))
    }
}
