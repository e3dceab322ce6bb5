//! `DegradedEvent`: what a limiter tells of itself; logged, and handed to a hook.
//!
//! No thread of ours attaches to the interpreter. What they notice is kept here for all limiters of the process, and told on
//! the thread of whichever call comes next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use polylimit::{DegradedEvent, LimiterBuilder, Severity};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::doctor::PyFinding;
use crate::duration::seconds;

/// A function of the user's, shared by the limiter and the threads that call it.
type Hook = Option<Arc<Py<PyAny>>>;

/// What was noticed and not told yet.
static UNTOLD: Mutex<Vec<(DegradedEvent, Hook)>> = Mutex::new(Vec::new());
static IS_ANY_UNTOLD: AtomicBool = AtomicBool::new(false);

/// A thread that is not in a forked process may hold the lock for ever.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a limiter tells its operators: that it decides without its store, or with it again, or what is wrong with the store.
///
/// Its text is the line that is logged. It holds no key, password or URL.
#[pyclass(name = "DegradedEvent", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyDegradedEvent(DegradedEvent);

#[pymethods]
impl PyDegradedEvent {
    /// What has happened: ``"started"``, ``"ended"`` or ``"finding"``.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.name()
    }

    /// Why the first decision was made without the store, such as ``"timeout"``; ``None`` for a finding.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.0.reason().map(polylimit::Degradation::name)
    }

    /// Seconds from the first decision that was made without the store to the last one; 0 unless it has ended.
    #[getter]
    fn lasted(&self) -> f64 {
        seconds(u64::try_from(self.0.lasted().as_micros()).unwrap_or(u64::MAX))
    }

    /// How many decisions were made without the store; 0 unless it has ended.
    #[getter]
    fn decisions(&self) -> u64 {
        self.0.decisions()
    }

    /// What the doctor has found; ``None`` for anything else.
    #[getter]
    fn finding(&self) -> Option<PyFinding> {
        self.0.finding().cloned().map(PyFinding)
    }

    /// How much it matters: ``"fine"`` when it is over, otherwise ``"advice"`` or ``"problem"``.
    #[getter]
    fn severity(&self) -> &'static str {
        match self.0.severity() {
            Severity::Fine => "fine",
            Severity::Advice => "advice",
            _ => "problem",
        }
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("DegradedEvent({})", self.0)
    }
}

/// Has what a limiter tells kept here, for this hook.
pub(crate) fn kept(builder: LimiterBuilder, hook: Option<&Bound<'_, PyAny>>) -> PyResult<LimiterBuilder> {
    if let Some(hook) = hook.filter(|hook| !hook.is_callable()) {
        let kind = hook.get_type().name()?;
        return Err(PyTypeError::new_err(format!("on_degraded is of type {kind}: allowed is a function")));
    }
    let hook = hook.map(|hook| Arc::new(hook.clone().unbind()));
    Ok(builder.on_degraded(move |event| {
        if let Some(mut untold) = UNTOLD.try_lock_for(PATIENCE) {
            untold.push((event.clone(), hook.clone()));
            IS_ANY_UNTOLD.store(true, Ordering::Relaxed);
        }
    }))
}

/// Tells what was noticed, on this thread. Nothing that goes wrong there disturbs the call that comes here.
#[inline]
pub(crate) fn tell() {
    if IS_ANY_UNTOLD.load(Ordering::Relaxed) {
        tell_all();
    }
}

#[cold]
fn tell_all() {
    let Some(mut untold) = UNTOLD.try_lock() else { return };
    IS_ANY_UNTOLD.store(false, Ordering::Relaxed);
    let told = std::mem::take(&mut *untold);
    drop(untold);
    Python::attach(|py| {
        for (event, hook) in told {
            let text = event.to_string();
            if let Err(error) = log(py, &text) {
                error.write_unraisable(py, None);
            }
            let Some(hook) = hook else { continue };
            let hook = hook.bind(py);
            let called = Py::new(py, PyDegradedEvent(event)).and_then(|event| hook.call1((event,)));
            if let Err(error) = called {
                error.write_unraisable(py, Some(hook));
            }
        }
    });
}

fn log(py: Python<'_>, text: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1(intern!(py, "getLogger"), ("polylimit",))?;
    logger.call_method1(intern!(py, "warning"), ("%s", text)).map(drop)
}
