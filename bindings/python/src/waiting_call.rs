//! A call to the store that waits for the scheduler of another library: gevent, eventlet or trio. The scheduler watches a descriptor,
//! which is readable when the answer is there.

use std::sync::Arc;

use polylimit::raw::{Answer, Call, Completions, EventDescriptor, RawDescriptor};
use polylimit::{Error, Limiter};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::call::{AnswerForm, answer_to_python};
use crate::error::call_core;

/// A call that was started and waits.
pub(crate) struct WaitingCall {
    completions: Completions<()>,
    event: Arc<EventDescriptor>,
}

/// The result of starting a call.
pub(crate) enum Started {
    Known(Result<Answer, Error>),
    Waits(WaitingCall),
}

impl WaitingCall {
    pub(crate) fn start(py: Python<'_>, limiter: &Limiter, call: &Call<'_>) -> PyResult<Started> {
        let event = Arc::new(EventDescriptor::new().map_err(|error| PyOSError::new_err(error.to_string()))?);
        let raised = Arc::clone(&event);
        let completions = Completions::new(move || raised.raise());
        let known = call_core(py, || Ok(completions.submit(limiter, call, ())))?;
        Ok(known.map_or(Started::Waits(Self { completions, event }), Started::Known))
    }

    pub(crate) fn descriptor(&self) -> RawDescriptor {
        self.event.descriptor()
    }

    /// Takes the answer once the descriptor is readable; `None` if it is not there yet.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Option<Result<Answer, Error>>> {
        self.event.lower();
        let mut taken = None;
        call_core(py, || {
            self.completions.drain(|(), answer| taken = Some(answer));
            Ok(())
        })?;
        Ok(taken)
    }

    /// Ends the call, whose caller has stopped waiting: an acquire leaves the queue, and a reservation is cancelled.
    pub(crate) fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        call_core(py, || {
            py.detach(|| self.completions.cancel(&()));
            Ok(())
        })
    }
}

/// The same for the coroutine of `polylimit._trio`.
#[pyclass(name = "TrioCall", module = "polylimit._core", frozen)]
pub(crate) struct TrioCall {
    call: WaitingCall,
    form: AnswerForm,
}

impl TrioCall {
    pub(crate) fn new(call: WaitingCall, form: AnswerForm) -> Self {
        Self { call, form }
    }
}

#[pymethods]
impl TrioCall {
    fn fileno(&self) -> RawDescriptor {
        self.call.descriptor()
    }

    /// A tuple of the result; ``None`` if it is not there yet.
    fn take(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        let Some(answer) = self.call.take(py)? else { return Ok(None) };
        answer_to_python(py, answer, &self.form).map(|result| Some((result,)))
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.call.cancel(py)
    }
}
