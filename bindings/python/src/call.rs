//! Calls to the core: the arguments of each operation, and the conversion of its result.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use polylimit::admin::PublishOptions;
use polylimit::raw::{Answer, Call, ReservationTerms, report_json};
use polylimit::reservation::ReservationId;
use polylimit::{Error, Limiter, Request};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::configuration::{OwnedAttributes, PyConfigurationStatus};
use crate::convert::read_bool;
use crate::decision::{PyDecision, PyUsage};
use crate::error::{call_core, invalid_argument, raise_panic, to_exception};
use crate::events::{self, PyFinding};
use crate::key_list::OwnedKeyList;
use crate::request::{OwnedRequest, read_requests};
use crate::request_decision::PyRequestDecision;
use crate::reservation_end::{Ending, SharedReservation};

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

impl Operation {
    /// The method of `AsyncLimiter` that returns this operation.
    pub(crate) const fn method(self) -> &'static CStr {
        match self {
            Self::Check => c"AsyncLimiter.check",
            Self::Peek => c"AsyncLimiter.peek",
            Self::Take => c"AsyncLimiter.take",
            Self::Charge => c"AsyncLimiter.charge",
            Self::Refund => c"AsyncLimiter.refund",
            Self::Reset => c"AsyncLimiter.reset",
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
    PeekTogether(Vec<OwnedRequest>),
    ReserveTogether(Vec<OwnedRequest>, ReservationTerms),
    Acquire(OwnedRequest, Duration),
    Reserve(Arc<OwnedRequest>, ReservationTerms),
    Commit(OwnedRequest, ReservationId, Option<u64>),
    Cancel(OwnedRequest, ReservationId),
    Renew(OwnedRequest, ReservationId, Duration),
    Block(OwnedRequest, Duration),
    Decide(Arc<OwnedAttributes>, ReservationTerms),
    SetEntry(Box<str>, Box<str>),
    DeleteEntry(Box<str>),
    Publish {
        document: Box<str>,
        expected_version: Option<u64>,
        by: Box<str>,
        why: Box<str>,
    },
    WaitForVersion(u64, Duration),
    List(Box<OwnedKeyList>),
    ScanTop(Box<OwnedKeyList>, usize),
    ResetListed(Box<OwnedKeyList>),
    Explain(OwnedRequest),
    ExplainRequest(Arc<OwnedAttributes>),
    /// Ends the reservation of a handle, which is open until this call begins.
    End(Arc<SharedReservation>, Ending),
    Ready(Duration),
    Doctor,
    Sleep(Duration),
}

impl OwnedCall {
    pub(crate) fn check_many(
        requests: &Bound<'_, PyAny>,
        return_exceptions: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let return_exceptions =
            return_exceptions.map_or(Ok(false), |value| read_bool("return_exceptions", value))?;
        Ok(Self::CheckMany { requests: read_requests(requests)?, return_exceptions })
    }

    pub(crate) fn check_together(requests: &Bound<'_, PyAny>) -> PyResult<Self> {
        read_requests(requests).map(Self::CheckTogether)
    }

    pub(crate) fn peek_together(requests: &Bound<'_, PyAny>) -> PyResult<Self> {
        read_requests(requests).map(Self::PeekTogether)
    }

