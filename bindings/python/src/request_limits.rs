//! The limits of one request, which all of its guards share, and the header fields of its response.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use polylimit::guard::{Guard, GuardCheck, RequestLimits, Verdict};
use polylimit::headers::{HeaderField, Problem};
use polylimit::{Answer, Decision, Error, Limiter, Policy};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::call::{Operation, OwnedCall, OwnedRequest, Recipient};
use crate::convert::Utf8Text;
use crate::decision::PyDecision;
use crate::error::{call_core, to_exception};
use crate::events;
use crate::http::PyProblem;
use crate::limiter_classes::PyAsyncLimiter;
use crate::operation::State;
use crate::operation_type;
use crate::policy::PyPolicy;
use crate::waiting::wait;

/// A guard with what Python adds to it. The garbage collector sees none of it: guards live as long as their application.
pub(crate) struct GuardParts {
    pub(crate) guard: Guard,
    /// Says whether a response counts.
    count: Option<Py<PyAny>>,
    fields: FieldCache,
}

impl GuardParts {
    pub(crate) fn new(guard: Guard, count: Option<Py<PyAny>>) -> Self {
        Self { guard, count, fields: FieldCache::default() }
    }
}

/// The limits of one request: what its guards have decided.
#[pyclass(name = "RequestLimits", module = "polylimit", frozen)]
#[derive(Default)]
pub(crate) struct PyRequestLimits {
    limits: RequestLimits,
    /// The guard that decided first.
    first: OnceLock<Arc<GuardParts>>,
    /// The checks that admitted the request, until its response.
    open: Mutex<Vec<OpenCheck>>,
    /// Whether a guard has a `count`, which is called with the response.
    has_count: AtomicBool,
}

struct OpenCheck {
    guard: Arc<GuardParts>,
    check: GuardCheck,
}

impl PyRequestLimits {
    pub(crate) fn core(&self) -> &RequestLimits {
        &self.limits
    }

    /// Keeps a check that admitted the request until there is a response.
    pub(crate) fn open(&self, guard: &Arc<GuardParts>, check: GuardCheck) {
        if guard.count.is_some() {
            self.has_count.store(true, Ordering::Relaxed);
        }
        let _ = self.first.set(Arc::clone(guard));
        self.open.lock().push(OpenCheck { guard: Arc::clone(guard), check });
    }

    /// Forgets the checks of a request that is denied: their units are refunded.
    fn end(&self, guard: &Arc<GuardParts>) {
        let _ = self.first.set(Arc::clone(guard));
        self.has_count.store(false, Ordering::Relaxed);
        let open = std::mem::take(&mut *self.open.lock());
        drop(open);
    }

    /// Ends the checks of guards without a `count`.
    pub(crate) fn finish_counted(&self) {
        let open = std::mem::take(&mut *self.open.lock());
        for mut open in open.into_iter().rev() {
            open.check.finish(true);
        }
    }

    fn core_fields(&self, py: Python<'_>) -> PyResult<Vec<HeaderField>> {
        let Some(first) = self.first.get() else { return Ok(Vec::new()) };
        call_core(py, || Ok(first.guard.fields(&self.limits)))
    }

    /// Appends the fields to those of an ASGI response.
    pub(crate) fn append_to(&self, list: &Bound<'_, PyList>) -> PyResult<()> {
        let fields = self.core_fields(list.py())?;
        self.first.get().map_or(Ok(()), |first| first.fields.append(fields, list))
    }
}

#[pymethods]
impl PyRequestLimits {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Each policy that was applied, with its newest decision. After a refund a decision shows what is left.
    #[getter]
    fn outcomes(&self) -> PyOutcomes {
        to_python(self.limits.outcomes())
    }

    /// The fields of the response, as pairs of a lower-case name and a value.
    fn fields(&self, py: Python<'_>) -> PyResult<Vec<(Cow<'static, str>, String)>> {
        let fields = self.core_fields(py)?;
        Ok(fields.into_iter().map(|field| (field.name, field.value)).collect())
    }

    /// Ends the guards of a request with this response, the innermost first. Returns the checks whose units have to be refunded,
    /// and the first exception that a ``count`` raised, which keeps its units.
    fn finish(
        &self,
        py: Python<'_>,
        response: &Bound<'_, PyAny>,
    ) -> PyResult<(Vec<PyGuardCheck>, Option<Py<PyAny>>)> {
        let open = std::mem::take(&mut *self.open.lock());
        let mut raised = None;
        let mut refunded = Vec::new();
        for OpenCheck { guard, mut check } in open.into_iter().rev() {
            let counts = guard.count.as_ref().map(|count| count.bind(py).call1((response,))?.is_truthy());
            let counts = counts.unwrap_or(Ok(true)).unwrap_or_else(|error| {
                raised.get_or_insert(error);
                true
            });
            call_core(py, || {
                check.finish(counts);
                Ok(())
            })?;
            if check.refunds().next().is_some() {
                refunded.push(PyGuardCheck::new(&guard, check, None, true));
            }
        }
        Ok((refunded, raised.map(|error| error.into_value(py).into_any())))
    }

