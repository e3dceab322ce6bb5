//! The middleware for actix-web, over HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod framework;
#[path = "../tower/guard_cases.rs"]
mod guard_cases;
mod middleware;
#[path = "../tower/service.rs"]
#[allow(dead_code, reason = "the tests of the tower layer use all of it")]
mod service;
#[path = "../tower/waiting.rs"]
mod waiting;
