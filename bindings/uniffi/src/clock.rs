//! A clock for tests.

use std::sync::Arc;

use crate::error::{Result, guarded};
use crate::number::{signed, unsigned};
use crate::span::Span;

/// A clock for tests: it stands still until it is set or advanced, and it may go back.
#[derive(Debug, uniffi::Object)]
pub struct ManualClock {
    pub(crate) clock: polylimit::ManualClock,
}

#[uniffi::export]
impl ManualClock {
    /// A clock that shows so many microseconds since the Unix epoch, 0 to 2^53 - 1.
    #[uniffi::constructor]
    pub fn new(now_us: i64) -> Result<Arc<Self>> {
        guarded(|| {
            let clock = polylimit::ManualClock::new(unsigned("now_us", now_us)?)?;
            Ok(Arc::new(Self { clock }))
        })
    }

    /// The time it shows, in microseconds since the Unix epoch.
    pub fn now_us(&self) -> i64 {
        signed(self.clock.now_us())
    }

    /// Sets the time, in microseconds since the Unix epoch, 0 to 2^53 - 1; it may go back.
    pub fn set(&self, now_us: i64) -> Result<()> {
        guarded(|| Ok(self.clock.set(unsigned("now_us", now_us)?)?))
    }

    /// Moves the time forward, by whole microseconds.
    pub fn advance(&self, by: Span) -> Result<()> {
        guarded(|| Ok(self.clock.advance(by.duration("by")?)?))
    }
}
