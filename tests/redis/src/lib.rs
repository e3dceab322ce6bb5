//! Shared parts of the tests of the Redis store: limiters, callers that keep asking while a test does something to the
//! server, and reports of the decisions that those callers saw.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "this crate is part of tests: an operation that fails here has to fail the test"
)]

mod closed_loop;
mod fixtures;
mod noise;
mod open_loop;
mod report;

pub use closed_loop::{Load, RunningLoad};
pub use fixtures::{
    COUNTER_QUOTA, GENEROUS_DEADLINE, assert_from_store, check, current_thread_runtime, limiter, options,
    stored_units, total_stored_units, uncached, with,
};
pub use noise::{Noise, repeated_if_noisy};
pub use open_loop::{OpenLoopLoad, OpenLoopReport};
pub use report::{LoadReport, Observation, SLACK};
