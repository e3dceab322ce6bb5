//! What bounds everything that a client can make grow.

use std::time::Duration;

/// How much a client may send, and how long it may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at a time, over all listeners for callers. Default 10,000. One more is refused: 503 over HTTP, an error over RESP.
    pub connections: usize,
    /// Connections at a time to the admin listener. Default 256. One more is refused with 503.
    pub admin_connections: usize,
    /// How many of these one peer may have, by its address or its IPv6 network of 64 bits; programs of this host may have all. Default 64.
    pub admin_connections_of_peer: usize,
    /// Further connections to the admin listener that are answered only for `/healthz` and `/readyz`, once each. Default 32.
    pub probe_connections: usize,
    /// Bytes of a body, and of what a RESP client has sent and not completed. Default 1 MiB. Beyond: 413, or an error and the end of the
    /// connection.
    pub body: usize,
    /// Bytes of a key and of a policy's quotas. Default 4 KiB. Beyond: 413, or an error.
    pub key: usize,
    /// Bytes of a request's head. Default 64 KiB. Beyond: 431.
    pub head: usize,
    /// Requests in one body. Default 1,000. Beyond: 413.
    pub requests: usize,
    /// Streams of one HTTP/2 connection at a time. Default 1,024. Further ones wait.
    pub streams: u32,
    /// Time for the TLS handshake, for the first head of a connection, for the rest of a RESP command that has begun, and for `AUTH`
    /// where callers need a token. Default 5 s. Beyond: the end of the connection.
    pub head_time: Duration,
    /// Time for a body. Default 10 s. Beyond: 408.
    pub body_time: Duration,
    /// Time that a connection over HTTP/1.1 may be idle, including that for the next head. Default 75 s.
    pub idle_time: Duration,
    /// How long a connection over HTTP may go on before it gets GOAWAY, or `Connection: close`, and ends once its requests have their
    /// answers. It is up to a tenth longer, at random, so that connections that began together do not end together. `None`, the default, for
    /// ever.
    pub connection_age: Option<Duration>,
    /// How long such a connection may go on after that. Default 30 s. Beyond: its end, with streams of events and of health that are left, or
    /// while it is idle.
    pub connection_grace: Duration,
    /// How long the answer to a wrong token waits, so that tokens cannot be guessed quickly. Default 100 ms.
    pub sign_in_delay: Duration,
    /// Time in which a RESP client takes its replies. Default 30 s. Beyond: the end of the connection.
    pub write_time: Duration,
    /// Quotas as text that callers may use in place of policies' names, over all callers and interfaces. Default 1,000. One
    /// caller with a token or a certificate may bring a quarter of them. Beyond: 400, or an error.
    pub one_off_policies: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            admin_connections: 256,
            admin_connections_of_peer: 64,
            probe_connections: 32,
            body: 1 << 20,
            key: 4 << 10,
            head: 64 << 10,
            requests: 1_000,
            streams: 1_024,
            head_time: Duration::from_secs(5),
            body_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(75),
            connection_age: None,
            connection_grace: Duration::from_secs(30),
            sign_in_delay: Duration::from_millis(100),
            write_time: Duration::from_secs(30),
            one_off_policies: 1_000,
        }
    }
}
