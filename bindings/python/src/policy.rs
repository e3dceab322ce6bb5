//! `Policy`: a named list of quotas, and how a caller gives several.

use polylimit::Policy;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyTuple};

use crate::error::guarded;
use crate::quota::{self, PyQuota};
use crate::utf8::Utf8;

/// A named list of one or more quotas: a request is admitted by all of them, or nothing is taken from any.
///
/// Parameters
/// ----------
/// name
///     1 to 64 letters, digits and ``!#$%&'*+-.^_`|~``.
/// quotas
///     Text such as ``"10/s; 1000/h"``, a ``Quota``, or a list of either; 1 to 16 quotas.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When the name or a quota is not valid, or two quotas cannot be told apart.
#[pyclass(name = "Policy", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyPolicy(pub(crate) Policy);

#[pymethods]
impl PyPolicy {
    #[new]
    fn new(py: Python<'_>, name: &Bound<'_, PyAny>, quotas: &Bound<'_, PyAny>) -> PyResult<Self> {
        read(py, &Utf8::read(name, "name")?, quotas).map(Self)
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The quotas, in the order in which they were given.
    #[getter]
    fn quotas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let quotas = self.0.quotas().iter().map(|quota| Py::new(py, PyQuota(quota.clone())));
        PyTuple::new(py, quotas.collect::<PyResult<Vec<_>>>()?)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Policy({})", self.0)
    }
}

/// A policy of quotas in any form.
pub(crate) fn read(py: Python<'_>, name: &str, quotas: &Bound<'_, PyAny>) -> PyResult<Policy> {
    let quotas = quota::text_of(quotas)?;
    guarded(py, || Policy::parse(name, &quotas))
}

/// Policies by name.
pub(crate) fn read_all(policies: &Bound<'_, PyAny>) -> PyResult<Vec<Policy>> {
    let py = policies.py();
    let refused = || PyTypeError::new_err("policies are given as a dict of names with their quotas");
    let policies = policies.cast::<PyMapping>().map_err(|_| refused())?;
    let dict = PyDict::new(py);
    dict.update(policies)?;
    dict.iter()
        .map(|(name, quotas)| {
            let name = name.cast_into().map_err(|_| refused())?;
            read(py, &Utf8::of(&name, "policy")?, &quotas)
        })
        .collect()
}
