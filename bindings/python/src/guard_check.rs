//! A guard's decision on one request that has to wait for the store or is denied.

use std::sync::Arc;

use polylimit::http::guard::{Guard, GuardCheck, RequestFacts, Verdict};
use polylimit::http::headers::Problem;
use pyo3::prelude::*;

use crate::configuration::OwnedAttributes;
use crate::error::{call_core, to_exception};
use crate::http::{PyOutcomes, PyProblem, outcomes_to_python};
use crate::request_limits::{GuardParts, PyRequestLimits};
use crate::store_call::{Settling, SharedCheck, StoreCall};

/// The decision of a guard on a request that is not admitted yet.
#[pyclass(name = "GuardCheck", module = "polylimit._core", frozen)]
pub(crate) struct PyGuardCheck {
    guard: Arc<GuardParts>,
    check: SharedCheck,
    start: CheckStart,
}

/// How far a check was when it became a Python object.
pub(crate) enum CheckStart {
    /// The store has to decide.
    Asking,
    /// The store has decided, and ``on_outage`` is called with it.
    Answered,
    Admitted,
    Denied(Problem),
}

impl PyGuardCheck {
    pub(crate) fn new(
        guard: &Arc<GuardParts>,
        check: GuardCheck,
        attributes: Option<Arc<OwnedAttributes>>,
        start: CheckStart,
    ) -> Self {
        Self { guard: Arc::clone(guard), check: SharedCheck::new(check, attributes), start }
    }

    /// Lets the store decide in the same call for a guard that the request meets later.
    pub(crate) fn ask_ahead(&self, later: &Guard, facts: &RequestFacts<'_>) {
        self.check.with(|check| check.ask_ahead(later, facts));
    }
}

#[pymethods]
impl PyGuardCheck {
    /// Whether the check is concluded but for the calls of ``conclude``.
    #[getter]
    fn is_concluded(&self) -> bool {
        matches!(self.start, CheckStart::Admitted | CheckStart::Denied(_))
    }

    /// Whether the store has to decide.
    #[getter]
    fn is_asking(&self) -> bool {
        matches!(self.start, CheckStart::Asking)
    }

    /// The call that asks the store next; ``None`` when nothing has to be asked any more. ``is_first`` says that no call was asked for
    /// before.
    fn ask(&self, is_first: bool) -> Option<StoreCall> {
        if self.is_asking() { self.check.next_call(is_first) } else { None }
    }

    /// The same as an operation of an event loop, which is awaited at once.
    fn ask_async(&self, py: Python<'_>, is_first: bool) -> PyResult<Option<Py<PyAny>>> {
        self.ask(is_first).map(|call| call.operation(py)).transpose()
    }

    /// What ``on_outage`` hears: the error, if no decision could be made, and the policies with their decisions. ``None`` when
    /// the store decided.
    fn outage(&self, py: Python<'_>) -> Option<(Option<Py<PyAny>>, PyOutcomes)> {
        self.check.with(|check| {
            let report = check.outage()?;
            let error = report.error.map(|error| to_exception(py, error).into_value(py).into_any());
            Some((error, outcomes_to_python(report.outcomes)))
        })
    }

    /// Takes what ``on_outage`` returned.
    fn overrule(&self, admit: bool) {
        self.check.with(|check| check.overrule(admit));
    }

    /// Returns the default response if the request is denied, and the calls that give back, all of which have to be made; ``None``
    /// when there are none.
    fn conclude(
        &self,
        py: Python<'_>,
        limits: &PyRequestLimits,
    ) -> PyResult<(Option<PyProblem>, Option<Settling>)> {
        let verdict = match &self.start {
            CheckStart::Admitted => Verdict::Admit,
            CheckStart::Denied(problem) => Verdict::Deny(problem.clone()),
            CheckStart::Asking | CheckStart::Answered => call_core(py, || Ok(self.check.conclude()))?,
        };
        let denial = match verdict {
            Verdict::Admit => {
                limits.admit_shared(&self.guard, &self.check);
                None
            }
            Verdict::Fail(error) => return Err(to_exception(py, &error)),
            Verdict::Deny(problem) => {
                limits.deny(&self.guard);
                Some(PyProblem::from_core(problem))
            }
        };
        let has_calls = self.check.with(|check| check.next_call(|_, _| ()).is_some());
        Ok((denial, has_calls.then(|| Settling::new(vec![self.check.clone()]))))
    }
}
