//! The Redis store answers what the memory store answers, and what the policies promise: on real servers, to many
//! processes, against clients that try to get more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what a test cannot do fails it")]

mod admission;
mod all_or_nothing;
mod changed_limits;
mod concurrency;
mod denial_cache;
mod differential;
mod end_of_time;
mod leases;
mod policies;
mod random;
mod servers;
