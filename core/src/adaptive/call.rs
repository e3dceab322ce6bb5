//! A call in flight.

use std::fmt;
use std::sync::Arc;

use crate::adaptive::shared::Shared;

/// A call that has begun, and one of the limit's places until it ends. Dropped, as when a future is cancelled or its thread panics,
/// it frees its place and is not measured.
#[must_use = "a call ends when it is dropped"]
pub struct Call {
    shared: Arc<Shared>,
    began_us: u64,
}

impl Call {
    /// A call that has entered.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let began_us = shared.time.now_us();
        Self { shared, began_us }
    }

    /// Ends the call: its latency counts.
    pub fn succeeded(self) {
        self.end(false);
    }

    /// Ends the call because of an overload, such as a timeout, a full queue, or 503 by a service behind this one. An error with another
    /// cause is a success, if it took as long as one, or no measurement.
    pub fn failed(self) {
        self.end(true);
    }

    /// Measures the call now; its place is free when it is dropped.
    #[cfg(feature = "tower")]
    pub(crate) fn report(&self, failed: bool) {
        self.shared.record(self.began_us, failed);
    }

    fn end(self, failed: bool) {
        let (shared, began_us) = (Arc::clone(&self.shared), self.began_us);
        // Free before a hook runs, which may be slow or panic.
        drop(self);
        shared.record(began_us, failed);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}
