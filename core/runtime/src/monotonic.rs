//! The one place in the core that reads monotonic time; the wall clock is read in `clock/system.rs` alone.
//!
//! In a tokio runtime whose time a test has paused, [`now`] is the runtime's time.

#[cfg(feature = "testing")]
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

use crate::counter::CounterClock;
use crate::fork;

/// A monotonic time. WebAssembly has none of its own, so there it is that of the host.
#[cfg(not(target_family = "wasm"))]
pub use std::time::Instant;
#[cfg(target_family = "wasm")]
pub use web_time::Instant;

/// The monotonic time. It takes about 25 ns.
#[inline]
pub fn now() -> Instant {
    #[cfg(not(target_family = "wasm"))]
    {
        tokio::time::Instant::now().into_std()
    }
    #[cfg(target_family = "wasm")]
    {
        Instant::now()
    }
}

/// The monotonic time since this process first read it, to a microsecond, for caches that every decision reads. It takes
/// about 10 ns and does not follow paused time, except in a simulation. It can go back by a microsecond.
#[inline]
pub fn ticks() -> Duration {
    #[cfg(feature = "testing")]
    if let Some((ticks, began)) = FOLLOWS_SINCE.get() {
        return ticks + now().saturating_duration_since(began);
    }
    counted()
}

#[inline]
fn counted() -> Duration {
    static CLOCK: OnceLock<CounterClock> = OnceLock::new();
    Duration::from_micros(fork::once(&CLOCK, || CounterClock::new(system_ns)).now_us())
}

/// The operating system's monotonic time since the first call, in nanoseconds.
fn system_ns() -> u64 {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    let started = fork::once(&STARTED, Instant::now);
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(feature = "testing")]
thread_local! {
    /// Where this thread's counter follows paused time: the counter and the time when that began.
    static FOLLOWS_SINCE: Cell<Option<(Duration, Instant)>> = const { Cell::new(None) };
}

/// Whether the counter follows paused time on this thread from now on.
#[cfg(feature = "testing")]
pub(crate) fn follow_paused_time(follows: bool) {
    FOLLOWS_SINCE.set(follows.then(|| (counted(), now())));
}
