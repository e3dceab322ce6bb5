//! A server in this process, asked over real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

mod admin;
mod bounds;
mod changes;
mod dashboard;
mod envoy;
mod fleet;
mod forward;
mod hostile;
mod life;
mod log;
#[path = "../../src/rls/messages.rs"]
mod messages;
mod openapi;
mod operations;
mod resp;
mod security;
mod support;
mod throttle;
mod transports;
