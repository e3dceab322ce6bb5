//! Connections and the protocol: finding a server, sockets, TLS, the handshake, and the meaning of replies.

pub(crate) mod cluster_slots;
pub(crate) mod connect;
pub(crate) mod failure;
pub(crate) mod handshake;
pub(crate) mod happy_eyeballs;
pub(crate) mod resp;
pub(crate) mod sentinel;
pub(crate) mod sentinel_events;
pub(crate) mod server_time;
pub(crate) mod session;
pub(crate) mod slot;
pub(crate) mod stream;
pub(crate) mod tls;

use std::time::Duration;

/// The time limit of one attempt to connect; another attempt follows.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time limit of a query to a sentinel.
pub(crate) const SENTINEL_TIMEOUT: Duration = Duration::from_millis(250);
