//! `Decision`, `Usage` and `QuotaUsage`: what an operation answers.

use std::fmt::Write as _;

use polylimit::{Decision, Degradation, QuotaUsage, Source, Usage};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::duration::seconds;

/// The answer to a check, a peek or an acquire; true when the request is allowed.
#[pyclass(name = "Decision", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyDecision(pub(crate) Decision);

#[pymethods]
impl PyDecision {
    /// Whether every quota of the policy admits the request.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.allowed()
    }

    /// Whole units that can still be spent right now, after this decision: the least over the quotas.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining()
    }

    /// Seconds until the same request, alone, would be admitted: exactly then, and not earlier. 0 when allowed; ``None``
    /// is never: the cost exceeds what a quota can ever admit.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after_us().map(seconds)
    }

    /// ``retry_after`` in whole microseconds, exact.
    #[getter]
    fn retry_after_us(&self) -> Option<u64> {
        self.0.retry_after_us()
    }

    /// Seconds until nothing counts as used any more if nothing else arrives: the longest over the quotas.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds(self.0.reset_after_us())
    }

    /// ``reset_after`` in whole microseconds, exact.
    #[getter]
    fn reset_after_us(&self) -> u64 {
        self.0.reset_after_us()
    }

    /// Seconds that this admitted request has to wait for its turn: leaky bucket only, otherwise 0.
    #[getter]
    fn delay(&self) -> f64 {
        seconds(self.0.delay_us())
    }

    /// ``delay`` in whole microseconds, exact.
    #[getter]
    fn delay_us(&self) -> u64 {
        self.0.delay_us()
    }

    /// Where the answer came from, such as ``"store"``, or ``"fallback"`` while the store could not be asked.
    #[getter]
    fn source(&self) -> &'static str {
        self.0.source().name()
    }

    /// Why this is not what a healthy store would have answered for this key alone, such as ``"timeout"``; ``None`` when
    /// it is.
    #[getter]
    fn degraded(&self) -> Option<&'static str> {
        self.0.degraded().map(Degradation::name)
    }

    /// Each quota's own view, in the policy's order.
    #[getter]
    fn quotas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        quotas(py, self.0.quotas())
    }

    fn __bool__(&self) -> bool {
        self.0.allowed()
    }

    fn __repr__(&self) -> String {
        let decision = &self.0;
        let mut text = format!(
            "Decision(allowed={}, remaining={}, retry_after={}, reset_after={:?}",
            truth(decision.allowed()),
            decision.remaining(),
            decision.retry_after_us().map_or("None".to_owned(), |us| format!("{:?}", seconds(us))),
            seconds(decision.reset_after_us()),
        );
        if decision.delay_us() > 0 {
            let _ = write!(text, ", delay={:?}", seconds(decision.delay_us()));
        }
        text + &origin(decision.source(), decision.degraded()) + ")"
    }
}

/// The answer to a take, a charge, a refund or a reset: what is left after it.
#[pyclass(name = "Usage", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyUsage(pub(crate) Usage);

#[pymethods]
impl PyUsage {
    /// Whole units that can still be spent right now: the least over the quotas.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining()
    }

    /// Seconds until nothing counts as used any more if nothing else arrives: the longest over the quotas.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds(self.0.reset_after_us())
    }

    /// ``reset_after`` in whole microseconds, exact.
    #[getter]
    fn reset_after_us(&self) -> u64 {
        self.0.reset_after_us()
    }

    /// The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
    #[getter]
    fn taken(&self) -> u64 {
        self.0.taken()
    }

    /// Where the answer came from, such as ``"store"``, or ``"fallback"`` while the store could not be asked.
    #[getter]
    fn source(&self) -> &'static str {
        self.0.source().name()
    }

    /// Why this is not what a healthy store would have answered for this key alone; ``None`` when it is.
    #[getter]
    fn degraded(&self) -> Option<&'static str> {
        self.0.degraded().map(Degradation::name)
    }

    /// Each quota's own view, in the policy's order.
    #[getter]
    fn quotas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        quotas(py, self.0.quotas())
    }

    fn __repr__(&self) -> String {
        let usage = &self.0;
        format!(
            "Usage(remaining={}, reset_after={:?}, taken={}{})",
            usage.remaining(),
            seconds(usage.reset_after_us()),
            usage.taken(),
            origin(usage.source(), usage.degraded())
        )
    }
}

/// A decision whose units were given back, with what is left by now.
#[pyfunction]
pub(crate) fn refunded(decision: &PyDecision, usage: &PyUsage) -> PyDecision {
    PyDecision(decision.0.clone().refunded(usage.0.clone()))
}

/// One quota's own view of a key, after the operation.
#[pyclass(name = "QuotaUsage", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyQuotaUsage(QuotaUsage);

#[pymethods]
impl PyQuotaUsage {
    /// The quota's limit, in units per period.
    #[getter]
    fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Whole units that this quota would still admit right now.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining
    }

    /// Seconds until nothing counts as used under this quota if nothing else arrives.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds(self.0.reset_after_us)
    }

    /// ``reset_after`` in whole microseconds, exact.
    #[getter]
    fn reset_after_us(&self) -> u64 {
        self.0.reset_after_us
    }

    fn __repr__(&self) -> String {
        let QuotaUsage { limit, remaining, reset_after_us } = self.0;
        format!("QuotaUsage(limit={limit}, remaining={remaining}, reset_after={:?})", seconds(reset_after_us))
    }
}

fn quotas<'py>(py: Python<'py>, quotas: &[QuotaUsage]) -> PyResult<Bound<'py, PyTuple>> {
    let each = quotas.iter().map(|usage| Py::new(py, PyQuotaUsage(*usage))).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, each)
}

const fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// Shown only where it is not the ordinary one.
fn origin(source: Source, degraded: Option<Degradation>) -> String {
    let mut text = String::new();
    if source != Source::Store {
        let _ = write!(text, ", source='{}'", source.name());
    }
    if let Some(degraded) = degraded {
        let _ = write!(text, ", degraded='{}'", degraded.name());
    }
    text
}
