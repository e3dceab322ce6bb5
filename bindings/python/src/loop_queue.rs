//! The calls that one event loop waits for: one descriptor that the loop watches, one callback for all that finished.
//!
//! No thread of ours attaches to the interpreter. A finished call makes the descriptor readable; the loop's own thread
//! takes the results and resolves its futures.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use polylimit::{Answer, Call, Completions, Error, Limiter};
use pyo3::exceptions::PyOSError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::call::{Job, answer};
use crate::error::{guarded, unpanicked};
use crate::wake_up::WakeUp;

/// What became of a call that was handed to a queue.
pub(crate) enum Submitted {
    Known(Py<PyAny>),
    /// A future of the loop.
    Waiting(Py<PyAny>, Ticket),
}

/// A place in a queue.
pub(crate) struct Ticket {
    queue: Py<LoopQueue>,
    number: u64,
    /// Whether to wait for it makes sense only for the one who does.
    is_waiting: bool,
}

impl Ticket {
    /// What the collector has to know: the queue keeps the future, and with it whoever waits.
    pub(crate) fn queue(&self) -> &Py<LoopQueue> {
        &self.queue
    }

    /// Nobody waits any more. What only waits is given up; what was asked of a store is counted there.
    pub(crate) fn abandon(&self, py: Python<'_>) {
        let queue = self.queue.get();
        if self.is_waiting && queue.waiting.lock().take(self.number).is_some() {
            // A panic there leaves the call running, which is what happens without this, too.
            let _ = py.detach(|| catch_unwind(AssertUnwindSafe(|| queue.completions.abandon(&self.number))));
        }
    }
}

/// The futures of calls under way, by number.
#[derive(Default)]
struct Waiting {
    last: u64,
    futures: std::collections::HashMap<u64, (Py<PyAny>, bool)>,
}

impl Waiting {
    fn take(&mut self, number: u64) -> Option<(Py<PyAny>, bool)> {
        self.futures.remove(&number)
    }
}

#[pyclass(name = "LoopQueue", module = "polylimit", frozen, weakref)]
pub(crate) struct LoopQueue {
    completions: Completions<u64>,
    waiting: Mutex<Waiting>,
    wake_up: Arc<WakeUp>,
    /// Whether the loop comes to start what is held.
    is_scheduled: AtomicBool,
    process: u32,
}

thread_local! {
    /// The loop that this thread ran last, and its queue; neither is kept alive by that.
    static LAST: RefCell<Option<[Py<PyWeakrefReference>; 2]>> = const { RefCell::new(None) };
}

static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let get = RUNNING_LOOP
        .get_or_try_init(py, || py.import("asyncio")?.getattr("get_running_loop").map(Bound::unbind))?;
    get.bind(py).call0()
}

/// A queue, with the loop that it belongs to.
pub(crate) struct Here<'py> {
    event_loop: Bound<'py, PyAny>,
    queue: Py<LoopQueue>,
}

