//! The calls to the store that a guard needs, and what takes their answers.

use std::sync::Arc;

use parking_lot::Mutex;
use polylimit::http::guard::{GuardCheck, Verdict};
use polylimit::raw::Answer;
use polylimit::{Error, Limiter};
use pyo3::prelude::*;

use crate::call::{OwnedCall, Recipient};
use crate::configuration::OwnedAttributes;
use crate::error::call_core;
use crate::events;
use crate::operation::State;
use crate::operation_type;
use crate::waiting::wait;

/// A check of the core whose calls are made one after the other.
#[derive(Clone)]
pub(crate) struct SharedCheck(Arc<Mutex<Calls>>);

struct Calls {
    check: GuardCheck,
    /// The number of the newest call.
    newest: u64,
    /// Whether that call is not answered yet.
    is_pending: bool,
    /// The attributes of the request, where the configuration decides.
    attributes: Option<Arc<OwnedAttributes>>,
}

impl SharedCheck {
    pub(crate) fn new(check: GuardCheck, attributes: Option<Arc<OwnedAttributes>>) -> Self {
        Self(Arc::new(Mutex::new(Calls { check, newest: 0, is_pending: false, attributes })))
    }

    pub(crate) fn with<R>(&self, use_check: impl FnOnce(&mut GuardCheck) -> R) -> R {
        use_check(&mut self.0.lock().check)
    }

    pub(crate) fn conclude(&self) -> Verdict {
        self.with(GuardCheck::conclude)
    }

    /// The call to the store that has to be made next. A call before it whose caller has stopped waiting was sent, and its answer is not
    /// waited for. `is_tried` says that the call has to wait for certain.
    pub(crate) fn next_call(&self, is_tried: bool) -> Option<StoreCall> {
        let mut calls = self.0.lock();
        let calls = &mut *calls;
        if std::mem::take(&mut calls.is_pending) {
            calls.check.answer_call(Ok(Answer::Ready));
        }
        let attributes = calls.attributes.as_ref();
        let copied = calls
            .check
            .next_call(|limiter, call| Some((limiter.clone(), OwnedCall::from_core(call, attributes)?)));
        let (limiter, call) = copied??;
        calls.newest += 1;
        calls.is_pending = true;
        let recipient = Arc::new(CallRecipient { check: self.clone(), number: calls.newest });
        let state = if is_tried { State::Tried } else { State::NotStarted };
        Some(StoreCall::new(limiter, call, recipient, state))
    }
}

/// Takes the answer to one call of a check, unless the check has gone on without it.
struct CallRecipient {
    check: SharedCheck,
    number: u64,
}

impl Recipient for CallRecipient {
    fn receive(&self, py: Python<'_>, answer: Result<Answer, Error>) -> PyResult<Py<PyAny>> {
        let mut calls = self.check.0.lock();
        if calls.newest == self.number && std::mem::take(&mut calls.is_pending) {
            calls.check.answer_call(answer);
        }
        Ok(py.None())
    }
}

/// The calls that give back, commit and cancel for the checks of a request, all of which have to be made, each after the one before
/// it was answered or its caller has stopped waiting.
#[pyclass(name = "Settling", module = "polylimit._core", frozen)]
pub(crate) struct Settling(Mutex<Vec<SharedCheck>>);

impl Settling {
    /// The checks begin with the last one.
    pub(crate) fn new(checks: Vec<SharedCheck>) -> Self {
        Self(Mutex::new(checks))
    }
}

#[pymethods]
impl Settling {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self) -> Option<StoreCall> {
        let mut checks = self.0.lock();
        while let Some(check) = checks.last() {
            if let Some(call) = check.next_call(false) {
                return Some(call);
            }
            checks.pop();
        }
        None
    }
}

/// A call to the store on behalf of a guard. It is made once: awaited in an event loop, or by ``wait``.
#[pyclass(name = "StoreCall", module = "polylimit._core", frozen)]
pub(crate) struct StoreCall {
    limiter: Limiter,
    call: Mutex<Option<OwnedCall>>,
    /// How the call begins where it is awaited: `Tried` if it has to wait for certain.
    state: NewState,
}

type NewState = fn(Limiter, Box<OwnedCall>) -> State;

impl StoreCall {
    fn new(limiter: Limiter, call: OwnedCall, recipient: Arc<dyn Recipient>, state: NewState) -> Self {
        Self { limiter, call: Mutex::new(Some(OwnedCall::For(Box::new(call), recipient))), state }
    }

    /// The call as an operation of an event loop.
    pub(crate) fn operation(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let state = match self.call.lock().take() {
            None => State::Finished,
            Some(call) => (self.state)(self.limiter.clone(), Box::new(call)),
        };
        operation_type::create(py, state)
    }
}

#[pymethods]
impl StoreCall {
    /// Makes the call and waits on this thread.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let Some(owned) = self.call.lock().take() else { return Ok(()) };
        let OwnedCall::For(_, recipient) = &owned else { return Ok(()) };
        let known = call_core(py, || Ok(owned.with(|call| self.limiter.raw().try_call(call))))?;
        let answer = match known {
            Some(known) => Some(known),
            None => owned.with(|call| wait(py, &self.limiter.blocking(), call))?,
        };
        events::deliver_pending();
        if let Some(answer) = answer {
            recipient.receive(py, answer)?;
        }
        Ok(())
    }

    fn __await__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.operation(py)
    }
}
