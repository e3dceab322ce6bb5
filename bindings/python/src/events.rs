//! `DegradedEvent` and `Finding`: what a limiter reports about its store. Each event is logged and passed to the user's hook.
//!
//! The core creates events on threads of its own, which never attach to the interpreter. The events of all limiters wait in
//! one queue, and the next call into this module delivers them on its own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use polylimit::LimiterBuilder;
use polylimit::admin::{Finding, Severity};
use polylimit::metrics::DegradedEvent;
use pyo3::prelude::*;

use crate::convert::{seconds, wrong_type};
use crate::once::intern;
use crate::value::immutable;

/// The user's function, shared by the limiter and the threads that call it.
type Hook = Option<Arc<Py<PyAny>>>;

/// Events that are not delivered yet.
static PENDING: Mutex<Vec<(DegradedEvent, Hook)>> = Mutex::new(Vec::new());
static HAS_PENDING: AtomicBool = AtomicBool::new(false);

/// Bounds the wait for the lock: in a forked process the thread that held it may not exist, and then never releases it.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Reports that a limiter began to decide without its store, that it decides with its store again, or what its doctor found.
///
/// Its text is the line that is logged. It contains no key, password or URL.
#[pyclass(name = "DegradedEvent", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyDegradedEvent(DegradedEvent);

#[pymethods]
impl PyDegradedEvent {
    /// What happened: ``"started"``, ``"ended"`` or ``"finding"``.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.name()
    }

    /// Why the first decision was made without the store, such as ``"timeout"``; ``None`` for a finding.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.0.reason().map(polylimit::decision::Degradation::name)
    }

    /// Seconds from the first decision that was made without the store to the last one; 0 unless ``kind`` is ``"ended"``.
    #[getter]
    fn lasted(&self) -> f64 {
        seconds(u64::try_from(self.0.lasted().as_micros()).unwrap_or(u64::MAX))
    }

    /// How many decisions were made without the store; 0 unless ``kind`` is ``"ended"``.
    #[getter]
    fn decisions(&self) -> u64 {
        self.0.decisions()
    }

    /// What the doctor found; ``None`` unless ``kind`` is ``"finding"``.
    #[getter]
    fn finding(&self) -> Option<PyFinding> {
        self.0.finding().cloned().map(PyFinding)
    }

    /// How serious it is: ``"fine"`` at the end of an outage, otherwise ``"advice"`` or ``"problem"``.
    #[getter]
    fn severity(&self) -> &'static str {
        severity_name(self.0.severity())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("DegradedEvent({})", self.0)
    }
}

/// Makes the limiter put its events into the queue, each with the hook that it is for.
pub(crate) fn queue_events(
    builder: LimiterBuilder,
    hook: Option<&Bound<'_, PyAny>>,
) -> PyResult<LimiterBuilder> {
    if let Some(hook) = hook.filter(|hook| !hook.is_callable()) {
        return Err(wrong_type("on_degraded", hook, "allowed is a function"));
    }
    let hook = hook.map(|hook| Arc::new(hook.clone().unbind()));
    Ok(builder.on_degraded(move |event| {
        if let Some(mut pending) = PENDING.try_lock_for(LOCK_TIMEOUT) {
            pending.push((event.clone(), hook.clone()));
            HAS_PENDING.store(true, Ordering::Relaxed);
        }
    }))
}

/// Delivers the pending events on this thread. Exceptions of the hook go to `sys.unraisablehook` and not to the caller.
#[inline]
pub(crate) fn deliver_pending() {
    if HAS_PENDING.load(Ordering::Relaxed) {
        deliver_all();
    }
}

#[cold]
fn deliver_all() {
    let Some(mut pending) = PENDING.try_lock() else { return };
    HAS_PENDING.store(false, Ordering::Relaxed);
    let events = std::mem::take(&mut *pending);
    drop(pending);
    Python::attach(|py| {
        for (event, hook) in events {
            let text = event.to_string();
            // That all is well again after an outage belongs to the warning of its begin.
            let is_note = event.finding().is_some() && event.severity() == Severity::Fine;
            if let Err(error) = log(py, &text, if is_note { "info" } else { "warning" }) {
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

fn log(py: Python<'_>, text: &str, level: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1(intern!(py, "getLogger"), ("polylimit",))?;
    logger.call_method1(level, ("%s", text)).map(drop)
}

/// One result of the doctor's examination of the store.
#[pyclass(name = "Finding", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyFinding(pub(crate) Finding);

#[pymethods]
impl PyFinding {
    /// How serious it is: ``"fine"``, ``"advice"`` or ``"problem"``.
    #[getter]
    fn severity(&self) -> &'static str {
        severity_name(self.0.severity)
    }

    /// What was examined, such as ``"version"`` or ``"rights"``.
    #[getter]
    fn subject(&self) -> &'static str {
        self.0.subject
    }

    /// What was found, and what to do about it. It contains no password and no key.
    #[getter]
    fn message(&self) -> &str {
        &self.0.message
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Finding({})", self.0)
    }
}

const fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Fine => "fine",
        Severity::Advice => "advice",
        _ => "problem",
    }
}

immutable!(PyDegradedEvent, PyFinding);
