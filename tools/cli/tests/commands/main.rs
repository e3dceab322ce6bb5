//! The program with real stores.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod bench;
mod documentation;
mod documents;
mod failures;
mod generated;
mod listings;
mod lists;
mod operations;
#[cfg(feature = "serve")]
mod serve;
mod simulations;
mod support;
mod terminals;
