//! The fast path of the web integrations, for a guard that applies one policy to every request in the same way.
//!
//! `SinglePolicyGuard` decides about a request, `GuardResult` keeps the decision, and `ResponseSender` adds the header fields to
//! an ASGI response. The Python code of the integrations handles every other kind of guard; it does the same with objects of
//! Python, which takes longer. The ASGI middleware and the Flask extension use this path.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use polylimit::headers::{self, HeaderField, HeaderSettings};
use polylimit::{Answer, Call, ClientAddressRules, Decision, Limiter, Request};
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::call::{Operation, OwnedCall, OwnedRequest, PolicyArgument};
use crate::convert::{Key, Utf8Text, read_cost};
use crate::decision::PyDecision;
use crate::error::call_core;
use crate::events;
use crate::http::{self, PyClientAddressRules};
use crate::limiter_classes::{PyAsyncLimiter, PyLimiter};
use crate::operation::State;
use crate::operation_type;
use crate::waiting::wait;

/// The address of the peer of a Unix socket.
const LOCAL_HOST: &str = "127.0.0.1";

/// One policy of a limiter, applied to every request at the same cost.
#[pyclass(name = "SinglePolicyGuard", module = "polylimit._core", frozen)]
pub(crate) struct SinglePolicyGuard {
    /// The Python guard with these options.
    guard: Py<PyAny>,
    limiter: Limiter,
    /// The same limiter as a Python object, for operations that are awaited.
    async_limiter: Py<PyAsyncLimiter>,
    policy: Option<Box<str>>,
    cost: u64,
    rules: ClientAddressRules,
    settings: HeaderSettings,
    /// The fields of the previous response: most of them are the same in the next one.
    cache: Mutex<Vec<EncodedField>>,
}

/// A header field, with its form in ASGI.
struct EncodedField {
    field: HeaderField,
    pair: Py<PyTuple>,
}

impl SinglePolicyGuard {
    fn request<'a>(&'a self, key: &'a [u8]) -> Request<'a> {
        let request = Request::new(key).cost(self.cost);
        self.policy.as_deref().map_or(request, |policy| request.policy(policy))
    }

    /// The fields of the response, with the current quotas of the policy.
    fn fields(&self, py: Python<'_>, decision: &Decision) -> PyResult<Vec<HeaderField>> {
        call_core(py, || {
            let policy = self.limiter.policy_for(self.policy.as_deref(), None)?;
            Ok(headers::fields(&[(&policy, decision)], &self.settings, 0))
        })
    }