    /// Whether ``finish`` has to be called with the response.
    #[getter]
    pub(crate) fn has_count(&self) -> bool {
        self.has_count.load(Ordering::Relaxed)
    }

    /// Ends the guards and sets the fields in the headers of a Werkzeug response.
    fn add_to(&self, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = headers.py();
        self.finish_counted();
        let fields = self.core_fields(py)?;
        // Werkzeug's `add` is much faster than `set`, which is needed only to replace fields.
        let mut has_fields = false;
        for header in headers.try_iter()? {
            let name = header?.get_item(0)?.cast_into::<PyString>()?;
            let name = Utf8Text::new(&name, "header")?;
            has_fields |= fields.iter().any(|field| field.name.eq_ignore_ascii_case(&name));
        }
        let method = if has_fields { intern!(py, "set") } else { intern!(py, "add") };
        for HeaderField { name, value } in fields {
            headers.call_method1(method, (&*name, value))?;
        }
        Ok(())
    }
}

/// The decision of a guard on a request that is not admitted yet, or whose units have to be refunded.
#[pyclass(name = "GuardCheck", module = "polylimit._core", frozen)]
pub(crate) struct PyGuardCheck {
    guard: Arc<GuardParts>,
    state: Arc<CheckState>,
}

struct CheckState {
    /// `None` after the request was admitted.
    check: Mutex<Option<GuardCheck>>,
    /// The conclusion of a request that is denied.
    denial: Option<Problem>,
    /// Whether the store has answered before the check became a Python object.
    is_answered: bool,
}

impl Recipient for CheckState {
    fn receive(&self, answer: Result<Answer, Error>) {
        if let Some(check) = &mut *self.check.lock() {
            check.answer(decisions_of(answer));
        }
    }
}

/// Takes what is left after a refund. A refund that fails leaves its units spent.
struct RefundRecipient {
    state: Arc<CheckState>,
    at: usize,
}

impl Recipient for RefundRecipient {
    fn receive(&self, answer: Result<Answer, Error>) {
        if let Ok(Answer::Usage(left)) = answer
            && let Some(check) = &mut *self.state.check.lock()
        {
            check.refunded(self.at, left);
        }
    }
}

impl PyGuardCheck {
    pub(crate) fn new(
        guard: &Arc<GuardParts>,
        check: GuardCheck,
        denial: Option<Problem>,
        is_answered: bool,
    ) -> Self {
        let state = Arc::new(CheckState { check: Mutex::new(Some(check)), denial, is_answered });
        Self { guard: Arc::clone(guard), state }
    }

    /// The call that decides; `None` when the store has answered.
    fn call(&self) -> Option<OwnedCall> {
        if self.state.is_answered {
            return None;
        }
        let requests: Vec<_> = {
            let check = self.state.check.lock();
            let requests = check.as_ref().map(GuardCheck::requests).unwrap_or_default();
            requests.into_iter().map(|one| OwnedRequest::from_core(&one)).collect()
        };
        let call = match requests.len() {
            0 => return None,
            1 => OwnedCall::OneKey(Operation::Check, requests.into_iter().next()?),
            _ => OwnedCall::CheckTogether(requests),
        };
        Some(OwnedCall::For(Box::new(call), Arc::clone(&self.state) as Arc<dyn Recipient>))
    }

    /// The calls that refund, each with its limiter.
    fn refund_calls(&self) -> Vec<(Limiter, OwnedCall)> {
        let check = self.state.check.lock();
        let refunds = check.iter().flat_map(GuardCheck::refunds).enumerate();
        let refunds = refunds.map(|(at, (limiter, request))| {
            let call = OwnedCall::OneKey(Operation::Refund, OwnedRequest::from_core(&request));
            let recipient = Arc::new(RefundRecipient { state: Arc::clone(&self.state), at });
            (limiter.clone(), OwnedCall::For(Box::new(call), recipient))
        });
        refunds.collect()
    }
}

/// An operation that makes a call when it is awaited.
fn operation(
    py: Python<'_>,
    limiter: Limiter,
    call: OwnedCall,
    state: fn(Py<PyAsyncLimiter>, Box<OwnedCall>) -> State,
) -> PyResult<Py<PyAny>> {
    let limiter = Py::new(py, PyAsyncLimiter::from_core(limiter))?;
    operation_type::create(py, state(limiter, Box::new(call)))
}

/// Makes a call and waits on this thread, unless an answer is known.
fn call_blocking(
    py: Python<'_>,
    limiter: &Limiter,
    owned: &OwnedCall,
    known: Option<Result<Answer, Error>>,
) -> PyResult<()> {
    let OwnedCall::For(_, recipient) = owned else { return Ok(()) };
    let answer = match known {
        Some(known) => Some(known),
        None => owned.with(|call| wait(py, &limiter.blocking(), call))?,
    };
    events::deliver_pending();
    if let Some(answer) = answer {
        recipient.receive(answer);
    }
    Ok(())
}

/// A list of pairs of a policy and its decision.
type PyOutcomes = Vec<(PyPolicy, PyDecision)>;

