//! The tower layer in front of axum, over HTTP, on every kind of store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod adaptive;
mod answers;
mod configuration;
mod framework;
mod guard_cases;
mod held;
mod layers;
mod outages;
mod routes;
mod service;
mod stacked;
mod stores;
mod waiting;