    /// Appends the fields to a list of pairs of bytes.
    fn append_to(&self, list: &Bound<'_, PyList>, decision: &Decision) -> PyResult<()> {
        let py = list.py();
        let fields = self.fields(py, decision)?;
        // Creating an object may run a finalizer and switch to a thread that comes here too. Waiting for the lock could then
        // deadlock, so a thread that does not get it works without the cache.
        let mut shared = self.cache.try_lock();
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

#[pymethods]
impl SinglePolicyGuard {
    /// The fast form of a Python guard; ``None`` when it has options that the Python code handles.
    #[staticmethod]
    fn create(
        py: Python<'_>,
        guard: Py<PyAny>,
        limiter: &Bound<'_, PyAny>,
        policy: Option<&Bound<'_, PyAny>>,
        cost: &Bound<'_, PyAny>,
        rules: Option<&Bound<'_, PyClientAddressRules>>,
        style: &str,
    ) -> PyResult<Option<Self>> {
        let limiter = if let Ok(limiter) = limiter.cast::<PyAsyncLimiter>() {
            limiter.get().core().clone()
        } else if let Ok(limiter) = limiter.cast::<PyLimiter>() {
            limiter.get().core().clone()
        } else {
            return Ok(None);
        };
        let policy = policy.map(PyAnyMethods::extract::<PolicyArgument>).transpose();
        let (Ok(policy), Ok(cost)) = (policy, read_cost(cost)) else { return Ok(None) };
        Ok(Some(Self {
            guard,
            async_limiter: Py::new(py, PyAsyncLimiter::from_core(limiter.clone()))?,
            limiter,
            policy: policy.map(|policy| policy.as_str().into()),
            cost,
            rules: rules.map(|rules| rules.get().rules().clone()).unwrap_or_default(),
            settings: http::header_settings(py, style, "seconds")?,
            cache: Mutex::default(),
        }))
    }

    /// Checks a request by the address of its peer; ``None`` is a Unix socket.
    fn check_peer(this: &Bound<'_, Self>, peer: Option<&str>) -> PyResult<GuardResult> {
        let peer = peer.filter(|peer| !peer.is_empty()).unwrap_or(LOCAL_HOST);
        let key = call_core(this.py(), || Ok(this.get().rules.key_of(peer, [])))?;
        GuardResult::new(this, Key::Owned(key.into_bytes().into()))
    }

    /// Checks a request by its key.
    fn check_key(this: &Bound<'_, Self>, key: Key) -> PyResult<GuardResult> {
        GuardResult::new(this, key)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.guard)?;
        visit.call(&self.async_limiter)
    }
}

/// The decision about one request.
#[pyclass(name = "GuardResult", module = "polylimit._core", frozen)]
pub(crate) struct GuardResult {
    guard: Py<SinglePolicyGuard>,
    key: Key,
    decision: OnceLock<Decision>,
    /// The decisions of all guards, once another guard has decided about the request.
    outcomes: OnceLock<Py<PyAny>>,
}

impl GuardResult {
    /// Decides if that needs no waiting.
    fn new(guard: &Bound<'_, SinglePolicyGuard>, key: Key) -> PyResult<Self> {
        let py = guard.py();
        let decision = OnceLock::new();
        let this = guard.get();
        let call = Call::Check(this.request(key.as_bytes()));
        if let Some(Answer::Decision(decided)) = call_core(py, || this.limiter.try_call(&call).transpose())? {
            let _ = decision.set(decided);
            events::deliver_pending();
        }
        Ok(Self { guard: guard.clone().unbind(), key, decision, outcomes: OnceLock::new() })
    }

    fn decided(&self) -> PyResult<&Decision> {
        self.decision.get().ok_or_else(|| PyRuntimeError::new_err("the request is not decided yet"))
    }

    /// The decisions of all guards, if another guard has decided about the request.
    fn all_outcomes(&self) -> Option<&Py<PyAny>> {
        self.outcomes.get()
    }

    /// Appends the fields to those of an ASGI response.
    fn append_to(&self, list: &Bound<'_, PyList>) -> PyResult<()> {
        self.decision.get().map_or(Ok(()), |decision| self.guard.get().append_to(list, decision))
    }
}

#[pymethods]
impl GuardResult {
    /// Whether the decision needs an answer of the store.
    #[getter]
    fn is_pending(&self) -> bool {
        self.decision.get().is_none()
    }

    /// An operation that asks the store when it is awaited; pass its result to ``set_decision``.
    fn check_async(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let guard = self.guard.get();
        let policy = guard.policy.clone().map(PolicyArgument::Quota);
        let request = OwnedRequest { key: Key::Owned(self.key.as_bytes().into()), policy, cost: guard.cost };
        let call = Box::new(OwnedCall::OneKey(Operation::Check, request));
        operation_type::create(py, State::Tried(guard.async_limiter.clone_ref(py), call))
    }

    /// Keeps the decision of the store.
    fn set_decision(&self, decision: &Bound<'_, PyDecision>) {
        let _ = self.decision.set(decision.get().0.clone());
    }

    /// Asks the store and waits on this thread.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let guard = self.guard.get();
        let call = Call::Check(guard.request(self.key.as_bytes()));
        if let Some(answer) = wait(py, &guard.limiter.blocking(), &call)?
            && let Answer::Decision(decision) = call_core(py, || answer)?
        {
            let _ = self.decision.set(decision);
            events::deliver_pending();
        }
        Ok(())
    }

    /// Whether the request may proceed.
    #[getter]
    fn allowed(&self) -> PyResult<bool> {
        self.decided().map(Decision::allowed)
    }

    #[getter]
    fn decision(&self) -> PyResult<PyDecision> {
        self.decided().cloned().map(PyDecision)
    }