impl LoopQueue {
    /// The queue of the loop that runs on this thread.
    pub(crate) fn of_running(py: Python<'_>) -> PyResult<Here<'_>> {
        let event_loop = running_loop(py)?;
        let process = process::id();
        let last = LAST.with_borrow(|last| {
            let [of, queue] = last.as_ref()?;
            let is_its = of.bind(py).upgrade().is_some_and(|other| other.is(&event_loop));
            let queue = queue.bind(py).upgrade_as::<Self>().ok().flatten()?;
            (is_its && queue.get().process == process).then(|| queue.unbind())
        });
        if let Some(queue) = last {
            return Ok(Here { event_loop, queue });
        }
        // The loop keeps its queue, so that both end together.
        let name = intern!(py, "_polylimit_queue");
        let kept = event_loop.getattr(name).ok().and_then(|kept| kept.cast_into::<Self>().ok());
        let queue = if let Some(queue) = kept.filter(|kept| kept.get().process == process) {
            queue.unbind()
        } else {
            let queue = Bound::new(py, Self::new()?)?;
            let descriptor = queue.get().wake_up.descriptor();
            let drain = queue.getattr(intern!(py, "drain"))?;
            event_loop.call_method1(intern!(py, "add_reader"), (descriptor, drain))?;
            event_loop.setattr(name, &queue)?;
            queue.unbind()
        };
        let of = PyWeakrefReference::new(&event_loop)?.unbind();
        LAST.replace(Some([of, PyWeakrefReference::new(queue.bind(py))?.unbind()]));
        Ok(Here { event_loop, queue })
    }

    fn new() -> PyResult<Self> {
        let wake_up = Arc::new(WakeUp::new().map_err(|error| PyOSError::new_err(error.to_string()))?);
        let waker = Arc::clone(&wake_up);
        Ok(Self {
            completions: Completions::new(move || waker.wake()),
            waiting: Mutex::default(),
            wake_up,
            is_scheduled: AtomicBool::new(false),
            process: process::id(),
        })
    }
}

impl Here<'_> {
    /// Starts a call.
    pub(crate) fn submit(
        self,
        py: Python<'_>,
        limiter: &Limiter,
        call: &Call<'_>,
        job: &Job,
    ) -> PyResult<Submitted> {
        let queue = self.queue.get();
        let (number, is_alone) = {
            let mut waiting = queue.waiting.lock();
            waiting.last += 1;
            (waiting.last, waiting.futures.is_empty())
        };
        // Callers with nothing to do but to ask would take turns with the store if all of them went together.
        if is_alone || !matches!(job, Job::Gathered(_)) {
            if let Some(known) = guarded(py, || Ok(queue.completions.submit(limiter, call, number)))? {
                return answer(py, known, job.return_exceptions()).map(Submitted::Known);
            }
        } else {
            if let Some(known) = guarded(py, || Ok(queue.completions.hold(limiter, call, number)))? {
                return answer(py, known, job.return_exceptions()).map(Submitted::Known);
            }
            if !queue.is_scheduled.load(Ordering::Relaxed) {
                let go = self.queue.bind(py).getattr(intern!(py, "go"))?;
                self.event_loop.call_method1(intern!(py, "call_soon"), (go,))?;
                queue.is_scheduled.store(true, Ordering::Relaxed);
            }
        }
        let future = self.event_loop.call_method0(intern!(py, "create_future"))?.unbind();
        let waits = (future.clone_ref(py), job.return_exceptions());
        queue.waiting.lock().futures.insert(number, waits);
        let is_waiting = matches!(job, Job::Acquire(..) | Job::Ready(_));
        Ok(Submitted::Waiting(future, Ticket { queue: self.queue, number, is_waiting }))
    }
}

#[pymethods]
impl LoopQueue {
    /// For when the descriptor is readable.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        self.wake_up.clear();
        self.resolve(py)
    }

    /// Starts what was held since.
    fn go(&self, py: Python<'_>) -> PyResult<()> {
        self.is_scheduled.store(false, Ordering::Relaxed);
        guarded(py, || {
            self.completions.start_held();
            Ok(())
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.waiting.try_lock() {
            Some(waiting) => waiting.futures.values().try_for_each(|(future, _)| visit.call(future)),
            None => Ok(()),
        }
    }

    fn __clear__(&self) {
        let futures = std::mem::take(&mut self.waiting.lock().futures);
        drop(futures);
    }
}

impl LoopQueue {
    /// Resolves the futures of all calls that finished.
    fn resolve(&self, py: Python<'_>) -> PyResult<()> {
        let mut finished = Vec::new();
        let drain = || self.completions.drain(|number, answer| finished.push((number, answer)));
        unpanicked(py, catch_unwind(AssertUnwindSafe(drain)))?;
        let mut raised = Ok(());
        for (number, answered) in finished {
            let waits = self.waiting.lock().take(number);
            let Some((future, return_exceptions)) = waits else { continue };
            // The loop is Python, so that a signal's handler may raise in it: all others still have their answers.
            if let Err(error) = resolve_one(future.bind(py), answered, return_exceptions) {
                raised = raised.and(Err(error));
            }
        }
        raised
    }
}

fn resolve_one(
    future: &Bound<'_, PyAny>,
    answered: Result<Answer, Error>,
    return_exceptions: bool,
) -> PyResult<()> {
    let py = future.py();
    // Whoever waited may have been cancelled.
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match answer(py, answered, return_exceptions) {
        Ok(result) => future.call_method1(intern!(py, "set_result"), (result,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
    };
    Ok(())
}
