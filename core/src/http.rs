//! A decision as HTTP: response fields, client addresses, waiting times, and a layer for tower.

pub(crate) mod client_address;
pub mod headers;
mod rate_limit_field;
pub(crate) mod server_wait;
#[cfg(feature = "tower")]
pub mod tower;
