//! The pending calls of one event loop: the loop watches one descriptor, and one callback handles all finished calls.
//!
//! Threads of the core never attach to the interpreter. A finished call makes the descriptor readable; the loop's own thread
//! takes the results and resumes the tasks that wait for them, one after the other in that callback. Calls that these tasks
//! start are sent together. For 64 tasks that takes half of the processor time of one loop callback and one message per call.
//!
//! A loop without `add_reader`, such as the `ProactorEventLoop`, which is the default on Windows, watches no descriptors. There a
//! thread of the queue, which waits for finished calls, schedules the same callback.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use parking_lot::Mutex;
use polylimit::Limiter;
use polylimit::raw::{Call, Completions, EventDescriptor};
use pyo3::exceptions::{PyNotImplementedError, PyOSError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyWeakrefMethods, PyWeakrefReference};

use crate::call::{AnswerForm, answer_to_python};
use crate::error::{call_core, raise_panic};
use crate::once::{OnceBox, intern};
use crate::operation_future::{OperationFuture, finish};
use crate::waiting_call::{Started, TrioCall, WaitingCall};

/// The result of submitting a call.
pub(crate) enum Submission {
    Known(Py<PyAny>),
    Pending(Py<OperationFuture>),
    /// A coroutine waits, in an event loop that is not asyncio's.
    Delegated(Py<PyAny>),
}

#[pyclass(name = "LoopQueue", module = "polylimit", frozen, weakref)]
pub(crate) struct LoopQueue {
    completions: Completions<u64>,
    pending: Mutex<PendingCalls>,
    /// What the loop watches; `None` if a thread waits instead.
    event: Option<Arc<EventDescriptor>>,
    /// Whether tasks are being resumed, whose calls are sent together.
    is_draining: AtomicBool,
    /// Whether the loop will start the deferred calls.
    is_scheduled: AtomicBool,
}

#[derive(Default)]
struct PendingCalls {
    last: u64,
    by_number: HashMap<u64, PendingCall>,
}

struct PendingCall {
    future: Py<OperationFuture>,
    form: AnswerForm,
}

thread_local! {
    /// Weak references to the loop that this thread used last and to its queue.
    static LAST: RefCell<Option<[Py<PyWeakrefReference>; 2]>> = const { RefCell::new(None) };
}

static RUNNING_LOOP: OnceBox<Py<PyAny>> = OnceBox::new();

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let function = || py.import("asyncio")?.getattr("get_running_loop");
    let get = RUNNING_LOOP.get_or_try_init(|| function().map(|function| Box::new(function.unbind())))?;
    get.bind(py).call0().map_err(|error| {
        if !error.is_instance_of::<PyRuntimeError>(py) {
            return error;
        }
        PyRuntimeError::new_err(
            "an AsyncLimiter waits in an event loop of asyncio or trio, and none runs here: elsewhere use limiter.blocking, whose \
             methods wait on their thread",
        )
    })
}

impl LoopQueue {
    /// Starts a call that `try_call` did not answer, for the loop that runs on this thread.
    pub(crate) fn submit(
        py: Python<'_>,
        limiter: &Limiter,
        call: &Call<'_>,
        form: AnswerForm,
    ) -> PyResult<Submission> {
        if runs_in_trio(py)? {
            return submit_to_trio(py, limiter, call, form);
        }
        let event_loop = running_loop(py)?;
        let this = Self::of(&event_loop)?;
        let queue = this.get();
        let (number, is_alone) = {
            let mut pending = queue.pending.lock();
            pending.last += 1;
            (pending.last, pending.by_number.is_empty())
        };
        // It waits in line or for a time, pauses between round trips, or reserves without a handle that would cancel what no task takes. One that is
        // deferred could not be cancelled.
        let is_long = match call {
            Call::Acquire(..)
            | Call::Sleep(_)
            | Call::ReserveTogether(..)
            | Call::List(..)
            | Call::ScanTop(..)
            | Call::ResetListed(..) => true,
            Call::Reserve(_, terms) => !terms.timeout.is_zero(),
            _ => false,
        };
        let is_deferred = !is_long && (!is_alone || queue.is_draining.load(Ordering::Relaxed));
        let known = call_core(py, || {
            let Self { completions, .. } = queue;
            Ok(if is_deferred {
                completions.defer(limiter, call, number)
            } else {
                completions.submit(limiter, call, number)
            })
        })?;
        if let Some(known) = known {
            return answer_to_python(py, known, &form).map(Submission::Known);
        }
        // Needed while draining, too: a resumed task may run the loop itself.
        if is_deferred && !queue.is_scheduled.load(Ordering::Relaxed) {
            let start = this.getattr(intern!(py, "start_deferred"))?;
            event_loop.call_method1(intern!(py, "call_soon"), (start,))?;
            queue.is_scheduled.store(true, Ordering::Relaxed);
        }
        // Of a call to a store of this host nothing is done yet.
        let ends_call = is_long || matches!(call, Call::Ready(_)) || limiter.raw().answers_at_once();
        let future =
            OperationFuture::new(event_loop.unbind(), this.clone().into_any().unbind(), number, ends_call);
        let future = Bound::new(py, future)?;
        let call = PendingCall { future: future.clone().unbind(), form };
        queue.pending.lock().by_number.insert(number, call);
        Ok(Submission::Pending(future.unbind()))
    }

