//! `RequestReservation`: the decisions on requests that were reserved together, and the id of their reservations.

use polylimit::Decision;
use polylimit::reservation::ReservationId;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::decision::PyDecision;
use crate::value::immutable;

/// The result of ``reserve_together``: the decision on each request, and the id of the reservations; true when all are admitted.
#[pyclass(name = "RequestReservation", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyRequestReservation {
    id: ReservationId,
    decisions: Vec<Decision>,
}

impl PyRequestReservation {
    pub(crate) fn new(id: ReservationId, decisions: Vec<Decision>) -> Self {
        Self { id, decisions }
    }
}

#[pymethods]
impl PyRequestReservation {
    /// Whether every request is admitted, so that units are set aside or spent.
    #[getter]
    fn allowed(&self) -> bool {
        self.decisions.iter().all(Decision::allowed)
    }

    /// The decision on each request, in their order. In a denied request, those that admit are the decisions of a peek.
    #[getter]
    fn decisions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let each = self.decisions.iter().map(|decision| Py::new(py, PyDecision(decision.clone())));
        PyTuple::new(py, each.collect::<PyResult<Vec<_>>>()?)
    }

    /// The id of the reservations, for the limiter's ``commit``, ``cancel`` and ``renew``.
    #[getter]
    fn id(&self) -> String {
        self.id.to_string()
    }

    fn __bool__(&self) -> bool {
        self.allowed()
    }

    fn __repr__(&self) -> String {
        let allowed = if self.allowed() { "True" } else { "False" };
        format!("RequestReservation(id='{}', allowed={allowed}, decisions={})", self.id, self.decisions.len())
    }
}

immutable!(PyRequestReservation);
