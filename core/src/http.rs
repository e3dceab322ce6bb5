//! HTTP: limits in front of handlers, response fields, the client's address behind proxies, the wait that a response asks for, clients that
//! throttle themselves, a layer for tower, and middlewares for actix-web and reqwest.

pub mod client;
pub mod guard;
pub mod headers;
#[cfg(feature = "reqwest")]
pub mod reqwest;
pub(crate) mod server_wait;
#[cfg(feature = "tower")]
pub mod tower;

pub use crate::http::server_wait::server_wait;
#[cfg(feature = "actix")]
pub use crate::http::tower::actix;
pub use polylimit_document::client_address::{
    ClientAddress, ClientAddressRules, ClientAddressRulesBuilder, ForwardingHeader,
};
pub use polylimit_document::meter::Meter;
pub use polylimit_runtime::backoff::{Backoff, BackoffBuilder};
