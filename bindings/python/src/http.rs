//! A decision as HTTP: response fields, and what to answer to a denied request.

use std::time::{SystemTime, UNIX_EPOCH};

use polylimit::headers::{self, HeaderSettings, HeaderStyle, Problem, ResetForm};
use pyo3::prelude::*;

use crate::decision::PyDecision;
use crate::error::guarded;
use crate::key;
use crate::policy::PyPolicy;

type Outcomes<'py> = Vec<(Bound<'py, PyPolicy>, Bound<'py, PyDecision>)>;

fn with<R>(outcomes: &Outcomes<'_>, hand: impl FnOnce(&[headers::Outcome<'_>]) -> R) -> R {
    let outcomes: Vec<_> =
        outcomes.iter().map(|(policy, decision)| (&policy.get().0, &decision.get().0)).collect();
    hand(&outcomes)
}

/// The fields of the response to a request, as pairs of a lower-case name and a value.
///
/// Parameters
/// ----------
/// outcomes
///     Pairs of a policy and what it decided about the request.
/// style
///     ``"ietf"`` for ``ratelimit`` and ``ratelimit-policy``, ``"legacy"`` for ``x-ratelimit-*``, ``"both"`` or ``"none"``.
///     A denial has ``retry-after`` in any style, unless it is for ever.
/// reset_form
///     How ``x-ratelimit-reset`` tells a time: ``"seconds"`` from now, or since the ``"epoch"``.
#[pyfunction]
#[pyo3(signature = (outcomes, *, style = "ietf", reset_form = "seconds"))]
pub(crate) fn header_fields(
    py: Python<'_>,
    outcomes: Outcomes<'_>,
    style: &str,
    reset_form: &str,
) -> PyResult<Vec<(&'static str, String)>> {
    let settings = settings(py, style, reset_form)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    let fields = guarded(py, || Ok(with(&outcomes, |outcomes| headers::fields(outcomes, settings, now_us))))?;
    Ok(fields.into_iter().map(|field| (field.name, field.value)).collect())
}

/// Reads what fields a response gets.
pub(crate) fn settings(py: Python<'_>, style: &str, reset_form: &str) -> PyResult<HeaderSettings> {
    guarded(py, || {
        let (style, form) = (style.parse::<HeaderStyle>()?, reset_form.parse::<ResetForm>()?);
        Ok(HeaderSettings::default().style(style).reset_form(form))
    })
}

/// What to answer to a request that was denied by at least one of these policies; ``None`` when all admit it.
///
/// Parameters
/// ----------
/// outcomes
///     Pairs of a policy and what it decided about the request.
/// cost
///     The units that the request asked for.
#[pyfunction]
#[pyo3(signature = (outcomes, *, cost = None))]
pub(crate) fn problem(
    py: Python<'_>,
    outcomes: Outcomes<'_>,
    cost: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<PyProblem>> {
    let cost = cost.map_or(Ok(1), key::cost)?;
    guarded(py, || Ok(with(&outcomes, |outcomes| headers::problem(outcomes, cost)).map(PyProblem)))
}

/// What to answer to a denied request: a problem document (RFC 9457), or its text.
#[pyclass(name = "Problem", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyProblem(Problem);

#[pymethods]
impl PyProblem {
    /// The status of the response: 429, or 503 when the denial comes from an outage.
    #[getter]
    fn status(&self) -> u16 {
        self.0.status()
    }

    /// What the problem type says in words.
    #[getter]
    fn title(&self) -> &'static str {
        self.0.title()
    }

    /// What a person can do about this denial: one sentence.
    #[getter]
    fn detail(&self) -> &str {
        self.0.detail()
    }

    /// The quotas that were exceeded, by their names in ``ratelimit-policy``.
    #[getter]
    fn violated(&self) -> Vec<String> {
        self.0.violated().to_vec()
    }

    /// The problem document.
    #[getter]
    fn json(&self) -> String {
        self.0.json()
    }

    /// The detail and an end of line, for clients that read text.
    #[getter]
    fn text(&self) -> String {
        self.0.text()
    }

    /// The content type and the body that a client with this ``Accept`` field prefers; without one, the problem document.
    #[pyo3(signature = (accept = None))]
    fn body(&self, accept: Option<&str>) -> (&'static str, String) {
        self.0.body(accept)
    }

    fn __repr__(&self) -> String {
        format!("Problem(status={}, detail='{}')", self.0.status(), self.0.detail())
    }
}
