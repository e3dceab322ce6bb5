//! The list of the store's options.

use polylimit::{LimiterBuilder, OptionKind, StoreOption, Suggestion};
use pyo3::prelude::*;

/// Every option of a limiter that is given by its name.
#[pyfunction]
pub(crate) fn options() -> Vec<PyOption> {
    LimiterBuilder::options().into_iter().map(PyOption).collect()
}

/// An option of a limiter.
#[pyclass(name = "Option", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyOption(StoreOption);

#[pymethods]
impl PyOption {
    /// Its name.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name
    }

    /// What it is for.
    #[getter]
    fn about(&self) -> &'static str {
        self.0.about
    }

    /// Which values it may have.
    #[getter]
    fn allowed(&self) -> &'static str {
        self.0.allowed
    }

    /// The value that it has unless told otherwise, as text; ``None`` when there is none.
    #[getter]
    fn default(&self) -> Option<&'static str> {
        self.0.default
    }

    /// Whether its value is a secret that is never shown.
    #[getter]
    fn secret(&self) -> bool {
        self.0.secret
    }

    /// What its values are: ``"duration"``, ``"number"`` or ``"text"``.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.kind {
            OptionKind::Duration => "duration",
            OptionKind::Number => "number",
            _ => "text",
        }
    }

    fn __repr__(&self) -> String {
        format!("Option(name='{}')", self.0.name)
    }
}

/// What to use in place of an option of another rate limiter, such as ``"use key"`` for ``key_func``.
#[pyfunction]
pub(crate) fn suggestion(name: &str) -> Option<String> {
    let ours = Suggestion::for_option(name)?;
    Some(if ours.name == "store" { "use the URL of the limiter".to_owned() } else { ours.to_string() })
}
