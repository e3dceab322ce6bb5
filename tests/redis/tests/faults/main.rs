//! Faults of one server, of the network before it and of the client's process, and the decisions that callers get.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod cancelled;
mod client_process;
mod connection_loss;
mod corrupt_replies;
mod corrupt_state;
mod degraded_events;
mod first_connection;
mod keys;
mod refusals;
mod reservations;
mod secrets;
mod server_process;
mod timing;
