//! Adaptive limits: alone, and with limiters whose quotas follow them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod limit;
mod limiters;
