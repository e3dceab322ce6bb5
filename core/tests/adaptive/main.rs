//! Adaptive limits: alone, with limiters whose quotas follow them, and in front of a simulated service.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod limit;
mod limiters;
mod service;
mod simulation;
