//! Events of limiters (a degradation begins or ends, the doctor has a finding) on their way to JavaScript's thread.

use std::sync::{Arc, Mutex, PoisonError};

use napi_derive::napi;
use polylimit::admin::Finding;
use polylimit::metrics::DegradedEvent;

use crate::number::number;

/// Events that any thread has raised and JavaScript has not read yet, each with the number of its limiter.
#[derive(Clone, Default)]
pub(crate) struct PendingEvents(Arc<Mutex<Vec<(u32, DegradedEvent)>>>);

impl PendingEvents {
    pub(crate) fn push(&self, limiter: u32, event: DegradedEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((limiter, event));
    }

    pub(crate) fn take(&self) -> Vec<NativeEvent> {
        let pending = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        pending.into_iter().map(|(limiter, event)| NativeEvent::of(limiter, &event)).collect()
    }
}

/// An event of a limiter; `limiter` is the number that JavaScript gave it.
#[napi(object, object_from_js = false)]
pub struct NativeEvent {
    pub limiter: u32,
    pub kind: &'static str,
    pub reason: Option<&'static str>,
    pub lasted_ms: f64,
    pub decisions: f64,
    pub severity: &'static str,
    pub finding: Option<NativeFinding>,
    pub message: String,
}

impl NativeEvent {
    fn of(limiter: u32, event: &DegradedEvent) -> Self {
        Self {
            limiter,
            kind: event.name(),
            reason: event.reason().map(polylimit::decision::Degradation::name),
            lasted_ms: event.lasted().as_secs_f64() * 1e3,
            decisions: number(event.decisions()),
            severity: event.severity().name(),
            finding: event.finding().cloned().map(NativeFinding::of),
            message: event.to_string(),
        }
    }
}

/// A finding of the doctor.
#[napi(object, object_from_js = false)]
pub struct NativeFinding {
    pub severity: &'static str,
    pub subject: &'static str,
    pub message: String,
}

impl NativeFinding {
    pub(crate) fn of(finding: Finding) -> Self {
        Self { severity: finding.severity.name(), subject: finding.subject, message: finding.message }
    }
}