    /// A copy of a call that a guard makes about a request with these attributes; `None` for the kinds that none makes.
    pub(crate) fn from_core(call: &Call<'_>, attributes: Option<&Arc<OwnedAttributes>>) -> Option<Self> {
        let copies = |requests: &[Request<'_>]| requests.iter().map(OwnedRequest::from_core).collect();
        let one = |operation, request| Self::OneKey(operation, OwnedRequest::from_core(request));
        Some(match call {
            Call::Check(request) => one(Operation::Check, request),
            Call::Decide(_, terms) => Self::Decide(Arc::clone(attributes?), *terms),
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
            Call::ReserveTogether(requests, terms) => Self::ReserveTogether(copies(requests), *terms),
            Call::Sleep(time) => Self::Sleep(*time),
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
            Self::PeekTogether(requests) => use_call(&Call::PeekTogether(&borrow_all(requests))),
            Self::ReserveTogether(requests, terms) => {
                use_call(&Call::ReserveTogether(&borrow_all(requests), *terms))
            }
            Self::Acquire(request, timeout) => use_call(&Call::Acquire(request.as_core(), *timeout)),
            Self::Reserve(request, terms) => use_call(&Call::Reserve(request.as_core(), *terms)),
            Self::Commit(request, id, spent) => use_call(&Call::Commit(request.as_core(), *id, *spent)),
            Self::Cancel(request, id) => use_call(&Call::Cancel(request.as_core(), *id)),
            Self::Renew(request, id, ttl) => use_call(&Call::Renew(request.as_core(), *id, *ttl)),
            Self::Block(request, time) => use_call(&Call::Block(request.as_core(), *time)),
            Self::Decide(attributes, terms) => {
                let attributes = attributes.as_core();
                use_call(&Call::Decide(&attributes, *terms))
            }
            Self::SetEntry(item, value) => use_call(&Call::SetEntry(item, value)),
            Self::DeleteEntry(item) => use_call(&Call::DeleteEntry(item)),
            Self::Publish { document, expected_version, by, why } => {
                let options = PublishOptions::default().by(by).why(why);
                let expecting = |version| options.expected_version(version);
                use_call(&Call::Publish(document, expected_version.map_or(options, expecting)))
            }
            Self::WaitForVersion(version, timeout) => use_call(&Call::WaitForVersion(*version, *timeout)),
            Self::List(list) => use_call(&Call::List(list.filter(), list.budget(), list.cursor())),
            Self::ScanTop(list, most) => use_call(&Call::ScanTop(list.filter(), *most, list.budget())),
            Self::ResetListed(list) => {
                use_call(&Call::ResetListed(list.filter(), list.budget(), list.cursor()))
            }
            Self::Explain(request) => use_call(&Call::Explain(request.as_core())),
            Self::ExplainRequest(attributes) => use_call(&Call::ExplainRequest(&attributes.as_core())),
            Self::End(reservation, ending) => reservation.end(*ending, use_call),
            Self::Ready(timeout) => use_call(&Call::Ready(*timeout)),
            Self::Doctor => use_call(&Call::Doctor),
            Self::Sleep(time) => use_call(&Call::Sleep(*time)),
        }
    }

    /// The method that returns the operation of this call.
    pub(crate) fn method(&self) -> &'static CStr {
        match self {
            Self::For(call, _) => call.method(),
            Self::OneKey(operation, _) => operation.method(),
            Self::CheckMany { .. } => c"AsyncLimiter.check_many",
            Self::CheckTogether(_) => c"AsyncLimiter.check_together",
            Self::PeekTogether(_) => c"AsyncLimiter.peek_together",
            Self::ReserveTogether(..) => c"AsyncLimiter.reserve_together",
            Self::Acquire(..) => c"AsyncLimiter.acquire",
            Self::Reserve(..) => c"AsyncLimiter.reserve",
            Self::Commit(..) => c"AsyncLimiter.commit",
            Self::Cancel(..) => c"AsyncLimiter.cancel",
            Self::Renew(..) => c"AsyncLimiter.renew",
            Self::Block(_, Duration::ZERO) => c"AsyncAdmin.unblock",
            Self::Block(..) => c"AsyncAdmin.block",
            Self::Decide(..) => c"AsyncLimiter.decide",
            Self::SetEntry(..) => c"AsyncAdmin.set_entry",
            Self::DeleteEntry(_) => c"AsyncAdmin.delete_entry",
            Self::Publish { .. } => c"AsyncAdmin.publish",
            Self::WaitForVersion(..) => c"AsyncAdmin.wait_for_version",
            Self::List(_) => c"AsyncAdmin.list",
            Self::ScanTop(..) => c"AsyncAdmin.scan_top",
            Self::ResetListed(_) => c"AsyncAdmin.reset_listed",
            Self::Explain(_) => c"AsyncAdmin.explain",
            Self::ExplainRequest(_) => c"AsyncAdmin.explain_request",
            Self::End(_, Ending::Commit(_)) => c"AsyncReservation.commit",
            Self::End(_, Ending::Cancel) => c"AsyncReservation.cancel",
            Self::End(_, Ending::AsOptions) => c"AsyncReservation.__aexit__",
            Self::Ready(_) => c"AsyncLimiter.ready",
            Self::Doctor => c"AsyncAdmin.doctor",
            // Only guards make it.
            Self::Sleep(_) => c"StoreCall",
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

fn borrow_all(requests: &[OwnedRequest]) -> Vec<Request<'_>> {
    requests.iter().map(OwnedRequest::as_core).collect()
}

/// Makes a call that needs no waiting; `None` if it would have to wait.
///
/// The caller may have attached to the interpreter without pyo3 knowing, so no Python reference may be dropped here outside of
/// `Python::attach`: pyo3 would defer the release.
pub(crate) fn try_call(py: Python<'_>, limiter: &Limiter, call: &Call<'_>) -> Option<PyResult<Py<PyAny>>> {
    let tried = catch_unwind(AssertUnwindSafe(|| limiter.raw().try_call(call)));
    events::deliver_pending();
    match tried {
        Ok(None) => None,
        Ok(Some(Ok(Answer::Decision(decision)))) => Some(Py::new(py, PyDecision(decision)).map(Py::into_any)),
        Ok(Some(other)) => Some(Python::attach(|py| answer_to_python(py, other, &AnswerForm::Object))),
        Err(panic) => Some(Python::attach(|py| raise_panic(py, Err(panic)))),
    }
}

/// As [`try_call`], for a check, on the core's shortest path.
#[inline]
pub(crate) fn try_check(
    py: Python<'_>,
    limiter: &Limiter,
    request: Request<'_>,
) -> Option<PyResult<Py<PyAny>>> {
    let check = || {
        limiter.raw().try_check(request).map(|decision| Py::new(py, PyDecision(decision)).map(Py::into_any))
    };
    let tried = catch_unwind(AssertUnwindSafe(check));
    events::deliver_pending();
    tried.unwrap_or_else(|panic| Some(Python::attach(|py| raise_panic(py, Err(panic)))))
}

/// As [`try_call`], for callers that pyo3 knows to be attached. Other threads run while a list goes over many keys.
pub(crate) fn try_attached(
    py: Python<'_>,
    limiter: &Limiter,
    call: &Call<'_>,
) -> PyResult<Option<Result<Answer, Error>>> {
    let goes_over_keys = matches!(call, Call::List(..) | Call::ScanTop(..) | Call::ResetListed(..));
    call_core(py, || {
        Ok(if goes_over_keys {
            py.detach(|| limiter.raw().try_call(call))
        } else {
            limiter.raw().try_call(call)
        })
    })
}

/// A report, which the core returns as JSON under the same names in every language, as a dict.
pub(crate) fn report_to_python(py: Python<'_>, json: &str) -> PyResult<Py<PyAny>> {
    Ok(py.import("json")?.call_method1("loads", (json,))?.unbind())
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
        Answer::Request(decision) => Ok(Py::new(py, PyRequestDecision(decision))?.into_any()),
        Answer::Configuration(status) => Ok(Py::new(py, PyConfigurationStatus(status))?.into_any()),
        Answer::Keys(page) => report_to_python(py, &report_json(&page)),
        Answer::KeysReset(page) => report_to_python(py, &report_json(&page)),
        Answer::Explanation(explanation) => report_to_python(py, &report_json(&*explanation)),
        Answer::RequestExplanation(explanation) => report_to_python(py, &report_json(&*explanation)),
        Answer::Ready => Ok(py.None()),
        _ => Err(invalid_argument(py, "the core returned a kind of answer that this binding does not know")),
    }
}
