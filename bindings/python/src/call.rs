//! Calls to the core: `Request`, the arguments of each operation, and the conversion of its result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use polylimit::{Answer, Call, Error, Limiter, Request, ReservationId, ReservationTerms};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::convert::{Key, Utf8Text, read_cost};
use crate::decision::{PyDecision, PyUsage};
use crate::error::{call_core, invalid_argument, raise_panic, to_exception};
use crate::events::{self, PyFinding};
use crate::policy::PyQuota;
use crate::reservation_end::{Ending, SharedReservation};

/// The argument `policy`: a name, or quotas as text or as a `Quota`.
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
        Err(PyTypeError::new_err(format!(
            "policy is of type {}: allowed are str and Quota",
            value.get_type().name()?
        )))
    }
}

/// A request that owns its key and policy, so that it can outlive the Python call that made it.
pub(crate) struct OwnedRequest {
    pub(crate) key: Key,
    pub(crate) policy: Option<PolicyArgument>,
    pub(crate) cost: u64,
}

impl OwnedRequest {
    pub(crate) fn new(
        key: Key,
        policy: Option<PolicyArgument>,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self { key, policy, cost: cost.map_or(Ok(1), read_cost)? })
    }

    /// A copy of the core's form.
    pub(crate) fn from_core(request: &Request<'_>) -> Self {
        let policy = request.policy_name().map(|policy| PolicyArgument::Quota(policy.into()));
        Self { key: Key::Owned(request.key().into()), policy, cost: request.units() }
    }

    pub(crate) fn as_core(&self) -> Request<'_> {
        let request = Request::new(self.key.as_bytes()).cost(self.cost);
        match &self.policy {
            Some(policy) => request.policy(policy.as_str()),
            None => request,
        }
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
        policy.map(|policy| policy.extract::<PolicyArgument>().map(drop)).transpose()?;
        let cost = cost.map_or(Ok(1), read_cost)?;
        Ok(Self { key: key.clone().unbind(), policy: policy.map(|policy| policy.clone().unbind()), cost })
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

    /// Omits the key, which may be a secret or a person's name.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let policy = match &self.policy {
            Some(policy) => policy.bind(py).repr()?.to_string(),
            None => "None".to_owned(),
        };
        Ok(format!("Request(key=..., policy={policy}, cost={})", self.cost))
    }
}

impl PyRequest {
    fn owned(&self, py: Python<'_>) -> PyResult<OwnedRequest> {
        let policy = self.policy.as_ref().map(|policy| policy.extract::<PolicyArgument>(py)).transpose()?;
        Ok(OwnedRequest { key: self.key.extract(py)?, policy, cost: self.cost })
    }
}

/// The operations that take one key.
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
    /// The core's form of this operation on a request.
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

/// An object of this module that takes the core's answer to a call, and gives Python what it makes of it. It gets the answer
/// also when the caller has stopped waiting.
pub(crate) trait Recipient: Send + Sync {
    fn receive(&self, py: Python<'_>, answer: Result<Answer, Error>) -> PyResult<Py<PyAny>>;
}

/// What becomes of the core's answer to a call.
#[derive(Clone)]
pub(crate) enum AnswerForm {
    /// A Python object, or an exception.
    Object,
    /// As [`Object`](Self::Object), but errors of a list stay in the list.
    ObjectWithErrors,
    /// The recipient gets it.
    For(Arc<dyn Recipient>),
}

/// A call with arguments of its own, which can outlive the Python call that made it.
pub(crate) enum OwnedCall {
    For(Box<Self>, Arc<dyn Recipient>),
    OneKey(Operation, OwnedRequest),
    CheckMany {
        requests: Vec<OwnedRequest>,
        return_exceptions: bool,
    },
    CheckTogether(Vec<OwnedRequest>),
    Acquire(OwnedRequest, Duration),
    Reserve(Arc<OwnedRequest>, ReservationTerms),
    Commit(OwnedRequest, ReservationId, Option<u64>),
    Cancel(OwnedRequest, ReservationId),
    Renew(OwnedRequest, ReservationId, Duration),
    /// Ends the reservation of a handle, which is open until this call begins.
    End(Arc<SharedReservation>, Ending),
    Ready(Duration),
    Doctor,
}

impl OwnedCall {
    pub(crate) fn check_many(requests: &Bound<'_, PyAny>, return_exceptions: bool) -> PyResult<Self> {
        Ok(Self::CheckMany { requests: read_requests(requests)?, return_exceptions })
    }

    pub(crate) fn check_together(requests: &Bound<'_, PyAny>) -> PyResult<Self> {
        read_requests(requests).map(Self::CheckTogether)
    }

