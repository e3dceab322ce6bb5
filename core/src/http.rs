//! A decision as HTTP: response fields, client addresses, waiting times, and a layer for tower.

pub(crate) mod backoff;
pub(crate) mod client_address;
pub mod headers;
#[cfg(feature = "tower")]
pub mod tower;
