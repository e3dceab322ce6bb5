//! The one place in the core that reads monotonic time; the wall clock is read in `clock/system.rs` alone.
//!
//! In a tokio runtime whose time a test has paused, [`now`] is the runtime's time.

#[cfg(feature = "testing")]
use std::cell::Cell;
use std::time::Instant;

/// The monotonic time. It takes about 25 ns.
#[inline]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The processor's counter as a time, for caches that every decision reads. It takes about 10 ns and does not follow
/// paused time, except in a simulation.
#[inline]
pub(crate) fn ticks() -> quanta::Instant {
    #[cfg(feature = "testing")]
    if let Some((ticks, began)) = FOLLOWS_SINCE.get() {
        return ticks + now().saturating_duration_since(began);
    }
    quanta::Instant::now()
}

#[cfg(feature = "testing")]
thread_local! {
    /// Where this thread's counter follows paused time: the counter and the time when that began.
    static FOLLOWS_SINCE: Cell<Option<(quanta::Instant, Instant)>> = const { Cell::new(None) };
}

/// Whether the counter follows paused time on this thread from now on.
#[cfg(feature = "testing")]
pub(crate) fn follow_paused_time(follows: bool) {
    FOLLOWS_SINCE.set(follows.then(|| (quanta::Instant::now(), now())));
}
