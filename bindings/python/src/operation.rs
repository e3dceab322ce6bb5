//! The steps of an asynchronous operation. `operation_type.rs` makes an awaitable Python object of them.
//!
//! An operation that needs no waiting ends in its first step and never touches the event loop. Any other waits for an
//! [`OperationFuture`], which the loop's [`LoopQueue`] finishes.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use polylimit::raw::Call;
use polylimit::{Limiter, Request};
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::call::{AnswerForm, Operation, OwnedCall, answer_to_python, try_attached, try_call};
use crate::convert::Utf8Text;
use crate::limiter_classes::PyAsyncLimiter;
use crate::loop_queue::{LoopQueue, Submission};
use crate::once::intern;
use crate::operation_future::OperationFuture;

/// The progress of an operation.
pub(crate) enum State {
    /// Not started, with the most frequent arguments in a form that allocates nothing.
    Fast(FastOperation),
    NotStarted(Limiter, Box<OwnedCall>),
    /// Not started, and `try_call` has found that it has to wait.
    Tried(Limiter, Box<OwnedCall>),
    /// The result is known before the operation is awaited.
    Ready(Py<PyAny>),
    Waiting(Py<OperationFuture>),
    /// A coroutine waits, in an event loop that is not asyncio's.
    Delegated(Py<PyAny>),
    Finished,
}

impl State {
    /// The method that returns an operation in this state, which is not started.
    pub(crate) fn method(&self) -> &'static CStr {
        match self {
            Self::Fast(fast) => fast.operation.method(),
            Self::NotStarted(_, call) | Self::Tried(_, call) => call.method(),
            Self::Ready(_) | Self::Waiting(_) | Self::Delegated(_) | Self::Finished => c"Operation",
        }
    }
}

/// An operation on one key, given as text, with an optional policy, given as text.
pub(crate) struct FastOperation {
    pub(crate) limiter: Py<PyAsyncLimiter>,
    pub(crate) operation: Operation,
    pub(crate) key: Utf8Text,
    pub(crate) policy: Option<Utf8Text>,
    pub(crate) cost: u64,
}

/// The result of one step.
pub(crate) enum Step {
    /// The operation waits; the event loop receives this object.
    Yield(Py<PyAny>),
    Return(Py<PyAny>),
}

