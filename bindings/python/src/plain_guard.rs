//! `PlainGuard`: one policy that is applied to every request alike, and `Passed`: what came of it for one request.
//!
//! What a web framework's integration does for nearly every request, in one call and without the objects of Python that it
//! would take there.

use std::sync::OnceLock;

use parking_lot::Mutex;
use polylimit::headers::{self, HeaderField, HeaderSettings};
use polylimit::{Answer, Call, ClientAddressRules, Decision, Limiter, Request};
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::async_limiter::PyAsyncLimiter;
use crate::call::{Asked, Job, Operation, PolicyText};
use crate::client_address::PyClientAddressRules;
use crate::decision::PyDecision;
use crate::error::guarded;
use crate::event;
use crate::http;
use crate::key::{self, Key};
use crate::limiter::PyLimiter;
use crate::operation::State;
use crate::operation_type;
use crate::sender::Sender;
use crate::utf8::Utf8;
use crate::waiting::wait;

/// The other end of a Unix socket is on this host.
const THIS_HOST: &str = "127.0.0.1";

/// One policy of a limiter, applied to every request at the same cost.
#[pyclass(name = "PlainGuard", module = "polylimit._core", frozen)]
pub(crate) struct PlainGuard {
    /// The guard of Python whose options these are.
    guard: Py<PyAny>,
    limiter: Limiter,
    /// The same, where it may have to be waited for.
    face: Py<PyAsyncLimiter>,
    policy: Option<Box<str>>,
    cost: u64,
    rules: ClientAddressRules,
    settings: HeaderSettings,
    /// The fields of the response before: most of them stay as they are.
    before: Mutex<Vec<Encoded>>,
}

/// A field, and as ASGI has it.
struct Encoded {
    field: HeaderField,
    pair: Py<PyTuple>,
}

impl PlainGuard {
    fn request<'a>(&'a self, key: &'a [u8]) -> Request<'a> {
        let request = Request::new(key).cost(self.cost);
        self.policy.as_deref().map_or(request, |policy| request.policy(policy))
    }

    /// The fields of the response, by the numbers that the policy has by now.
    fn fields(&self, py: Python<'_>, decision: &Decision) -> PyResult<Vec<HeaderField>> {
        guarded(py, || {
            let policy = self.limiter.policy_for(self.policy.as_deref(), None)?;
            Ok(headers::fields(&[(&policy, decision)], self.settings, 0))
        })
    }

    /// Adds the fields to a list of pairs of bytes.
    fn append_to(&self, list: &Bound<'_, PyList>, decision: &Decision) -> PyResult<()> {
        let py = list.py();
        let fields = self.fields(py, decision)?;
        // Making an object may run a finalizer, and that another thread, which comes here as well: nobody may wait for it.
        let mut shared = self.before.try_lock();
        let mut own = Vec::new();
        let before = shared.as_deref_mut().unwrap_or(&mut own);
        before.truncate(fields.len());
        for (at, field) in fields.into_iter().enumerate() {
            if let Some(same) = before.get(at).filter(|before| before.field == field) {
                list.append(&same.pair)?;
                continue;
            }
            let name = match before.get(at).filter(|before| before.field.name == field.name) {
                Some(named) => named.pair.bind(py).get_item(0)?,
                None => PyBytes::new(py, field.name.as_bytes()).into_any(),
            };
            let value = PyBytes::new(py, field.value.as_bytes()).into_any();
            let pair = PyTuple::new(py, [name, value])?;
            list.append(&pair)?;
            let encoded = Encoded { field, pair: pair.unbind() };
            match before.get_mut(at) {
                Some(before) => *before = encoded,
                None => before.push(encoded),
            }
        }
        Ok(())
    }
}

#[pymethods]
impl PlainGuard {
    /// What a guard asks of every request alike; ``None`` when its options are of a kind that is left to Python.
    #[staticmethod]
    fn of(
        py: Python<'_>,
        guard: Py<PyAny>,
        limiter: &Bound<'_, PyAny>,
        policy: Option<&Bound<'_, PyAny>>,
        cost: &Bound<'_, PyAny>,
        rules: Option<&Bound<'_, PyClientAddressRules>>,
        style: &str,
    ) -> PyResult<Option<Self>> {
        let limiter = if let Ok(limiter) = limiter.cast::<PyAsyncLimiter>() {
            limiter.get().face().clone()
        } else if let Ok(limiter) = limiter.cast::<PyLimiter>() {
            limiter.get().face().clone()
        } else {
            return Ok(None);
        };
        let policy = policy.map(PyAnyMethods::extract::<PolicyText>).transpose();
        let (Ok(policy), Ok(cost)) = (policy, key::cost(cost)) else { return Ok(None) };
        Ok(Some(Self {
            guard,
            face: Py::new(py, PyAsyncLimiter::of(&limiter))?,
            limiter,
            policy: policy.map(|policy| policy.as_str().into()),
            cost,
            rules: rules.map(|rules| rules.get().rules().clone()).unwrap_or_default(),
            settings: http::settings(py, style, "seconds")?,
            before: Mutex::default(),
        }))
    }

