//! `ReserveOperation`, which `AsyncLimiter.reserve` returns: it is awaited, or entered by `async with`.

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::limiter_classes::PyAsyncLimiter;
use crate::once::intern;
use crate::operation::State;
use crate::operation_type;
use crate::reserve::{ReserveArguments, Reserver, Reserving};

/// A reserve that has to be awaited, or entered by ``async with``; both give an ``AsyncReservation``.
#[pyclass(name = "ReserveOperation", module = "polylimit", frozen, weakref)]
pub(crate) struct PyReserveOperation {
    operation: Py<PyAny>,
    reserving: Arc<Reserving>,
}

impl PyReserveOperation {
    pub(crate) fn new(
        limiter: &Bound<'_, PyAsyncLimiter>,
        arguments: ReserveArguments<'_, '_>,
    ) -> PyResult<Self> {
        let py = limiter.py();
        let reserver = Reserver::Asynchronous(limiter.clone().unbind());
        let (call, reserving) = Reserving::call(py, reserver, arguments)?;
        let state = State::NotStarted(limiter.get().core().clone(), Box::new(call));
        Ok(Self { operation: operation_type::create(py, state)?, reserving })
    }
}

#[pymethods]
impl PyReserveOperation {
    fn __await__(&self, py: Python<'_>) -> Py<PyAny> {
        self.operation.clone_ref(py)
    }

    fn __aenter__(&self, py: Python<'_>) -> Py<PyAny> {
        self.reserving.enter_scope();
        self.operation.clone_ref(py)
    }

    #[pyo3(signature = (exception_type, _exception, _traceback, /))]
    fn __aexit__(
        &self,
        py: Python<'_>,
        exception_type: Option<&Bound<'_, PyAny>>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        match self.reserving.leave_scope() {
            Some(reservation) => reservation.get().end_scope(py, exception_type),
            None => operation_type::create(py, State::Ready(py.None())),
        }
    }

    /// Runs the operation until it waits or is finished; for event loops.
    #[pyo3(signature = (value, /))]
    fn send(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.operation.call_method1(py, intern!(py, "send"), (value,))
    }

    /// Ends the operation with an exception; for event loops. A reservation that was already sent to the store is cancelled.
    #[pyo3(signature = (*exception))]
    fn throw(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        self.operation.call_method1(py, intern!(py, "throw"), exception)
    }

    /// Ends the operation without a result.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.operation.call_method0(py, intern!(py, "close"))
    }

    /// Refuses a truth value, as every operation does that has to be awaited.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        operation_type::refuse_truth(py).map(|()| true)
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        "reserve"
    }

    #[getter]
    fn __qualname__(&self) -> &'static str {
        "AsyncLimiter.reserve"
    }

    fn __repr__(this: &Bound<'_, Self>) -> String {
        format!("<operation of AsyncLimiter.reserve at {:p}>", this.as_ptr())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.operation)
    }
}
