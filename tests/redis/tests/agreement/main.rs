//! The Redis store answers as the memory store does and keeps the documented bounds: on real servers, for many processes,
//! against clients that try to get more.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod admission;
mod channels;
mod denial_cache;
mod differential;
mod edge_cases;
mod effective_quotas;
mod generators;
mod leases;
mod logs;
mod policies;
mod requests;
mod scripts;
mod servers;
