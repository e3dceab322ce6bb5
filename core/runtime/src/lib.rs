//! Infrastructure without knowledge of limits: clocks, blocking waits, a runtime for callers without one, locks,
//! and memory that a fork wipes.

#[doc(hidden)]
pub mod atomic;
pub mod backoff;
pub mod clock;
#[doc(hidden)]
pub mod close_signal;
#[cfg(not(target_family = "wasm"))]
#[doc(hidden)]
pub mod counter;
#[cfg(target_family = "wasm")]
#[doc(hidden)]
#[path = "counter/host.rs"]
pub mod counter;
#[doc(hidden)]
pub mod driver;
#[cfg(not(target_family = "wasm"))]
#[doc(hidden)]
pub mod event_descriptor;
#[doc(hidden)]
pub mod fork;
#[doc(hidden)]
pub mod lock;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod mmap;
#[doc(hidden)]
pub mod monotonic;
#[doc(hidden)]
pub mod park;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod pause;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod simulation;
#[doc(hidden)]
pub mod sleep;
#[doc(hidden)]
pub mod thread_slot;
