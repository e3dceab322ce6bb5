//! `Operation`: what an asynchronous call returns, to be awaited.
//!
//! It is a coroutine in all but its type. What is known at once is the result of its first step, so that the event loop
//! is not touched; otherwise it waits for a future of the loop, which the loop's queue of finished calls resolves.

use polylimit::Limiter;
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyStopIteration, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::call::{Job, answer};
use crate::error::guarded;
use crate::loop_queue::{LoopQueue, Submitted, Ticket};

/// An operation under way: await it.
#[pyclass(name = "Operation", module = "polylimit", weakref)]
pub(crate) struct PyOperation {
    state: State,
}

enum State {
    New(Limiter, Box<Job>),
    /// The result is there, whoever asks for it or not.
    Done(Py<PyAny>),
    /// Waits for a future, by its iterator.
    Waiting(Py<PyAny>, Ticket),
    Over,
}

impl PyOperation {
    pub(crate) fn new(limiter: Limiter, job: Job) -> Self {
        Self { state: State::New(limiter, Box::new(job)) }
    }

    pub(crate) fn done(result: Py<PyAny>) -> Self {
        Self { state: State::Done(result) }
    }

    fn step(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (iterator, ticket) = match std::mem::replace(&mut self.state, State::Over) {
            State::New(limiter, job) => match begin(py, &limiter, &job)? {
                Submitted::Known(result) => return Err(PyStopIteration::new_err((result,))),
                Submitted::Waiting(future, ticket) => {
                    (future.bind(py).call_method0(intern!(py, "__await__"))?.unbind(), ticket)
                }
            },
            State::Waiting(iterator, ticket) => (iterator, ticket),
            State::Done(result) => return Err(PyStopIteration::new_err((result,))),
            State::Over => {
                return Err(PyRuntimeError::new_err("cannot reuse an operation that was awaited already"));
            }
        };
        let yielded = iterator.call_method0(py, intern!(py, "__next__"))?;
        self.state = State::Waiting(iterator, ticket);
        Ok(yielded)
    }
}

/// Answers at once, or hands the call to the running loop's queue.
fn begin(py: Python<'_>, limiter: &Limiter, job: &Job) -> PyResult<Submitted> {
    job.with(|call| {
        if let Some(known) = guarded(py, || Ok(limiter.try_call(call)))? {
            return answer(py, known, job.return_exceptions()).map(Submitted::Known);
        }
        LoopQueue::of_running(py)?.submit(py, limiter, call, job)
    })
}

#[pymethods]
impl PyOperation {
    fn __await__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.step(py)
    }

    /// Goes on until the operation waits or is over; for event loops.
    fn send(&mut self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.step(py)
    }

    /// Ends the waiting with an exception; for event loops. What was sent to a store is counted all the same.
    #[pyo3(signature = (*exception))]
    fn throw(&mut self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Waiting(iterator, ticket) => {
                ticket.abandon(py);
                iterator.call_method1(py, intern!(py, "throw"), exception)
            }
            State::New(..) | State::Done(_) | State::Over => Err(raised(exception)?),
        }
    }

    /// Gives up waiting.
    fn close(&mut self, py: Python<'_>) {
        if let State::Waiting(_, ticket) = std::mem::replace(&mut self.state, State::Over) {
            ticket.abandon(py);
        }
    }

    /// An operation is no answer: this is what ``if limiter.check(...)`` without ``await`` runs into.
    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err(
            "an operation of an AsyncLimiter has to be awaited: its answer is not here yet",
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.state {
            State::Waiting(held, _) | State::Done(held) => visit.call(held),
            State::New(..) | State::Over => Ok(()),
        }
    }

    fn __clear__(&mut self) {
        self.state = State::Over;
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
impl Drop for PyOperation {
    fn drop(&mut self) {
        if !matches!(self.state, State::New(..)) {
            return;
        }
        Python::try_attach(|py| {
            let raised = PyErr::take(py);
            let category = py.get_type::<PyRuntimeWarning>();
            let said = PyErr::warn(py, &category, c"an operation of an AsyncLimiter was never awaited", 1);
            if let Err(error) = said {
                error.write_unraisable(py, None);
            }
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}