    /// The queue of a loop that runs on this thread.
    fn of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = event_loop.py();
        let last = LAST.with_borrow(|last| {
            let [of, queue] = last.as_ref()?;
            let is_its = of.bind(py).upgrade().is_some_and(|other| other.is(event_loop));
            let queue = queue.bind(py).upgrade_as::<Self>().ok().flatten()?;
            (is_its && queue.get().completions.is_here()).then_some(queue)
        });
        if let Some(queue) = last {
            return Ok(queue);
        }
        // The loop keeps its queue alive in an attribute.
        let name = intern!(py, "_polylimit_queue");
        let kept = event_loop.getattr(name).ok().and_then(|kept| kept.cast_into::<Self>().ok());
        let queue = if let Some(queue) = kept.filter(|kept| kept.get().completions.is_here()) {
            queue
        } else {
            let queue = match Self::watched_by(event_loop) {
                Err(error) if error.is_instance_of::<PyNotImplementedError>(py) => Self::waking(event_loop)?,
                queue => queue?,
            };
            event_loop.setattr(name, &queue)?;
            queue
        };
        let of = PyWeakrefReference::new(event_loop)?.unbind();
        LAST.replace(Some([of, PyWeakrefReference::new(&queue)?.unbind()]));
        Ok(queue)
    }

    /// A queue whose descriptor the loop watches.
    fn watched_by<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = event_loop.py();
        let event = Arc::new(EventDescriptor::new().map_err(|error| PyOSError::new_err(error.to_string()))?);
        let raised = Arc::clone(&event);
        let descriptor = event.descriptor();
        let queue = Bound::new(py, Self::new(move || raised.raise(), Some(event)))?;
        let drain = queue.getattr(intern!(py, "drain"))?;
        event_loop.call_method1(intern!(py, "add_reader"), (descriptor, drain))?;
        Ok(queue)
    }

    /// A queue with a thread that calls the loop, until the queue is freed or the loop is closed.
    fn waking<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = event_loop.py();
        // There is one message at most until `drain`.
        let (finished, messages) = sync_channel(1);
        let wake = move || {
            let _ = finished.try_send(());
        };
        let queue = Bound::new(py, Self::new(wake, None))?;
        let woken = PyWeakrefReference::new(event_loop)?.unbind();
        let drained = PyWeakrefReference::new(&queue)?.unbind();
        thread::Builder::new()
            .name("polylimit-loop".to_owned())
            .spawn(move || wake_loop(&messages, &woken, &drained))
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(queue)
    }

    fn new(when_finished: impl Fn() + Send + Sync + 'static, event: Option<Arc<EventDescriptor>>) -> Self {
        Self {
            completions: Completions::new(when_finished),
            pending: Mutex::default(),
            event,
            is_draining: AtomicBool::new(false),
            is_scheduled: AtomicBool::new(false),
        }
    }

    /// Ends the waiting of an operation, and the call itself if it only waits.
    pub(crate) fn abandon(py: Python<'_>, future: &Py<OperationFuture>) {
        let future = future.get();
        future.abandon();
        if let Some((queue, number)) = future.cancellable_call()
            && let Ok(queue) = queue.bind(py).cast::<Self>()
        {
            queue.get().cancel(py, number);
        }
    }

    fn cancel(&self, py: Python<'_>, number: u64) {
        if self.pending.lock().by_number.remove(&number).is_some() {
            // A panic leaves the call running, as if it had not been cancelled.
            let _ = py.detach(|| catch_unwind(AssertUnwindSafe(|| self.completions.cancel(&number))));
        }
    }
}

