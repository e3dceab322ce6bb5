//! One operation with all that it is asked, and its answer as a Python object.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use polylimit::{Answer, Call, Error, Limiter, Request};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::decision::{PyDecision, PyUsage};
use crate::doctor::PyFinding;
use crate::error::{guarded, invalid_argument, to_python, unpanicked};
use crate::event;
use crate::key::{self, Key};
use crate::quota::PyQuota;
use crate::request::PyRequest;
use crate::utf8::Utf8;

/// A policy's name or quotas, as a caller gives them.
pub(crate) enum PolicyText {
    Text(Utf8),
    Quota(Box<str>),
}

impl PolicyText {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Quota(text) => text,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for PolicyText {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Self::Text(Utf8::of(&text, "policy")?));
        }
        if let Ok(quota) = value.cast::<PyQuota>() {
            return Ok(Self::Quota(quota.get().0.to_string().into()));
        }
        Err(PyTypeError::new_err(format!(
            "policy is of type {}: allowed are str and Quota",
            value.get_type().name()?
        )))
    }
}

/// A request that keeps the caller's texts.
pub(crate) struct Asked {
    pub(crate) key: Key,
    pub(crate) policy: Option<PolicyText>,
    pub(crate) cost: u64,
}

impl Asked {
    pub(crate) fn new(
        key: Key,
        policy: Option<PolicyText>,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self { key, policy, cost: cost.map_or(Ok(1), key::cost)? })
    }

    fn request(&self) -> Request<'_> {
        let request = Request::new(self.key.as_bytes()).cost(self.cost);
        match &self.policy {
            Some(policy) => request.policy(policy.as_str()),
            None => request,
        }
    }
}

/// An operation on one key.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
}

impl Operation {
    /// The call as the core takes it.
    #[inline]
    pub(crate) fn call(self, request: Request<'_>) -> Call<'_> {
        match self {
            Self::Check => Call::Check(request),
            Self::Peek => Call::Peek(request),
            Self::Take => Call::Take(request),
            Self::Charge => Call::Charge(request),
            Self::Refund => Call::Refund(request),
            Self::Reset => Call::Reset(request),
        }
    }
}

/// A call that outlives the Python call that made it.
pub(crate) enum Job {
    One(Operation, Asked),
    CheckMany { requests: Vec<Asked>, return_exceptions: bool },
    CheckTogether(Vec<Asked>),
    Acquire(Asked, Duration),
    Ready(Duration),
    Doctor,
}

impl Job {
    pub(crate) fn check_many(requests: &Bound<'_, PyAny>, return_exceptions: bool) -> PyResult<Self> {
        Ok(Self::CheckMany { requests: several(requests)?, return_exceptions })
    }

    pub(crate) fn check_together(requests: &Bound<'_, PyAny>) -> PyResult<Self> {
        several(requests).map(Self::CheckTogether)
    }

    /// Hands out the call as the core takes it.
    pub(crate) fn with<R>(&self, hand: impl FnOnce(&Call<'_>) -> R) -> R {
        match self {
            Self::One(operation, asked) => hand(&operation.call(asked.request())),
            Self::CheckMany { requests, .. } => hand(&Call::CheckMany(&each(requests))),
            Self::CheckTogether(requests) => hand(&Call::CheckTogether(&each(requests))),
            Self::Acquire(asked, timeout) => hand(&Call::Acquire(asked.request(), *timeout)),
            Self::Ready(timeout) => hand(&Call::Ready(*timeout)),
            Self::Doctor => hand(&Call::Doctor),
        }
    }

    /// Whether errors stand in the list of answers.
    pub(crate) fn return_exceptions(&self) -> bool {
        matches!(self, Self::CheckMany { return_exceptions: true, .. })
    }
}

/// Requests as `Request` or as keys.
fn several(requests: &Bound<'_, PyAny>) -> PyResult<Vec<Asked>> {
    // Each of its letters would be taken for a key.
    if requests.is_instance_of::<PyString>() || requests.is_instance_of::<PyBytes>() {
        let kind = requests.get_type().name()?;
        return Err(PyTypeError::new_err(format!("requests are of type {kind}: allowed is a list of them")));
    }
    let requests = requests.try_iter()?.map(|request| {
        let request = request?;
        if let Ok(request) = request.cast::<PyRequest>() {
            return request.get().asked(request.py());
        }
        Asked::new(request.extract()?, None, None)
    });
    requests.collect()
}

fn each(requests: &[Asked]) -> Vec<Request<'_>> {
    requests.iter().map(Asked::request).collect()
}

/// The answer to a call if that is known at once. Nothing that pyo3 counts is dropped here before it attaches.
pub(crate) fn known(py: Python<'_>, limiter: &Limiter, call: &Call<'_>) -> Option<PyResult<Py<PyAny>>> {
    let tried = catch_unwind(AssertUnwindSafe(|| limiter.try_call(call)));
    event::tell();
    match tried {
        Ok(None) => None,
        Ok(Some(Ok(Answer::Decision(decision)))) => Some(Py::new(py, PyDecision(decision)).map(Py::into_any)),
        Ok(Some(other)) => Some(Python::attach(|py| answer(py, other, false))),
        Err(panic) => Some(Python::attach(|py| unpanicked(py, Err(panic)))),
    }
}

/// The answer as a Python object.
pub(crate) fn answer(
    py: Python<'_>,
    answer: Result<Answer, Error>,
    return_exceptions: bool,
) -> PyResult<Py<PyAny>> {
    event::tell();
    match guarded(py, || answer)? {
        Answer::Decision(decision) => Ok(Py::new(py, PyDecision(decision))?.into_any()),
        Answer::Usage(usage) => Ok(Py::new(py, PyUsage(usage))?.into_any()),
        Answer::Decisions(decisions) => {
            let list = PyList::empty(py);
            for decision in decisions {
                match decision {
                    Ok(decision) => list.append(Py::new(py, PyDecision(decision))?)?,
                    Err(error) if return_exceptions => list.append(to_python(py, &error).into_value(py))?,
                    Err(error) => return Err(to_python(py, &error)),
                }
            }
            Ok(list.into_any().unbind())
        }
        Answer::Findings(findings) => {
            let findings = findings.into_iter().map(|finding| Py::new(py, PyFinding(finding)));
            Ok(PyList::new(py, findings.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
        }
        Answer::Ready => Ok(py.None()),
        _ => Err(invalid_argument(py, "an answer of a kind that this binding does not know")),
    }
}