fn to_python(outcomes: Vec<(Policy, Decision)>) -> PyOutcomes {
    outcomes.into_iter().map(|(policy, decision)| (PyPolicy(policy), PyDecision(decision))).collect()
}

#[pymethods]
impl PyGuardCheck {
    /// Whether the check is concluded: the request is denied.
    #[getter]
    fn is_denied(&self) -> bool {
        self.state.denial.is_some()
    }

    /// An operation that asks the store when it is awaited; ``None`` when nothing has to be asked.
    fn ask_async(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let limiter = self.guard.guard.limiter().clone();
        self.call().map(|call| operation(py, limiter, call, State::Tried)).transpose()
    }

    /// Asks the store and waits on this thread.
    fn ask(&self, py: Python<'_>) -> PyResult<()> {
        let limiter = self.guard.guard.limiter();
        self.call().map_or(Ok(()), |call| call_blocking(py, limiter, &call, None))
    }

    /// What ``on_outage`` hears: the error, if no decision could be made, and the policies with their decisions. ``None`` when
    /// the store decided.
    fn outage(&self, py: Python<'_>) -> Option<(Option<Py<PyAny>>, PyOutcomes)> {
        let check = self.state.check.lock();
        let report = check.as_ref()?.outage()?;
        let error = report.error.map(|error| to_exception(py, error).into_value(py).into_any());
        Some((error, to_python(report.outcomes)))
    }

    /// Takes what ``on_outage`` returned.
    fn overrule(&self, admit: bool) {
        if let Some(check) = &mut *self.state.check.lock() {
            check.overrule(admit);
        }
    }

    /// Returns ``None`` when the request is admitted, and otherwise the default response.
    fn conclude(&self, py: Python<'_>, limits: &PyRequestLimits) -> PyResult<Option<PyProblem>> {
        if let Some(denial) = &self.state.denial {
            limits.end(&self.guard);
            return Ok(Some(PyProblem::from_core(denial.clone())));
        }
        let Some(mut check) = self.state.check.lock().take() else { return Ok(None) };
        match call_core(py, || Ok(check.conclude()))? {
            Verdict::Admit => {
                limits.open(&self.guard, check);
                Ok(None)
            }
            Verdict::Fail(error) => Err(to_exception(py, &error)),
            Verdict::Deny(problem) => {
                *self.state.check.lock() = Some(check);
                limits.end(&self.guard);
                Ok(Some(PyProblem::from_core(problem)))
            }
        }
    }

    /// The operations that refund, all of which have to be awaited.
    fn refund_async(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let calls = self.refund_calls().into_iter();
        calls.map(|(limiter, call)| operation(py, limiter, call, State::NotStarted)).collect()
    }

    /// Refunds and waits on this thread.
    fn refund(&self, py: Python<'_>) -> PyResult<()> {
        let mut result = Ok(());
        for (limiter, call) in self.refund_calls() {
            let known = call_core(py, || Ok(call.with(|call| limiter.try_call(call))))?;
            result = result.and(call_blocking(py, &limiter, &call, known));
        }
        result
    }
}

pub(crate) fn decisions_of(answer: Result<Answer, Error>) -> Result<Vec<Decision>, Error> {
    match answer? {
        Answer::Decision(decision) => Ok(vec![decision]),
        Answer::Decisions(decisions) => decisions.into_iter().collect(),
        _ => Ok(Vec::new()),
    }
}

/// The fields of a guard's previous response in the form of ASGI: most of them are the same in the next one.
#[derive(Default)]
pub(crate) struct FieldCache(Mutex<Vec<EncodedField>>);

struct EncodedField {
    field: HeaderField,
    pair: Py<PyTuple>,
}

impl FieldCache {
    /// Appends fields to a list of pairs of bytes.
    fn append(&self, fields: Vec<HeaderField>, list: &Bound<'_, PyList>) -> PyResult<()> {
        let py = list.py();
        // Creating an object may run a finalizer and switch to a thread that comes here too. Waiting for the lock could then
        // deadlock, so a thread that does not get it works without the cache.
        let mut shared = self.0.try_lock();
        let mut own = Vec::new();
        let cache = shared.as_deref_mut().unwrap_or(&mut own);
        cache.truncate(fields.len());
        for (at, field) in fields.into_iter().enumerate() {
            if let Some(cached) = cache.get(at).filter(|cached| cached.field == field) {
                list.append(&cached.pair)?;
                continue;
            }
            let name = match cache.get(at).filter(|cached| cached.field.name == field.name) {
                Some(cached) => cached.pair.bind(py).get_item(0)?,
                None => PyBytes::new(py, field.name.as_bytes()).into_any(),
            };
            let value = PyBytes::new(py, field.value.as_bytes()).into_any();
            let pair = PyTuple::new(py, [name, value])?;
            list.append(&pair)?;
            let encoded = EncodedField { field, pair: pair.unbind() };
            match cache.get_mut(at) {
                Some(cached) => *cached = encoded,
                None => cache.push(encoded),
            }
        }
        Ok(())
    }
}
