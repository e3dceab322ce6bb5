//! The one place in the core that reads monotonic time; the wall clock is read in `clock/system.rs` alone.
//!
//! In a tokio runtime whose time a test has paused, [`now`] is the runtime's time.

use std::time::Instant;

/// The monotonic time. It takes about 25 ns.
#[inline]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The processor's counter as a time, for caches that every decision reads. It takes about 10 ns and does not follow
/// paused time.
#[inline]
pub(crate) fn ticks() -> quanta::Instant {
    quanta::Instant::now()
}
