//! What an asynchronous call does, step by step.
//!
//! An answer that is known at once is the result of its first step, so that the event loop is not touched. Otherwise it waits
//! for an [`OperationFuture`], which the queue of the loop finishes. [`operation_type`](crate::operation_type) makes a coroutine
//! of it.

use std::cell::Cell;

use polylimit::{Call, Limiter, Request};
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::async_limiter::PyAsyncLimiter;
use crate::call::{Job, Operation, answer, known};
use crate::error::guarded;
use crate::loop_queue::{LoopQueue, Submission};
use crate::operation_future::OperationFuture;
use crate::utf8::Utf8;

/// How far an operation is.
pub(crate) enum State {
    /// What nearly everybody asks, kept as briefly as can be.
    Plain(PlainOperation),
    New(Py<PyAsyncLimiter>, Box<Job>),
    /// The result is there, whoever asks for it or not.
    Done(Py<PyAny>),
    /// The call was started.
    Waiting(Py<OperationFuture>),
    Over,
}

/// An operation on one key that has not begun.
pub(crate) struct PlainOperation {
    pub(crate) limiter: Py<PyAsyncLimiter>,
    pub(crate) operation: Operation,
    pub(crate) key: Utf8,
    pub(crate) policy: Option<Utf8>,
    pub(crate) cost: u64,
}

/// What came of a step.
pub(crate) enum Step {
    /// The operation waits, and the event loop gets this.
    Yields(Py<PyAny>),
    Ends(Py<PyAny>),
}

impl PlainOperation {
    fn with<R>(&self, hand: impl FnOnce(&Limiter, &Call<'_>) -> R) -> R {
        let request = Request::new(&*self.key).cost(self.cost);
        let request = self.policy.as_ref().map_or(request, |policy| request.policy(policy));
        hand(self.limiter.get().face(), &self.operation.call(request))
    }

    fn release(self, py: Python<'_>) {
        self.limiter.drop_ref(py);
        self.key.release(py);
        if let Some(policy) = self.policy {
            policy.release(py);
        }
    }
}

/// Goes on until the operation waits or is over. Nothing of pyo3's may be dropped here without its attaching: it does not know
/// that this thread is attached to the interpreter.
pub(crate) fn step(state: &Cell<State>, py: Python<'_>) -> PyResult<Step> {
    let now = state.replace(State::Over);
    if let State::Plain(plain) = &now
        && let Some(known) = plain.with(|limiter, call| known(py, limiter, call))
    {
        if let State::Plain(plain) = now {
            plain.release(py);
        }
        return known.map(Step::Ends);
    }
    Python::attach(|py| go_on(state, now, py))
}

fn go_on(state: &Cell<State>, now: State, py: Python<'_>) -> PyResult<Step> {
    let future = match now {
        State::Plain(plain) => {
            match plain.with(|limiter, call| LoopQueue::submit(py, limiter, call, false))? {
                Submission::Known(result) => return Ok(Step::Ends(result)),
                Submission::Pending(future) => future,
            }
        }
        State::New(limiter, job) => match begin(py, &limiter, &job)? {
            Submission::Known(result) => return Ok(Step::Ends(result)),
            Submission::Pending(future) => future,
        },
        State::Waiting(future) => match future.get().take(py) {
            Some(result) => return result.map(Step::Ends),
            None => future,
        },
        State::Done(result) => return Ok(Step::Ends(result)),
        State::Over => {
            return Err(PyRuntimeError::new_err("cannot reuse an operation that was awaited already"));
        }
    };
    let yielded = future.clone_ref(py).into_any();
    state.set(State::Waiting(future));
    Ok(Step::Yields(yielded))
}

/// Answers at once, or hands the call to the running loop's queue.
fn begin(py: Python<'_>, limiter: &Py<PyAsyncLimiter>, job: &Job) -> PyResult<Submission> {
    let limiter = limiter.get().face();
    job.with(|call| {
        if let Some(known) = guarded(py, || Ok(limiter.try_call(call)))? {
            return answer(py, known, job.return_exceptions()).map(Submission::Known);
        }
        LoopQueue::submit(py, limiter, call, job.return_exceptions())
    })
}

/// Ends the waiting with an exception. What was sent to a store is counted all the same.
pub(crate) fn throw(
    state: &Cell<State>,
    py: Python<'_>,
    exception: &Bound<'_, PyTuple>,
) -> PyResult<Py<PyAny>> {
    match state.replace(State::Over) {
        State::Waiting(future) => future.get().abandon(py),
        State::Plain(_) | State::New(..) | State::Done(_) | State::Over => {}
    }
    Err(raised(exception)?)
}

/// Gives up waiting.
pub(crate) fn close(state: &Cell<State>, py: Python<'_>) {
    if let State::Waiting(future) = state.replace(State::Over) {
        future.get().abandon(py);
    }
}

/// The exception of `throw`'s one, two or three arguments.
fn raised(exception: &Bound<'_, PyTuple>) -> PyResult<PyErr> {
    let first = exception.get_item(0)?;
    match exception.get_item(1) {
        Ok(value) if !value.is_none() && first.is_callable() && !value.is_instance(&first)? => {
            Ok(PyErr::from_value(first.call1((value,))?))
        }
        Ok(value) if !value.is_none() => Ok(PyErr::from_value(value)),
        _ if first.is_callable() => Ok(PyErr::from_value(first.call0()?)),
        _ => Ok(PyErr::from_value(first)),
    }
}

/// Whoever forgets to await limits nothing, so it is said as for a coroutine.
pub(crate) fn forget(state: State, py: Python<'_>) {
    if !matches!(state, State::Plain(_) | State::New(..)) {
        return;
    }
    let raised = PyErr::take(py);
    let category = py.get_type::<PyRuntimeWarning>();
    let said = PyErr::warn(py, &category, c"an operation of an AsyncLimiter was never awaited", 1);
    if let Err(error) = said {
        error.write_unraisable(py, None);
    }
    if let Some(raised) = raised {
        raised.restore(py);
    }
}
