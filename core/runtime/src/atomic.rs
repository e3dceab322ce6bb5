//! The atomics of code that loom checks: a model of each, under `--cfg polylimit_loom`, or those of the standard library.

#[cfg(polylimit_loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(polylimit_loom))]
pub use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
