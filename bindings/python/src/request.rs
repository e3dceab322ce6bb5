//! `Request`, and the parts of a request that operations take as arguments.

use std::fmt::Write as _;

use polylimit::Request;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::convert::{Key, Utf8Text, read_cost, read_headroom, read_items, wrong_type};
use crate::policy::{PyPolicy, PyQuota};
use crate::value::immutable;

/// The argument `policy`: a name, quotas as text or as a `Quota`, or a `Policy`, which stands for its name.
pub(crate) enum PolicyArgument {
    Text(Utf8Text),
    Quota(Box<str>),
}

impl PolicyArgument {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Quota(text) => text,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for PolicyArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Self::Text(Utf8Text::new(&text, "policy")?));
        }
        if let Ok(quota) = value.cast::<PyQuota>() {
            return Ok(Self::Quota(quota.get().0.to_string().into()));
        }
        if let Ok(policy) = value.cast::<PyPolicy>() {
            return Ok(Self::Quota(policy.get().0.name().into()));
        }
        Err(wrong_type("policy", &value, "allowed are str, Quota and Policy"))
    }
}

/// The argument `plan`.
pub(crate) enum Plan {
    Text(Utf8Text),
    Owned(Box<str>),
}

impl Plan {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Plan {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Utf8Text::read(&value, "plan").map(Self::Text)
    }
}

/// A request that owns its texts, so that it can outlive the Python call that made it.
pub(crate) struct OwnedRequest {
    key: Key,
    policy: Option<PolicyArgument>,
    cost: u64,
    headroom: u8,
    plan: Option<Plan>,
    is_reserved: bool,
}

impl OwnedRequest {
    /// A request of cost 1.
    pub(crate) fn new(key: Key, policy: Option<PolicyArgument>, plan: Option<Plan>) -> Self {
        Self { key, policy, cost: 1, headroom: 0, plan, is_reserved: false }
    }

    pub(crate) fn with_cost(mut self, cost: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        self.cost = cost.map_or(Ok(1), read_cost)?;
        Ok(self)
    }

    pub(crate) fn with_headroom(mut self, headroom: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        self.headroom = headroom.map_or(Ok(0), read_headroom)?;
        Ok(self)
    }

    /// A copy of the core's form.
    pub(crate) fn from_core(request: &Request<'_>) -> Self {
        Self {
            key: Key::Owned(request.key().into()),
            policy: request.policy_name().map(|policy| PolicyArgument::Quota(policy.into())),
            cost: request.units(),
            headroom: request.headroom_percent(),
            plan: request.plan_name().map(|plan| Plan::Owned(plan.into())),
            is_reserved: request.is_reserved(),
        }
    }

    pub(crate) fn as_core(&self) -> Request<'_> {
        let mut request = Request::new(self.key.as_bytes()).cost(self.cost).headroom(self.headroom);
        if let Some(policy) = &self.policy {
            request = request.policy(policy.as_str());
        }
        if let Some(plan) = &self.plan {
            request = request.plan(plan.as_str());
        }
        if self.is_reserved { request.reserved() } else { request }
    }
}

/// A key, the policy that is applied to it, and the units that the request spends; for ``check_many`` and ``check_together``.
///
/// Parameters
/// ----------
/// key
///     The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
/// policy
///     A policy's name, or quotas; it may be left out where the limiter has one policy.
/// cost
///     Units, from 0 to 10**12.
/// headroom
///     The part of each quota that the request leaves for others, in percent from 0 to 99; the default is 0.
/// plan
///     The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.
#[pyclass(name = "Request", module = "polylimit", frozen, weakref)]
pub(crate) struct PyRequest {
    key: Py<PyAny>,
    policy: Option<Py<PyAny>>,
    cost: u64,
    headroom: u8,
    plan: Option<Py<PyAny>>,
}

#[pymethods]
impl PyRequest {
    #[new]
    #[pyo3(signature = (key, policy = None, *, cost = None, headroom = None, plan = None))]
    fn new(
        key: &Bound<'_, PyAny>,
        policy: Option<&Bound<'_, PyAny>>,
        cost: Option<&Bound<'_, PyAny>>,
        headroom: Option<&Bound<'_, PyAny>>,
        plan: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        key.extract::<Key>()?;
        policy.map(|policy| policy.extract::<PolicyArgument>().map(drop)).transpose()?;
        plan.map(|plan| plan.extract::<Plan>().map(drop)).transpose()?;
        Ok(Self {
            key: key.clone().unbind(),
            policy: policy.map(|policy| policy.clone().unbind()),
            cost: cost.map_or(Ok(1), read_cost)?,
            headroom: headroom.map_or(Ok(0), read_headroom)?,
            plan: plan.map(|plan| plan.clone().unbind()),
        })
    }

    /// The client or resource that is limited.
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

    /// The part of each quota that the request leaves for others, in percent.
    #[getter]
    fn headroom(&self) -> u8 {
        self.headroom
    }

    /// The plan of the key, if it was given.
    #[getter]
    fn plan(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.plan.as_ref().map(|plan| plan.clone_ref(py))
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        let other = other.get();
        let same = |one: &Option<Py<PyAny>>, other: &Option<Py<PyAny>>| match (one, other) {
            (Some(one), Some(other)) => one.bind(py).eq(other.bind(py)),
            (one, other) => Ok(one.is_none() && other.is_none()),
        };
        Ok(self.cost == other.cost
            && self.headroom == other.headroom
            && self.key.bind(py).eq(other.key.bind(py))?
            && same(&self.policy, &other.policy)?
            && same(&self.plan, &other.plan)?)
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("cost", self.cost)?;
        named.set_item("headroom", self.headroom)?;
        named.set_item("plan", self.plan(py))?;
        Ok(((self.key(py), self.policy(py)).into_pyobject(py)?, named))
    }

    /// Omits the key, which may be a secret or a person's name.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let policy = match &self.policy {
            Some(policy) => policy.bind(py).repr()?.to_string(),
            None => "None".to_owned(),
        };
        let mut text = format!("Request(key=..., policy={policy}, cost={}", self.cost);
        if self.headroom > 0 {
            let _ = write!(text, ", headroom={}", self.headroom);
        }
        if let Some(plan) = &self.plan {
            let _ = write!(text, ", plan={}", plan.bind(py).repr()?);
        }
        Ok(text + ")")
    }
}

immutable!(PyRequest);

impl PyRequest {
    fn owned(&self, py: Python<'_>) -> PyResult<OwnedRequest> {
        let policy = self.policy.as_ref().map(|policy| policy.extract::<PolicyArgument>(py)).transpose()?;
        let plan = self.plan.as_ref().map(|plan| plan.extract::<Plan>(py)).transpose()?;
        Ok(OwnedRequest {
            key: self.key.extract(py)?,
            policy,
            cost: self.cost,
            headroom: self.headroom,
            plan,
            is_reserved: false,
        })
    }
}

/// Reads a list of `Request` objects and keys.
pub(crate) fn read_requests(requests: &Bound<'_, PyAny>) -> PyResult<Vec<OwnedRequest>> {
    read_items("requests", requests, "a list of keys and Request objects", |request| {
        if let Ok(request) = request.cast::<PyRequest>() {
            return request.get().owned(request.py());
        }
        Ok(OwnedRequest::new(request.extract()?, None, None))
    })
}
