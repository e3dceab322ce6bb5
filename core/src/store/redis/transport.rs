//! Connections and the protocol: finding a server, sockets, TLS, the handshake, and what replies mean.

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

/// A connection that is not made within this time is given up, and another attempt follows.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A sentinel that does not answer within this time is given up.
pub(crate) const SENTINEL_TIMEOUT: Duration = Duration::from_millis(250);
