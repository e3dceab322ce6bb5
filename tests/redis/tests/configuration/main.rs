//! Where configurations come from, on real servers and files: followed and changed without a limiter.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod away;
mod changes;
mod files;
mod following;
mod limiters;
mod published;
mod rights;
mod support;
