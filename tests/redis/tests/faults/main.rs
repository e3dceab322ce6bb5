//! What befalls one server and the network before it, and what callers see of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what a test cannot do fails it")]

mod alone;
mod auth;
mod bad_state;
mod broken;
mod cancelled;
mod elsewhere;
mod events;
mod first_connection;
mod forked;
mod garbled;
mod half_open;
mod keys;
mod killed;
mod latency;
mod not_there_yet;
mod own_delay;
mod refusing;
mod script_flush;
mod secrets;
mod server_clock;
mod starved;
mod stopped;
