//! `Request`: one of several requests that are checked together.

use pyo3::prelude::*;

use crate::call::{Asked, PolicyText};
use crate::key::{self, Key};

/// A key, the policy that is applied to it, and the units that the request spends; for ``check_many``.
///
/// Parameters
/// ----------
/// key
///     Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
/// policy
///     A policy's name, or quotas; it may be left out where the limiter has one policy.
/// cost
///     Units, from 0 to 10**12.
#[pyclass(name = "Request", module = "polylimit", frozen)]
pub(crate) struct PyRequest {
    key: Py<PyAny>,
    policy: Option<Py<PyAny>>,
    cost: u64,
}

#[pymethods]
impl PyRequest {
    #[new]
    #[pyo3(signature = (key, policy = None, *, cost = None))]
    fn new(
        key: &Bound<'_, PyAny>,
        policy: Option<&Bound<'_, PyAny>>,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        key.extract::<Key>()?;
        policy.map(|policy| policy.extract::<PolicyText>().map(drop)).transpose()?;
        let cost = cost.map_or(Ok(1), key::cost)?;
        Ok(Self { key: key.clone().unbind(), policy: policy.map(|policy| policy.clone().unbind()), cost })
    }

    /// Whom or what the policy is applied to.
    #[getter]
    fn key(&self, py: Python<'_>) -> Py<PyAny> {
        self.key.clone_ref(py)
    }

    /// The policy's name or quotas, if it was given.
    #[getter]
    fn policy(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.policy.as_ref().map(|policy| policy.clone_ref(py))
    }

    /// The units that the request spends.
    #[getter]
    fn cost(&self) -> u64 {
        self.cost
    }

    /// The key is not shown: it may be a secret or a person's name.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let policy = match &self.policy {
            Some(policy) => policy.bind(py).repr()?.to_string(),
            None => "None".to_owned(),
        };
        Ok(format!("Request(key=..., policy={policy}, cost={})", self.cost))
    }
}

impl PyRequest {
    pub(crate) fn asked(&self, py: Python<'_>) -> PyResult<Asked> {
        let policy = self.policy.as_ref().map(|policy| policy.extract::<PolicyText>(py)).transpose()?;
        Ok(Asked { key: self.key.extract(py)?, policy, cost: self.cost })
    }
}
