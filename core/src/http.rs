//! HTTP: response fields, client addresses, the wait that a response asks for, clients that throttle themselves, and a layer
//! for tower.

pub mod client;
pub(crate) mod client_address;
pub mod guard;
pub mod headers;
pub(crate) mod server_wait;
#[cfg(feature = "tower")]
pub mod tower;
