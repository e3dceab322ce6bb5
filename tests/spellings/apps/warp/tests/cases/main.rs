//! The cases of guards through the tower layer around filters of warp, over HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod framework;
#[path = "../../../../../../core/tests/tower/guard_cases.rs"]
mod guard_cases;
#[path = "../../src/serve.rs"]
mod serve;
#[path = "../../../../../../core/tests/tower/service.rs"]
#[allow(dead_code, reason = "the tests of the core use all of it")]
mod service;
