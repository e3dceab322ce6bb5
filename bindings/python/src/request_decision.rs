//! `RequestDecision` and `PolicyDecision`: the decision on a request by its attributes.

use polylimit::decision::Cause;
use polylimit::document::{PolicyDecision, RequestDecision};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::seconds;
use crate::decision::PyDecision;
use crate::value::immutable;

/// The decision on a request by the lists, rules and policies of a configuration; true when the request is allowed.
#[pyclass(name = "RequestDecision", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyRequestDecision(pub(crate) RequestDecision);

#[pymethods]
impl PyRequestDecision {
    /// Whether the request may proceed.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.allowed
    }

    /// The cause of the first denial, or why the request was admitted without the store: as the ``cause`` of a ``Decision``.
    #[getter]
    fn cause(&self) -> Option<&'static str> {
        self.0.cause.map(Cause::name)
    }

    /// The HTTP status of a denial: 400 for a missing key, 403 for a deny list, otherwise 429. ``None`` when allowed.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.0.status()
    }

    /// Seconds until the request would be admitted: the longest over the denials; 0 when allowed, and ``None`` for never.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after_us.map(seconds)
    }

    /// ``retry_after`` in whole microseconds, exact.
    #[getter]
    fn retry_after_us(&self) -> Option<u64> {
        self.0.retry_after_us
    }

    /// The decisions of the policies that the rules apply, in their order; none where a list or a missing key decides.
    #[getter]
    fn decisions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let each = self.0.decisions.iter().map(|decision| Py::new(py, PyPolicyDecision(decision.clone())));
        PyTuple::new(py, each.collect::<PyResult<Vec<_>>>()?)
    }

    fn __bool__(&self) -> bool {
        self.0.allowed
    }

    fn __repr__(&self) -> String {
        let RequestDecision { allowed, cause, retry_after_us, decisions, .. } = &self.0;
        let allowed = if *allowed { "True" } else { "False" };
        let cause = cause.map_or("None".to_owned(), |cause| format!("'{}'", cause.name()));
        let retry_after = retry_after_us.map_or("None".to_owned(), |us| format!("{:?}", seconds(us)));
        let names: Vec<_> = decisions.iter().map(|decision| &*decision.policy).collect();
        format!(
            "RequestDecision(allowed={allowed}, cause={cause}, retry_after={retry_after}, policies={names:?})"
        )
    }
}

/// The decision of one policy on a request.
#[pyclass(name = "PolicyDecision", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyPolicyDecision(PolicyDecision);

#[pymethods]
impl PyPolicyDecision {
    /// The policy's name.
    #[getter]
    fn policy(&self) -> &str {
        &self.0.policy
    }

    /// The key under the policy.
    #[getter]
    fn key(&self) -> &[u8] {
        &self.0.key
    }

    /// The units that the request spends.
    #[getter]
    fn cost(&self) -> u64 {
        self.0.cost
    }

    /// The part of each quota that the request leaves for others, in percent.
    #[getter]
    fn headroom(&self) -> u8 {
        self.0.headroom
    }

    /// The decision. Those of a denied request may admit it: what they spent is given back.
    #[getter]
    fn decision(&self) -> PyDecision {
        PyDecision(self.0.decision.clone())
    }

    /// The id of the reservation that was made under the policy, for the limiter's ``commit`` and ``cancel``; ``None`` where units
    /// were spent.
    #[getter]
    fn reservation(&self) -> Option<String> {
        self.0.reservation.map(|id| id.to_string())
    }

    /// Omits the key, which may be a secret or a person's name.
    fn __repr__(&self) -> String {
        let PolicyDecision { policy, cost, headroom, decision, .. } = &self.0;
        let allowed = if decision.allowed() { "True" } else { "False" };
        format!(
            "PolicyDecision(policy='{policy}', key=..., cost={cost}, headroom={headroom}, allowed={allowed})"
        )
    }
}

immutable!(PyRequestDecision, PyPolicyDecision);
