//! `OperationFuture`, the object that a waiting operation yields to the event loop.
//!
//! It has the interface that `asyncio.Task` requires of a future. With `asyncio.Future`, the loop would run one callback for each
//! task; here the loop's queue resumes the tasks of all finished calls in one callback.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::asyncio::{CancelledError, InvalidStateError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::once::intern;
use pyo3::types::PyDict;

/// A future of an event loop, which is done when a call has finished.
#[pyclass(name = "OperationFuture", module = "polylimit._core", frozen)]
pub(crate) struct OperationFuture {
    event_loop: Py<PyAny>,
    /// The queue of the loop, as an object: this module is below that of the queue.
    queue: Py<PyAny>,
    /// The number of the call in the queue.
    number: u64,
    /// Whether the call is cancelled when its operation ends early, as an acquire is. A check that was sent to the store is
    /// counted there.
    ends_call: bool,
    /// Set by the operation when it waits; the task resets it after registering its callback.
    is_blocking: AtomicBool,
    state: Mutex<State>,
}

struct State {
    outcome: Outcome,
    /// Usually one: the task that awaits the operation.
    callbacks: Vec<Callback>,
}

enum Outcome {
    Pending,
    Finished(PyResult<Py<PyAny>>),
    /// The operation has taken the result, or has ended early.
    Taken,
    /// With the message of the cancellation.
    Cancelled(Option<Py<PyAny>>),
}

struct Callback {
    function: Py<PyAny>,
    context: Py<PyAny>,
}

/// A callback of a future that is done.
pub(crate) struct DueCallback {
    callback: Callback,
    future: Py<OperationFuture>,
}

impl DueCallback {
    /// Calls the callback in its context, as the loop would. The caller is a callback of the loop, outside of any task.
    pub(crate) fn run(&self, py: Python<'_>) -> PyResult<()> {
        let Callback { function, context } = &self.callback;
        context.call_method1(py, intern!(py, "run"), (function, &self.future)).map(drop)
    }

    /// Lets the loop call the callback.
    pub(crate) fn schedule(&self, py: Python<'_>) -> PyResult<()> {
        let Callback { function, context } = &self.callback;
        let named = PyDict::new(py);
        named.set_item(intern!(py, "context"), context)?;
        let event_loop = self.future.get().event_loop.bind(py);
        event_loop.call_method(intern!(py, "call_soon"), (function, &self.future), Some(&named)).map(drop)
    }
}

/// Stores the result of a call for its operation, and adds its callbacks to those that are due. The result for an operation that
/// was cancelled is made all the same and dropped, which ends a reservation.
pub(crate) fn finish(
    py: Python<'_>,
    future: &Py<OperationFuture>,
    result: impl FnOnce() -> PyResult<Py<PyAny>>,
    due: &mut Vec<DueCallback>,
) {
    let this = future.get();
    // Without the lock, because a hook of the limiter may be called.
    let result = result();
    let callbacks = {
        let mut state = this.state.lock();
        if !matches!(state.outcome, Outcome::Pending) {
            return;
        }
        state.outcome = Outcome::Finished(result);
        std::mem::take(&mut state.callbacks)
    };
    let future = || future.clone_ref(py);
    due.extend(callbacks.into_iter().map(|callback| DueCallback { callback, future: future() }));
}

impl OperationFuture {
    pub(crate) fn new(event_loop: Py<PyAny>, queue: Py<PyAny>, number: u64, ends_call: bool) -> Self {
        let state = Mutex::new(State { outcome: Outcome::Pending, callbacks: Vec::new() });
        Self { event_loop, queue, number, ends_call, is_blocking: AtomicBool::new(true), state }
    }

    /// The queue and the number of the call, if the call is cancelled when its operation ends early.
    pub(crate) fn cancellable_call(&self) -> Option<(&Py<PyAny>, u64)> {
        self.ends_call.then_some((&self.queue, self.number))
    }

    /// Takes the result for the operation; `None` while it has to wait.
    pub(crate) fn take(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut state.outcome, Outcome::Taken) {
            Outcome::Pending => {
                state.outcome = Outcome::Pending;
                self.is_blocking.store(true, Ordering::Relaxed);
                None
            }
            Outcome::Finished(result) => Some(result),
            Outcome::Cancelled(message) => Some(Err(cancelled(py, message.as_ref()))),
            Outcome::Taken => Some(Err(InvalidStateError::new_err("the result was taken already"))),
        }
    }

    /// Called when the operation ends early.
    pub(crate) fn abandon(&self) {
        let abandoned = {
            let mut state = self.state.lock();
            let outcome = std::mem::replace(&mut state.outcome, Outcome::Taken);
            (outcome, std::mem::take(&mut state.callbacks))
        };
        // Without the lock, because a destructor may run any code.
        drop(abandoned);
    }
}

fn cancelled(py: Python<'_>, message: Option<&Py<PyAny>>) -> PyErr {
    match message {
        Some(message) => CancelledError::new_err((message.clone_ref(py),)),
        None => CancelledError::new_err(()),
    }
}

#[pymethods]
impl OperationFuture {
    #[getter]
    fn _asyncio_future_blocking(&self) -> bool {
        self.is_blocking.load(Ordering::Relaxed)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, is_blocking: bool) {
        self.is_blocking.store(is_blocking, Ordering::Relaxed);
    }

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.event_loop.clone_ref(py)
    }

    #[pyo3(signature = (function, *, context = None))]
    fn add_done_callback(
        this: &Bound<'_, Self>,
        function: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let py = this.py();
        let context = match context {
            Some(context) => context,
            None => py.import("contextvars")?.call_method0("copy_context")?.unbind(),
        };
        let callback = Callback { function, context };
        {
            let mut state = this.get().state.lock();
            if matches!(state.outcome, Outcome::Pending) {
                state.callbacks.push(callback);
                return Ok(());
            }
        }
        DueCallback { callback, future: this.clone().unbind() }.schedule(py)
    }

    /// Cancels the future unless it is done. The loop then resumes the task, which throws the error into the operation.
    #[pyo3(signature = (msg = None))]
    fn cancel(this: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let callbacks = {
            let mut state = this.get().state.lock();
            if !matches!(state.outcome, Outcome::Pending) {
                return Ok(false);
            }
            state.outcome = Outcome::Cancelled(msg);
            std::mem::take(&mut state.callbacks)
        };
        for callback in callbacks {
            DueCallback { callback, future: this.clone().unbind() }.schedule(this.py())?;
        }
        Ok(true)
    }

    fn cancelled(&self) -> bool {
        matches!(self.state.lock().outcome, Outcome::Cancelled(_))
    }

    fn done(&self) -> bool {
        !matches!(self.state.lock().outcome, Outcome::Pending)
    }

    /// Raises if the future is cancelled or pending. The operation itself returns or raises the result of the call.
    fn result(&self, py: Python<'_>) -> PyResult<()> {
        match &self.state.lock().outcome {
            Outcome::Pending => Err(InvalidStateError::new_err("the result is not there yet")),
            Outcome::Cancelled(message) => Err(cancelled(py, message.as_ref())),
            Outcome::Finished(_) | Outcome::Taken => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        visit.call(&self.queue)?;
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        match &state.outcome {
            Outcome::Finished(Ok(result)) => visit.call(result)?,
            Outcome::Cancelled(Some(message)) => visit.call(message)?,
            _ => {}
        }
        for Callback { function, context } in &state.callbacks {
            visit.call(function)?;
            visit.call(context)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let callbacks = std::mem::take(&mut self.state.lock().callbacks);
        drop(callbacks);
    }
}