    /// A copy of a call that a guard makes; `None` for the kinds that none makes.
    pub(crate) fn from_core(call: &Call<'_>) -> Option<Self> {
        let copies = |requests: &[Request<'_>]| requests.iter().map(OwnedRequest::from_core).collect();
        let one = |operation, request| Self::OneKey(operation, OwnedRequest::from_core(request));
        Some(match call {
            Call::Check(request) => one(Operation::Check, request),
            Call::Charge(request) => one(Operation::Charge, request),
            Call::Refund(request) => one(Operation::Refund, request),
            Call::Reserve(request, terms) => {
                Self::Reserve(Arc::new(OwnedRequest::from_core(request)), *terms)
            }
            Call::Commit(request, id, spent) => Self::Commit(OwnedRequest::from_core(request), *id, *spent),
            Call::Cancel(request, id) => Self::Cancel(OwnedRequest::from_core(request), *id),
            Call::CheckMany(requests) => {
                Self::CheckMany { requests: copies(requests), return_exceptions: true }
            }
            Call::CheckTogether(requests) => Self::CheckTogether(copies(requests)),
            _ => return None,
        })
    }

    /// Passes the core's form of this call to a function.
    pub(crate) fn with<R>(&self, use_call: impl FnOnce(&Call<'_>) -> R) -> R {
        match self {
            Self::For(call, _) => call.with(use_call),
            Self::OneKey(operation, request) => use_call(&operation.call(request.as_core())),
            Self::CheckMany { requests, .. } => use_call(&Call::CheckMany(&borrow_all(requests))),
            Self::CheckTogether(requests) => use_call(&Call::CheckTogether(&borrow_all(requests))),
            Self::Acquire(request, timeout) => use_call(&Call::Acquire(request.as_core(), *timeout)),
            Self::Reserve(request, terms) => use_call(&Call::Reserve(request.as_core(), *terms)),
            Self::Commit(request, id, spent) => use_call(&Call::Commit(request.as_core(), *id, *spent)),
            Self::Cancel(request, id) => use_call(&Call::Cancel(request.as_core(), *id)),
            Self::Renew(request, id, ttl) => use_call(&Call::Renew(request.as_core(), *id, *ttl)),
            Self::End(reservation, ending) => reservation.end(*ending, use_call),
            Self::Ready(timeout) => use_call(&Call::Ready(*timeout)),
            Self::Doctor => use_call(&Call::Doctor),
        }
    }

    pub(crate) fn answer_form(&self) -> AnswerForm {
        match self {
            Self::For(_, recipient) => AnswerForm::For(Arc::clone(recipient)),
            Self::CheckMany { return_exceptions: true, .. } => AnswerForm::ObjectWithErrors,
            _ => AnswerForm::Object,
        }
    }
}

/// Reads a list of `Request` objects and keys.
fn read_requests(requests: &Bound<'_, PyAny>) -> PyResult<Vec<OwnedRequest>> {
    // Iterating over text would take each character for a key.
    if requests.is_instance_of::<PyString>() || requests.is_instance_of::<PyBytes>() {
        let kind = requests.get_type().name()?;
        return Err(PyTypeError::new_err(format!("requests are of type {kind}: allowed is a list of them")));
    }
    let requests = requests.try_iter()?.map(|request| {
        let request = request?;
        if let Ok(request) = request.cast::<PyRequest>() {
            return request.get().owned(request.py());
        }
        OwnedRequest::new(request.extract()?, None, None)
    });
    requests.collect()
}

fn borrow_all(requests: &[OwnedRequest]) -> Vec<Request<'_>> {
    requests.iter().map(OwnedRequest::as_core).collect()
}

/// Makes a call that needs no waiting; `None` if it would have to wait.
///
/// The caller may have attached to the interpreter without pyo3 knowing, so no Python reference may be dropped here outside of
/// `Python::attach`: pyo3 would defer the release.
pub(crate) fn try_call(py: Python<'_>, limiter: &Limiter, call: &Call<'_>) -> Option<PyResult<Py<PyAny>>> {
    let tried = catch_unwind(AssertUnwindSafe(|| limiter.try_call(call)));
    events::deliver_pending();
    match tried {
        Ok(None) => None,
        Ok(Some(Ok(Answer::Decision(decision)))) => Some(Py::new(py, PyDecision(decision)).map(Py::into_any)),
        Ok(Some(other)) => Some(Python::attach(|py| answer_to_python(py, other, &AnswerForm::Object))),
        Err(panic) => Some(Python::attach(|py| raise_panic(py, Err(panic)))),
    }
}

/// Converts the core's answer to a Python object, or to an exception.
pub(crate) fn answer_to_python(
    py: Python<'_>,
    answer: Result<Answer, Error>,
    form: &AnswerForm,
) -> PyResult<Py<PyAny>> {
    events::deliver_pending();
    if let AnswerForm::For(recipient) = form {
        return raise_panic(py, catch_unwind(AssertUnwindSafe(|| recipient.receive(py, answer))))?;
    }
    match call_core(py, || answer)? {
        Answer::Decision(decision) => Ok(Py::new(py, PyDecision(decision))?.into_any()),
        Answer::Usage(usage) => Ok(Py::new(py, PyUsage(usage))?.into_any()),
        Answer::Decisions(decisions) => {
            let list = PyList::empty(py);
            for decision in decisions {
                match decision {
                    Ok(decision) => list.append(Py::new(py, PyDecision(decision))?)?,
                    Err(error) if matches!(form, AnswerForm::ObjectWithErrors) => {
                        list.append(to_exception(py, &error).into_value(py))?;
                    }
                    Err(error) => return Err(to_exception(py, &error)),
                }
            }
            Ok(list.into_any().unbind())
        }
        Answer::Findings(findings) => {
            let findings = findings.into_iter().map(|finding| Py::new(py, PyFinding(finding)));
            Ok(PyList::new(py, findings.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
        }
        Answer::Ready => Ok(py.None()),
        _ => Err(invalid_argument(py, "the core returned a kind of answer that this binding does not know")),
    }
}
