//! The `send` of an ASGI application that adds the header fields of a request's limits.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::once::intern;
use crate::request_limits::PyRequestLimits;

/// The ``send`` that an ASGI application gets: adds the header fields when the response starts. It returns the awaitable of the
/// original ``send``, so that it adds no step to the event loop's work.
#[pyclass(name = "ResponseSender", module = "polylimit._core", frozen)]
pub(crate) struct ResponseSender {
    scope: Py<PyAny>,
    send: Py<PyAny>,
    start: Py<PyAny>,
    end: Py<PyAny>,
    limits: Py<PyRequestLimits>,
    has_started: AtomicBool,
}

#[pymethods]
impl ResponseSender {
    /// ``start`` is called with the limits, ``scope``, ``send`` and the start of the response where ``finish`` has to be called, and ``end`` with the
    /// limits, ``send`` and the last message of the response where reservations have to be ended.
    #[new]
    pub(crate) fn new(
        limits: Py<PyRequestLimits>,
        scope: Py<PyAny>,
        send: Py<PyAny>,
        start: Py<PyAny>,
        end: Py<PyAny>,
    ) -> Self {
        Self { scope, send, start, end, limits, has_started: AtomicBool::new(false) }
    }

    #[getter]
    fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Relaxed)
    }

    /// Sends a message.
    fn __call__(&self, message: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = message.py();
        if !self.starts(message)? {
            if self.limits.get().reads_body() && message.contains(intern!(py, "body"))? {
                self.limits.get().read_part(&message.get_item(intern!(py, "body"))?)?;
            }
            if self.limits.get().holds() && Self::ends(message)? {
                return self.end.call1(py, (&self.limits, &self.send, message));
            }
            return self.send.call1(py, (message,));
        }
        self.has_started.store(true, Ordering::Relaxed);
        let limits = self.limits.get();
        if limits.must_finish() {
            return self.start.call1(py, (&self.limits, &self.scope, &self.send, message));
        }
        limits.finish_counted();
        let name = intern!(py, "headers");
        // The message and the list belong to the application and must not change.
        let started = if let Ok(message) = message.cast::<PyDict>() {
            message.copy()?
        } else {
            let started = PyDict::new(py);
            started.update(message.cast()?)?;
            started
        };
        let headers = match started.get_item(name)? {
            None => PyList::empty(py),
            Some(own) => match own.cast_exact::<PyList>() {
                Ok(own) => own.get_slice(0, own.len()),
                Err(_) => PyList::new(py, own.try_iter()?.collect::<PyResult<Vec<_>>>()?)?,
            },
        };
        limits.append_to(&headers)?;
        started.set_item(name, headers)?;
        self.send.call1(py, (started,))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.scope)?;
        visit.call(&self.send)?;
        visit.call(&self.start)?;
        visit.call(&self.end)?;
        visit.call(&self.limits)
    }
}

impl ResponseSender {
    /// Whether a message is the start of the response.
    fn starts(&self, message: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.has_started() {
            return Ok(false);
        }
        let py = message.py();
        message.get_item(intern!(py, "type"))?.eq(intern!(py, "http.response.start"))
    }

    /// Whether a message is the last one of a response: a part of the body after which none follows, or a file as a whole.
    fn ends(message: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = message.py();
        let kind = message.get_item(intern!(py, "type"))?;
        if kind.eq(intern!(py, "http.response.body"))? {
            let name = intern!(py, "more_body");
            return Ok(!message.contains(name)? || !message.get_item(name)?.is_truthy()?);
        }
        kind.eq(intern!(py, "http.response.pathsend"))
    }
}
