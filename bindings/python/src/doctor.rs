//! `Finding`: what a doctor saw.

use polylimit::{Finding, Severity};
use pyo3::prelude::*;

/// Something of the store that was looked at: what was found, and what to do about it.
#[pyclass(name = "Finding", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyFinding(pub(crate) Finding);

#[pymethods]
impl PyFinding {
    /// How much it matters: ``"fine"``, ``"advice"`` or ``"problem"``.
    #[getter]
    fn severity(&self) -> &'static str {
        match self.0.severity {
            Severity::Fine => "fine",
            Severity::Advice => "advice",
            _ => "problem",
        }
    }

    /// What was looked at, such as ``"version"`` or ``"rights"``.
    #[getter]
    fn subject(&self) -> &'static str {
        self.0.subject
    }

    /// What was found, and what to do about it. Holds no password and no key.
    #[getter]
    fn message(&self) -> &str {
        &self.0.message
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Finding({})", self.0)
    }
}
