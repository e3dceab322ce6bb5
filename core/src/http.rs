//! HTTP: response fields, the wait that a response asks for, clients that throttle themselves, a layer for
//! tower, and a middleware for reqwest.

pub mod client;
pub mod guard;
pub mod headers;
#[cfg(feature = "reqwest")]
pub mod reqwest;
pub(crate) mod server_wait;
#[cfg(feature = "tower")]
pub mod tower;