impl FastOperation {
    fn with<R>(&self, use_call: impl FnOnce(&Limiter, &Call<'_>) -> R) -> R {
        let request = Request::new(&*self.key).cost(self.cost);
        let request = self.policy.as_ref().map_or(request, |policy| request.policy(policy));
        use_call(self.limiter.get().core(), &self.operation.call(request))
    }

    /// Drops the references; see [`Utf8Text::release`].
    fn release(self, py: Python<'_>) {
        self.limiter.drop_ref(py);
        self.key.release(py);
        if let Some(policy) = self.policy {
            policy.release(py);
        }
    }
}

/// Runs the operation until it waits or is finished. `value` is what the event loop sends.
///
/// The interpreter calls this without pyo3 knowing that the thread is attached, so a Python reference must be dropped inside of
/// `Python::attach` or by `drop_ref`.
pub(crate) fn step(state: &Cell<State>, py: Python<'_>, value: Borrowed<'_, '_, PyAny>) -> PyResult<Step> {
    let current = state.replace(State::Finished);
    if let State::Fast(fast) = &current
        && let Some(result) = fast.with(|limiter, call| try_call(py, limiter, call))
    {
        if let State::Fast(fast) = current {
            fast.release(py);
        }
        return result.map(Step::Return);
    }
    Python::attach(|py| step_attached(state, current, py, value))
}

fn step_attached(
    state: &Cell<State>,
    current: State,
    py: Python<'_>,
    value: Borrowed<'_, '_, PyAny>,
) -> PyResult<Step> {
    let submission = match current {
        State::Fast(fast) => {
            fast.with(|limiter, call| LoopQueue::submit(py, limiter, call, AnswerForm::Object))?
        }
        State::NotStarted(limiter, call) => start(py, &limiter, &call, false)?,
        State::Tried(limiter, call) => start(py, &limiter, &call, true)?,
        State::Waiting(future) => match future.get().take(py) {
            Some(result) => Submission::Known(result?),
            None => Submission::Pending(future),
        },
        State::Ready(result) => Submission::Known(result),
        State::Delegated(coroutine) => return send(state, coroutine, py, value),
        State::Finished => {
            return Err(PyRuntimeError::new_err("cannot reuse an operation that was awaited already"));
        }
    };
    let future = match submission {
        Submission::Known(result) => return Ok(Step::Return(result)),
        Submission::Pending(future) => future,
        Submission::Delegated(coroutine) => {
            let nothing = py.None();
            return send(state, coroutine, py, nothing.bind_borrowed(py));
        }
    };
    let yielded = future.clone_ref(py).into_any();
    state.set(State::Waiting(future));
    Ok(Step::Yield(yielded))
}

/// Runs the coroutine that waits until it waits again or is finished.
fn send(
    state: &Cell<State>,
    coroutine: Py<PyAny>,
    py: Python<'_>,
    value: Borrowed<'_, '_, PyAny>,
) -> PyResult<Step> {
    let mut result = null_mut();
    // SAFETY: the coroutine is an iterator, and the interpreter writes a reference to the result.
    let (sent, result) = unsafe {
        let sent = ffi::PyIter_Send(coroutine.as_ptr(), value.as_ptr(), &raw mut result);
        (sent, Bound::from_owned_ptr_or_opt(py, result))
    };
    match (sent, result) {
        (ffi::PySendResult::PYGEN_NEXT, Some(yielded)) => {
            state.set(State::Delegated(coroutine));
            Ok(Step::Yield(yielded.unbind()))
        }
        (ffi::PySendResult::PYGEN_RETURN, Some(result)) => Ok(Step::Return(result.unbind())),
        _ => Err(PyErr::fetch(py)),
    }
}

/// Decides at once where the store allows it, unless that was tried, and otherwise submits the call to the queue of the running
/// loop.
fn start(py: Python<'_>, limiter: &Limiter, owned: &OwnedCall, is_tried: bool) -> PyResult<Submission> {
    owned.with(|call| {
        if !is_tried && let Some(answer) = try_attached(py, limiter, call)? {
            return answer_to_python(py, answer, &owned.answer_form()).map(Submission::Known);
        }
        LoopQueue::submit(py, limiter, call, owned.answer_form())
    })
}

/// Ends the operation with an exception. A request that was already sent to the store is counted there.
pub(crate) fn throw(
    state: &Cell<State>,
    py: Python<'_>,
    exception: &Bound<'_, PyTuple>,
) -> PyResult<Py<PyAny>> {
    match state.replace(State::Finished) {
        State::Waiting(future) => LoopQueue::abandon(py, &future),
        State::Delegated(coroutine) => {
            let yielded = coroutine.bind(py).call_method1(intern!(py, "throw"), exception)?;
            state.set(State::Delegated(coroutine));
            return Ok(yielded.unbind());
        }
        State::Fast(_) | State::NotStarted(..) | State::Tried(..) | State::Ready(_) | State::Finished => {}
    }
    Err(exception_of(exception)?)
}

/// Ends the operation without a result.
pub(crate) fn close(state: &Cell<State>, py: Python<'_>) -> PyResult<()> {
    match state.replace(State::Finished) {
        State::Waiting(future) => LoopQueue::abandon(py, &future),
        State::Delegated(coroutine) => {
            coroutine.bind(py).call_method0(intern!(py, "close"))?;
        }
        State::Fast(_) | State::NotStarted(..) | State::Tried(..) | State::Ready(_) | State::Finished => {}
    }
    Ok(())
}

/// The exception that the one, two or three arguments of `throw` describe.
fn exception_of(arguments: &Bound<'_, PyTuple>) -> PyResult<PyErr> {
    let first = arguments.get_item(0)?;
    match arguments.get_item(1) {
        Ok(value) if !value.is_none() && first.is_callable() && !value.is_instance(&first)? => {
            Ok(PyErr::from_value(first.call1((value,))?))
        }
        Ok(value) if !value.is_none() => Ok(PyErr::from_value(value)),
        _ if first.is_callable() => Ok(PyErr::from_value(first.call0()?)),
        _ => Ok(PyErr::from_value(first)),
    }
}

/// Warns about an operation that is freed without having been awaited, as Python does for a coroutine.
pub(crate) fn warn_if_not_awaited(state: State, py: Python<'_>) {
    if !matches!(state, State::Fast(_) | State::NotStarted(..) | State::Tried(..)) {
        return;
    }
    // An exception may be set while the object is freed; it is restored afterwards.
    let current = PyErr::take(py);
    let category = py.get_type::<PyRuntimeWarning>();
    let text = [state.method().to_bytes(), b" was never awaited"].concat();
    // The names of methods contain no zero.
    let text = CString::new(text).unwrap_or_default();
    let warned = PyErr::warn(py, &category, &text, 1);
    if let Err(error) = warned {
        error.write_unraisable(py, None);
    }
    if let Some(current) = current {
        current.restore(py);
    }
}
