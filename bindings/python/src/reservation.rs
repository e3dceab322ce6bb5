//! `Reservation` and `AsyncReservation`: the handles that the limiters' `reserve` returns.

use std::sync::Arc;

use polylimit::Error;
use polylimit::raw::Answer;
use polylimit::reservation::{Reservation, ReservationId};
use pyo3::prelude::*;

use crate::call::{OwnedCall, Recipient};
use crate::convert::read_units;
use crate::decision::PyDecision;
use crate::error::to_exception;
use crate::limiter_classes::{PyAsyncLimiter, PyLimiter};
use crate::operation::State;
use crate::operation_type;
use crate::reservation_end::{Ending, SharedReservation};

/// What both classes have.
pub(crate) struct ReservationParts {
    shared: Arc<SharedReservation>,
    id: ReservationId,
    decision: Py<PyDecision>,
}

impl ReservationParts {
    pub(crate) fn new(reservation: Reservation, decision: Py<PyDecision>) -> Self {
        let id = reservation.id();
        Self { shared: Arc::new(SharedReservation::new(reservation)), id, decision }
    }

    fn end_call(&self, ending: Ending) -> OwnedCall {
        OwnedCall::End(Arc::clone(&self.shared), ending)
    }

    /// The call at the end of a scope; `None` when the reservation was denied or has ended.
    fn scope_end(&self, exception: Option<&Bound<'_, PyAny>>) -> Option<OwnedCall> {
        let has_failed = exception.is_some();
        let ending = if has_failed { Ending::Cancel } else { Ending::AsOptions };
        let recipient = Arc::new(ScopeEnd { has_failed });
        self.shared.is_open().then(|| OwnedCall::For(Box::new(self.end_call(ending)), recipient))
    }

    fn allowed(&self) -> bool {
        self.decision.get().0.allowed()
    }

    fn repr(&self, class: &str) -> String {
        let (allowed, is_lost) = (self.allowed(), self.shared.is_lost());
        let [allowed, is_lost] = [allowed, is_lost].map(|value| if value { "True" } else { "False" });
        format!("{class}(id='{}', allowed={allowed}, is_lost={is_lost})", self.id)
    }
}

/// Reads the units of a commit; `None` is what was reserved.
pub(crate) fn read_spent(spent: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    spent.map(|spent| read_units("spent", spent)).transpose()
}

/// Takes the usage after the end of a scope. When an exception leaves the scope, an error of the end does not take its place.
struct ScopeEnd {
    has_failed: bool,
}

impl Recipient for ScopeEnd {
    fn receive(&self, py: Python<'_>, answer: Result<Answer, Error>) -> PyResult<Py<PyAny>> {
        match answer {
            Err(error) if self.has_failed => to_exception(py, &error).write_unraisable(py, None),
            Err(error) => return Err(to_exception(py, &error)),
            Ok(_) => {}
        }
        Ok(py.None())
    }
}

/// Units that are set aside for the caller, made by ``Limiter.reserve``; true when the request is allowed.
///
/// As a scope, ``with limiter.reserve("tenant:7", cost=4000) as reservation:``, it is cancelled at the end unless it was
/// committed: always when an exception leaves the scope, and otherwise unless ``commit_at_end`` was chosen. A denied
/// reservation enters its scope as well and raises nothing: the caller looks at ``allowed``.
///
/// While it lives, the limiter renews it in the background. One that is forgotten ends when it is freed.
#[pyclass(name = "Reservation", module = "polylimit", frozen, weakref)]
pub(crate) struct PyReservation {
    pub(crate) limiter: Py<PyLimiter>,
    pub(crate) parts: ReservationParts,
}

#[pymethods]
impl PyReservation {
    /// Whether every quota has admitted the request, so that its units are set aside.
    #[getter]
    fn allowed(&self) -> bool {
        self.parts.allowed()
    }

    /// The decision on the request.
    #[getter]
    fn decision(&self, py: Python<'_>) -> Py<PyDecision> {
        self.parts.decision.clone_ref(py)
    }

    /// The id, by which another process can end the reservation.
    #[getter]
    fn id(&self) -> String {
        self.parts.id.to_string()
    }

    /// Whether the reservation is known to have ended without its holder, so that its units may be admitted to others meanwhile.
    #[getter]
    fn is_lost(&self) -> bool {
        self.parts.shared.is_lost()
    }

