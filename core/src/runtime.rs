//! Infrastructure without knowledge of limits: clocks, blocking waits, a runtime for callers without one, locks,
//! and memory that a fork wipes.

pub(crate) mod atomic;
pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod close_signal;
pub(crate) mod counter;
pub(crate) mod driver;
pub(crate) mod fork;
pub(crate) mod lock;
#[cfg(target_os = "linux")]
pub(crate) mod mmap;
pub(crate) mod monotonic;
pub(crate) mod park;
#[cfg(all(feature = "local", target_os = "linux"))]
pub(crate) mod pause;
#[cfg(feature = "testing")]
pub mod simulation;
pub(crate) mod sleep;
pub(crate) mod thread_slot;