    #[getter]
    fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// Wraps ``send`` of an ASGI application.
    fn sender(this: Py<Self>, send: Py<PyAny>) -> ResponseSender {
        ResponseSender { send, source: FieldSource::Result(this), has_started: AtomicBool::new(false) }
    }

    /// The Python guard that decided.
    #[getter]
    fn guard<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.guard.get().guard.bind(py).clone()
    }

    /// All that was decided about the request, where there is more than this.
    #[getter]
    fn outcomes<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.outcomes.get().map(|outcomes| outcomes.bind(py).clone())
    }

    #[setter]
    fn set_outcomes(&self, outcomes: Py<PyAny>) {
        let _ = self.outcomes.set(outcomes);
    }

    /// Sets the fields in the headers of a Werkzeug response.
    fn add_to(&self, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = headers.py();
        let Some(decision) = self.decision.get() else { return Ok(()) };
        let fields = self.guard.get().fields(py, decision)?;
        // Werkzeug's `add` is much faster than `set`, which is needed only to replace fields.
        let mut has_fields = false;
        for header in headers.try_iter()? {
            let name = header?.get_item(0)?.cast_into::<PyString>()?;
            let name = Utf8Text::new(&name, "header")?;
            has_fields |= fields.iter().any(|field| field.name.eq_ignore_ascii_case(&name));
        }
        let method = if has_fields { intern!(py, "set") } else { intern!(py, "add") };
        for HeaderField { name, value } in fields {
            headers.call_method1(method, (name, value))?;
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.guard)?;
        self.outcomes.get().map_or(Ok(()), |outcomes| visit.call(outcomes))
    }
}

/// The ``send`` that an ASGI application gets: adds the header fields when the response starts. It returns the awaitable of the
/// original ``send``, so that it adds no step to the event loop's work.
#[pyclass(name = "ResponseSender", module = "polylimit._core", frozen)]
pub(crate) struct ResponseSender {
    send: Py<PyAny>,
    source: FieldSource,
    has_started: AtomicBool,
}

/// The source of the header fields.
enum FieldSource {
    Result(Py<GuardResult>),
    /// A Python object whose method ``start`` sends the start of the response.
    Outcomes(Py<PyAny>),
}

#[pymethods]
impl ResponseSender {
    #[new]
    fn new(send: Py<PyAny>, outcomes: Py<PyAny>) -> Self {
        Self { send, source: FieldSource::Outcomes(outcomes), has_started: AtomicBool::new(false) }
    }

    #[getter]
    fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Relaxed)
    }

    /// Sends a message.
    fn __call__(&self, message: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = message.py();
        if !self.starts(message)? {
            return self.send.call1(py, (message,));
        }
        self.has_started.store(true, Ordering::Relaxed);
        let result = match &self.source {
            FieldSource::Result(result) => result.get(),
            FieldSource::Outcomes(outcomes) => {
                return outcomes.call_method1(py, intern!(py, "start"), (&self.send, message));
            }
        };
        if let Some(outcomes) = result.all_outcomes() {
            return outcomes.call_method1(py, intern!(py, "start"), (&self.send, message));
        }
        let name = intern!(py, "headers");
        // The message and the list belong to the application and must not change.
        let started = if let Ok(message) = message.cast::<PyDict>() {
            message.copy()?
        } else {
            let started = PyDict::new(py);
            started.update(message.cast()?)?;
            started
        };
        let headers = PyList::empty(py);
        if let Some(own) = started.get_item(name)? {
            headers.call_method1(intern!(py, "extend"), (own,))?;
        }
        result.append_to(&headers)?;
        started.set_item(name, headers)?;
        self.send.call1(py, (started,))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.send)?;
        match &self.source {
            FieldSource::Result(result) => visit.call(result),
            FieldSource::Outcomes(outcomes) => visit.call(outcomes),
        }
    }
}

impl ResponseSender {
    /// Whether a message is the start of the response.
    fn starts(&self, message: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.has_started() {
            return Ok(false);
        }
        let py = message.py();
        message.get_item(intern!(py, "type"))?.eq(intern!(py, "http.response.start"))
    }
}
