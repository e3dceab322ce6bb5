//! The calls to the store that a guard needs, and what takes their answers.

use std::sync::Arc;

use parking_lot::Mutex;
use polylimit::guard::GuardCheck;
use polylimit::{Answer, Decision, Error, Limiter};
use pyo3::prelude::*;

use crate::call::{Operation, OwnedCall, OwnedRequest, Recipient};
use crate::error::call_core;
use crate::events;
use crate::limiter_classes::PyAsyncLimiter;
use crate::operation::State;
use crate::operation_type;
use crate::waiting::wait;

/// A check of the core that waits for its answers; `None` after the request was admitted.
pub(crate) type SharedCheck = Arc<Mutex<Option<GuardCheck>>>;

/// The call that asks the store; `None` when nothing has to be asked.
pub(crate) fn asking_call(shared: &SharedCheck, limiter: &Limiter) -> Option<StoreCall> {
    let check = shared.lock();
    let check = check.as_ref()?;
    let mut requests: Vec<_> = check.requests().iter().map(OwnedRequest::from_core).collect();
    let call = match requests.len() {
        0 => return None,
        1 => OwnedCall::OneKey(Operation::Check, requests.pop()?),
        _ if check.asks_ahead() => OwnedCall::CheckMany { requests, return_exceptions: true },
        _ => OwnedCall::CheckTogether(requests),
    };
    let recipient = Arc::clone(shared) as Arc<dyn Recipient>;
    Some(StoreCall::new(limiter.clone(), call, recipient, State::Tried))
}

/// The calls that refund what a check is done with.
pub(crate) fn refunds_of(check: GuardCheck) -> Vec<StoreCall> {
    let shared = SharedCheck::default();
    let calls = refund_calls(&shared, &check);
    *shared.lock() = Some(check);
    calls
}

pub(crate) fn refund_calls(shared: &SharedCheck, check: &GuardCheck) -> Vec<StoreCall> {
    let calls = check.refunds().enumerate().map(|(at, (limiter, request))| {
        let call = OwnedCall::OneKey(Operation::Refund, OwnedRequest::from_core(&request));
        let recipient = Arc::new(RefundRecipient { check: Arc::clone(shared), at });
        StoreCall::new(limiter.clone(), call, recipient, State::NotStarted)
    });
    calls.collect()
}

impl Recipient for Mutex<Option<GuardCheck>> {
    fn receive(&self, py: Python<'_>, answer: Result<Answer, Error>) -> PyResult<Py<PyAny>> {
        if let Some(check) = &mut *self.lock() {
            match answer {
                Ok(Answer::Decisions(decisions)) if check.asks_ahead() => check.answer_each(decisions),
                answer => check.answer(decisions_of(answer)),
            }
        }
        Ok(py.None())
    }
}

/// Takes what is left after a refund. A refund that fails leaves its units spent.
struct RefundRecipient {
    check: SharedCheck,
    at: usize,
}

impl Recipient for RefundRecipient {
    fn receive(&self, py: Python<'_>, answer: Result<Answer, Error>) -> PyResult<Py<PyAny>> {
        if let Ok(Answer::Usage(left)) = answer
            && let Some(check) = &mut *self.check.lock()
        {
            check.refunded(self.at, left);
        }
        Ok(py.None())
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

type NewState = fn(Py<PyAsyncLimiter>, Box<OwnedCall>) -> State;

impl StoreCall {
    fn new(limiter: Limiter, call: OwnedCall, recipient: Arc<dyn Recipient>, state: NewState) -> Self {
        Self { limiter, call: Mutex::new(Some(OwnedCall::For(Box::new(call), recipient))), state }
    }
}

#[pymethods]
impl StoreCall {
    /// Makes the call and waits on this thread.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let Some(owned) = self.call.lock().take() else { return Ok(()) };
        let OwnedCall::For(_, recipient) = &owned else { return Ok(()) };
        let known = call_core(py, || Ok(owned.with(|call| self.limiter.try_call(call))))?;
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
        let state = match self.call.lock().take() {
            None => State::Finished,
            Some(call) => {
                (self.state)(Py::new(py, PyAsyncLimiter::from_core(self.limiter.clone()))?, Box::new(call))
            }
        };
        operation_type::create(py, state)
    }
}

/// The decisions of the core's answer to a check of one or several policies.
fn decisions_of(answer: Result<Answer, Error>) -> Result<Vec<Decision>, Error> {
    match answer? {
        Answer::Decision(decision) => Ok(vec![decision]),
        Answer::Decisions(decisions) => decisions.into_iter().collect(),
        _ => Ok(Vec::new()),
    }
}