    /// Ends the reservation and charges what was spent. The usage's ``found`` is false, and nothing is charged, when the
    /// reservation has ended before or was denied.
    ///
    /// Parameters
    /// ----------
    /// spent
    ///     Units, from 0 to 10**12: less than was reserved, or more; the default is what was reserved.
    #[pyo3(signature = (spent = None))]
    fn commit(&self, py: Python<'_>, spent: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let call = self.parts.end_call(Ending::Commit(read_spent(spent)?));
        self.limiter.get().call(py, &call)
    }

    /// Ends the reservation and spends nothing. The usage's ``found`` is false when it has ended before or was denied.
    fn cancel(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.limiter.get().call(py, &self.parts.end_call(Ending::Cancel))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (exception_type, _exception, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception_type: Option<&Bound<'_, PyAny>>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self.parts.scope_end(exception_type) {
            Some(call) => self.limiter.get().call(py, &call).map(drop),
            None => Ok(()),
        }
    }

    fn __bool__(&self) -> bool {
        self.parts.allowed()
    }

    fn __repr__(&self) -> String {
        self.parts.repr("Reservation")
    }
}

/// Units that are set aside for the caller, made by ``AsyncLimiter.reserve``; true when the request is allowed.
///
/// As a scope, ``async with limiter.reserve("tenant:7", cost=4000) as reservation:``, it is cancelled at the end unless it was
/// committed: always when an exception leaves the scope, and otherwise unless ``commit_at_end`` was chosen. A denied
/// reservation enters its scope as well and raises nothing: the caller looks at ``allowed``.
///
/// While it lives, the limiter renews it in the background. One that is forgotten ends when it is freed.
#[pyclass(name = "AsyncReservation", module = "polylimit", frozen, weakref)]
pub(crate) struct PyAsyncReservation {
    pub(crate) limiter: Py<PyAsyncLimiter>,
    pub(crate) parts: ReservationParts,
}

impl PyAsyncReservation {
    fn create(&self, py: Python<'_>, call: OwnedCall) -> PyResult<Py<PyAny>> {
        operation_type::create(py, State::NotStarted(self.limiter.get().core().clone(), Box::new(call)))
    }

    /// The operation at the end of a scope.
    pub(crate) fn end_scope(
        &self,
        py: Python<'_>,
        exception: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        match self.parts.scope_end(exception) {
            Some(call) => self.create(py, call),
            None => operation_type::create(py, State::Ready(py.None())),
        }
    }
}

#[pymethods]
impl PyAsyncReservation {
    /// Whether every quota has admitted the request, so that its units are set aside.
    #[getter]
    fn allowed(&self) -> bool {
        self.parts.allowed()
    }

    /// The decision on the request.
    #[getter]
    fn decision(&self, py: Python<'_>) -> Py<PyDecision> {
        self.parts.decision.clone_ref(py)
    }

    /// The id, by which another process can end the reservation.
    #[getter]
    fn id(&self) -> String {
        self.parts.id.to_string()
    }

    /// Whether the reservation is known to have ended without its holder, so that its units may be admitted to others meanwhile.
    #[getter]
    fn is_lost(&self) -> bool {
        self.parts.shared.is_lost()
    }

    /// Ends the reservation and charges what was spent. The usage's ``found`` is false, and nothing is charged, when the
    /// reservation has ended before or was denied.
    ///
    /// Parameters
    /// ----------
    /// spent
    ///     Units, from 0 to 10**12: less than was reserved, or more; the default is what was reserved.
    #[pyo3(signature = (spent = None))]
    fn commit(&self, py: Python<'_>, spent: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        self.create(py, self.parts.end_call(Ending::Commit(read_spent(spent)?)))
    }

    /// Ends the reservation and spends nothing. The usage's ``found`` is false when it has ended before or was denied.
    fn cancel(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.create(py, self.parts.end_call(Ending::Cancel))
    }

    fn __aenter__(this: Py<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        operation_type::create(py, State::Ready(this.into_any()))
    }

    #[pyo3(signature = (exception_type, _exception, _traceback, /))]
    fn __aexit__(
        &self,
        py: Python<'_>,
        exception_type: Option<&Bound<'_, PyAny>>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        self.end_scope(py, exception_type)
    }

    fn __bool__(&self) -> bool {
        self.parts.allowed()
    }

    fn __repr__(&self) -> String {
        self.parts.repr("AsyncReservation")
    }
}