/// Schedules `drain` after each message. The queue owns the other end of the channel.
fn wake_loop(messages: &Receiver<()>, woken: &Py<PyWeakrefReference>, drained: &Py<PyWeakrefReference>) {
    let schedule = |py: Python<'_>| -> Option<()> {
        let (event_loop, queue) = (woken.bind(py).upgrade()?, drained.bind(py).upgrade()?);
        let drain = queue.getattr(intern!(py, "drain")).ok()?;
        // A closed loop raises.
        event_loop.call_method1(intern!(py, "call_soon_threadsafe"), (drain,)).ok().map(drop)
    };
    // While the interpreter ends, no thread can attach to it.
    while messages.recv().is_ok() && Python::try_attach(schedule).flatten().is_some() {}
}

/// Whether the caller is a task of trio.
fn runs_in_trio(py: Python<'_>) -> PyResult<bool> {
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let is_there = modules.cast::<PyDict>()?.contains(intern!(py, "trio.lowlevel"))?;
    Ok(is_there && py.import("polylimit._trio")?.call_method0("is_running")?.is_truthy()?)
}

/// Starts a call, whose answer a coroutine of trio waits for.
fn submit_to_trio(
    py: Python<'_>,
    limiter: &Limiter,
    call: &Call<'_>,
    form: AnswerForm,
) -> PyResult<Submission> {
    match WaitingCall::start(py, limiter, call)? {
        Started::Known(answer) => answer_to_python(py, answer, &form).map(Submission::Known),
        Started::Waits(call) => {
            let call = Py::new(py, TrioCall::new(call, form))?;
            let coroutine = py.import("polylimit._trio")?.call_method1("wait", (call,))?;
            Ok(Submission::Delegated(coroutine.unbind()))
        }
    }
}

#[pymethods]
impl LoopQueue {
    /// Called when calls have finished: resumes the tasks whose calls have finished.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(event) = &self.event {
            event.lower();
        }
        let mut finished = Vec::new();
        let drain = || self.completions.drain(|number, answer| finished.push((number, answer)));
        raise_panic(py, catch_unwind(AssertUnwindSafe(drain)))?;
        // All futures are finished before the first task is resumed, because that task may cancel others.
        let mut due = Vec::with_capacity(finished.len());
        for (number, answered) in finished {
            let call = self.pending.lock().by_number.remove(&number);
            let Some(PendingCall { future, form }) = call else { continue };
            finish(py, &future, || answer_to_python(py, answered, &form), &mut due);
        }
        self.is_draining.store(due.len() > 1, Ordering::Relaxed);
        let mut due = due.iter();
        let mut raised = due.try_for_each(|callback| callback.run(py));
        // `KeyboardInterrupt` and `SystemExit` end the loop. The other tasks are resumed if it is run again.
        for callback in due {
            raised = raised.and(callback.schedule(py));
        }
        self.is_draining.store(false, Ordering::Relaxed);
        // The calls of the resumed tasks start now and not after other callbacks of the loop.
        raised.and(self.start_deferred(py))
    }

    /// Starts the deferred calls as one batch.
    fn start_deferred(&self, py: Python<'_>) -> PyResult<()> {
        self.is_scheduled.store(false, Ordering::Relaxed);
        call_core(py, || {
            self.completions.flush();
            Ok(())
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.pending.try_lock() {
            Some(pending) => pending.by_number.values().try_for_each(|call| visit.call(&call.future)),
            None => Ok(()),
        }
    }

    fn __clear__(&self) {
        let calls = std::mem::take(&mut self.pending.lock().by_number);
        drop(calls);
    }
}
