//! The Redis store in every topology, over every kind of connection and from every kind of caller, on real servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod acl_rights;
mod cluster;
mod connections;
mod doctor;
mod failover;
mod listing;
mod module;
mod runtimes;
mod services;
mod sharing;
mod support;
