//! The time in which a server that was never connected to may be waited for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Until the server has first decided, or has failed: meanwhile callers wait for longer than their deadline.
#[derive(Debug)]
pub(crate) struct Beginning {
    lasts: AtomicBool,
    until: Instant,
}

impl Beginning {
    pub(crate) fn new(until: Instant) -> Self {
        Self { lasts: AtomicBool::new(Instant::now() < until), until }
    }

    /// Until when callers wait at least; `None` when it is over.
    #[inline]
    pub(crate) fn until(&self) -> Option<Instant> {
        (self.lasts() && Instant::now() < self.until).then_some(self.until)
    }

    /// How much of it is left.
    pub(crate) fn left(&self) -> Duration {
        self.until().map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    #[inline]
    pub(crate) fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Acquire)
    }

    /// Ends it, and says whether it had lasted until now.
    #[inline]
    pub(crate) fn end(&self) -> bool {
        self.lasts() && self.lasts.swap(false, Ordering::AcqRel)
    }
}
