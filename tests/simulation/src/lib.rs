//! The limiter on a simulated network and server: faults in paused time, repeated by their seed.
//!
//! A run has processes with real limiters, a network of pipes between them and a server, and the server's real scripts in Lua. A seed
//! decides everything: what callers ask, how long bytes take, and which faults come when. docs/internals/fault-simulation.md says what
//! is checked, and what is not simulated.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a run that fails has to fail the test, and the numbers of a run are small"
)]

mod cluster;
pub mod database;
mod faults;
pub mod fleet;
pub mod interpreter;
pub mod ledger;
mod link;
pub mod network;
pub mod policies;
pub mod run;
pub mod schedule;
mod script_call;
pub mod seeds;
pub mod world;