    /// Checks a request that came from a peer, whose address is the client's; ``None`` is a Unix socket.
    fn of_peer(this: &Bound<'_, Self>, peer: Option<&str>) -> PyResult<Passed> {
        let peer = peer.filter(|peer| !peer.is_empty()).unwrap_or(THIS_HOST);
        let key = guarded(this.py(), || Ok(this.get().rules.key_of(peer, [])))?;
        Passed::of(this, Key::Own(key.into_bytes().into()))
    }

    /// Checks a request that counts for a key.
    fn of_key(this: &Bound<'_, Self>, key: Key) -> PyResult<Passed> {
        Passed::of(this, key)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.guard)?;
        visit.call(&self.face)
    }
}

/// What a plain guard decided about one request.
#[pyclass(name = "Passed", module = "polylimit._core", frozen)]
pub(crate) struct Passed {
    plain: Py<PlainGuard>,
    key: Key,
    decision: OnceLock<Decision>,
    /// All that was decided about the request, once there is more than this.
    outcomes: OnceLock<Py<PyAny>>,
}

impl Passed {
    /// Decides if that is possible at once.
    fn of(plain: &Bound<'_, PlainGuard>, key: Key) -> PyResult<Self> {
        let py = plain.py();
        let decision = OnceLock::new();
        let this = plain.get();
        let call = Call::Check(this.request(key.as_bytes()));
        if let Some(Answer::Decision(known)) = guarded(py, || this.limiter.try_call(&call).transpose())? {
            let _ = decision.set(known);
            event::tell();
        }
        Ok(Self { plain: plain.clone().unbind(), key, decision, outcomes: OnceLock::new() })
    }

    fn known(&self) -> PyResult<&Decision> {
        self.decision.get().ok_or_else(|| PyRuntimeError::new_err("the request is not decided yet"))
    }

    /// All that was decided about the request, where there is more than this.
    pub(crate) fn more(&self) -> Option<&Py<PyAny>> {
        self.outcomes.get()
    }

    /// Adds the fields to those of a response in ASGI.
    pub(crate) fn append_to(&self, list: &Bound<'_, PyList>) -> PyResult<()> {
        self.decision.get().map_or(Ok(()), |decision| self.plain.get().append_to(list, decision))
    }
}

#[pymethods]
impl Passed {
    /// Whether the store has to be waited for.
    #[getter]
    fn is_waiting(&self) -> bool {
        self.decision.get().is_none()
    }

    /// Asks the store, for those who await it.
    fn ask(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let plain = self.plain.get();
        let policy = plain.policy.clone().map(PolicyText::Quota);
        let asked = Asked { key: Key::Own(self.key.as_bytes().into()), policy, cost: plain.cost };
        let job = Box::new(Job::One(Operation::Check, asked));
        operation_type::create(py, State::New(plain.face.clone_ref(py), job))
    }

    /// Notes what the store answered.
    fn note(&self, decision: &Bound<'_, PyDecision>) {
        let _ = self.decision.set(decision.get().0.clone());
    }

    /// Waits for the store on this thread.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let plain = self.plain.get();
        let call = Call::Check(plain.request(self.key.as_bytes()));
        if let Some(answered) = wait(py, &plain.limiter.blocking(), &call)?
            && let Answer::Decision(decision) = guarded(py, || answered)?
        {
            let _ = self.decision.set(decision);
            event::tell();
        }
        Ok(())
    }

    /// Whether the request may proceed.
    #[getter]
    fn allowed(&self) -> PyResult<bool> {
        self.known().map(Decision::allowed)
    }

    #[getter]
    fn decision(&self) -> PyResult<PyDecision> {
        self.known().cloned().map(PyDecision)
    }

    #[getter]
    fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// What the response is sent through.
    fn sender(this: Py<Self>, send: Py<PyAny>) -> Sender {
        Sender::of(send, this)
    }

    /// The guard that this request passed.
    #[getter]
    fn guard<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.plain.get().guard.bind(py).clone()
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

    /// Puts the fields into Werkzeug's headers of a response, in the places of those that have the same names.
    fn add_to(&self, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = headers.py();
        let Some(decision) = self.decision.get() else { return Ok(()) };
        let fields = self.plain.get().fields(py, decision)?;
        // To look here takes a fraction of what it takes there, for each field.
        let mut is_there = false;
        for header in headers.try_iter()? {
            let name = header?.get_item(0)?.cast_into::<PyString>()?;
            let name = Utf8::of(&name, "header")?;
            is_there |= fields.iter().any(|field| field.name.eq_ignore_ascii_case(&name));
        }
        let put = if is_there { intern!(py, "set") } else { intern!(py, "add") };
        for HeaderField { name, value } in fields {
            headers.call_method1(put, (name, value))?;
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.plain)?;
        self.outcomes.get().map_or(Ok(()), |outcomes| visit.call(outcomes))
    }
}
