//! A guard's decision on one request that has to wait for the store or is denied.

use std::sync::Arc;

use parking_lot::Mutex;
use polylimit::guard::{Guard, GuardCheck, RequestFacts, Verdict};
use polylimit::headers::Problem;
use pyo3::prelude::*;

use crate::error::{call_core, to_exception};
use crate::http::{PyOutcomes, PyProblem, outcomes_to_python};
use crate::request_limits::{GuardParts, PyRequestLimits};
use crate::store_call::{SharedCheck, StoreCall, asking_call, refund_calls};

/// The decision of a guard on a request that is not admitted yet.
#[pyclass(name = "GuardCheck", module = "polylimit._core", frozen)]
pub(crate) struct PyGuardCheck {
    guard: Arc<GuardParts>,
    check: SharedCheck,
    /// The conclusion of a request that is denied.
    denial: Option<Problem>,
    /// Whether the store has answered before the check became a Python object.
    is_answered: bool,
}

impl PyGuardCheck {
    pub(crate) fn new(
        guard: &Arc<GuardParts>,
        check: GuardCheck,
        denial: Option<Problem>,
        is_answered: bool,
    ) -> Self {
        Self { guard: Arc::clone(guard), check: Arc::new(Mutex::new(Some(check))), denial, is_answered }
    }

    /// Lets the store decide in the same call for a guard that the request meets later.
    pub(crate) fn ask_ahead(&self, later: &Guard, facts: &RequestFacts<'_>) {
        if let Some(check) = &mut *self.check.lock() {
            check.ask_ahead(later, facts);
        }
    }
}

#[pymethods]
impl PyGuardCheck {
    /// Whether the check is concluded: the request is denied.
    #[getter]
    fn is_denied(&self) -> bool {
        self.denial.is_some()
    }

    /// Whether the store has to decide.
    #[getter]
    fn is_asking(&self) -> bool {
        !self.is_answered
    }

    /// The call that asks the store; ``None`` when nothing has to be asked.
    fn ask(&self) -> Option<StoreCall> {
        if self.is_answered { None } else { asking_call(&self.check, self.guard.guard.limiter()) }
    }

    /// What ``on_outage`` hears: the error, if no decision could be made, and the policies with their decisions. ``None`` when
    /// the store decided.
    fn outage(&self, py: Python<'_>) -> Option<(Option<Py<PyAny>>, PyOutcomes)> {
        let check = self.check.lock();
        let report = check.as_ref()?.outage()?;
        let error = report.error.map(|error| to_exception(py, error).into_value(py).into_any());
        Some((error, outcomes_to_python(report.outcomes)))
    }

    /// Takes what ``on_outage`` returned.
    fn overrule(&self, admit: bool) {
        if let Some(check) = &mut *self.check.lock() {
            check.overrule(admit);
        }
    }

    /// Returns ``None`` when the request is admitted, and otherwise the default response and the calls that refund, all of which
    /// have to be made.
    fn conclude(
        &self,
        py: Python<'_>,
        limits: &PyRequestLimits,
    ) -> PyResult<Option<(PyProblem, Vec<StoreCall>)>> {
        let Some(mut check) = self.check.lock().take() else { return Ok(None) };
        let verdict = match &self.denial {
            Some(problem) => Verdict::Deny(problem.clone()),
            None => call_core(py, || Ok(check.conclude()))?,
        };
        match verdict {
            Verdict::Admit => {
                limits.admit(&self.guard, check, limits.core().has_unclaimed());
                Ok(None)
            }
            Verdict::Fail(error) => Err(to_exception(py, &error)),
            Verdict::Deny(problem) => {
                limits.end(&self.guard);
                let refunds = refund_calls(&self.check, &check);
                *self.check.lock() = Some(check);
                Ok(Some((PyProblem::from_core(problem), refunds)))
            }
        }
    }
}
