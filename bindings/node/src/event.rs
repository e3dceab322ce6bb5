//! What limiters tell of themselves, on its way to JavaScript's thread.

use std::sync::{Arc, Mutex, PoisonError};

use napi_derive::napi;
use polylimit::DegradedEvent;

use crate::exchange::NativeFinding;
use crate::number::number;

/// What was noticed on any thread and not told yet, with the numbers of the limiters.
#[derive(Clone, Default)]
pub(crate) struct Untold(Arc<Mutex<Vec<(u32, DegradedEvent)>>>);

impl Untold {
    pub(crate) fn push(&self, limiter: u32, event: DegradedEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((limiter, event));
    }

    pub(crate) fn take(&self) -> Vec<NativeEvent> {
        let untold = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        untold.into_iter().map(|(limiter, event)| NativeEvent::of(limiter, &event)).collect()
    }
}

/// An event of a limiter.
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
            reason: event.reason().map(polylimit::Degradation::name),
            lasted_ms: event.lasted().as_secs_f64() * 1e3,
            decisions: number(event.decisions()),
            severity: event.severity().name(),
            finding: event.finding().cloned().map(NativeFinding::of),
            message: event.to_string(),
        }
    }
}
