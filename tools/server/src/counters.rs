//! What the server counts about itself, as families in addition to those of its limiter. No label is a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use polylimit::metrics::{Durations, Family, FamilyKind, SampleValue};

use crate::endpoint::Protocol;

/// The codes that are counted one by one; all others are counted together.
const STATUSES: [u16; 17] =
    [200, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 428, 429, 431, 500, 503];
/// The codes of gRPC, by their numbers.
const GRPC_CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// What a caller speaks, on one listener or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    Http,
    Grpc,
    Resp,
}

impl Interface {
    const ALL: [Self; 3] = [Self::Http, Self::Grpc, Self::Resp];

    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
        }
    }
}

/// What is known of a connection before its first request.
impl From<Protocol> for Interface {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Http,
            Protocol::Resp => Self::Resp,
        }
    }
}

/// Why something was refused before it was a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// Too many connections.
    Connections,
    /// The TLS handshake failed or took too long.
    Handshake,
    /// The head took too long.
    SlowHead,
    /// What a RESP client sent is no command.
    Protocol,
    /// A head, a body, a key, a number of requests or a RESP command is too large.
    TooLarge,
    /// A token or a certificate is missing or not known.
    Unauthenticated,
    /// The role does not suffice.
    Forbidden,
}

impl Rejection {
    const ALL: [Self; 7] = [
        Self::Connections,
        Self::Handshake,
        Self::SlowHead,
        Self::Protocol,
        Self::TooLarge,
        Self::Unauthenticated,
        Self::Forbidden,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Handshake => "handshake",
            Self::SlowHead => "slow_head",
            Self::Protocol => "protocol",
            Self::TooLarge => "too_large",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
        }
    }

    /// Whether it can happen over an interface.
    fn concerns(self, interface: Interface) -> bool {
        match interface {
            Interface::Http => self != Self::Protocol,
            Interface::Grpc => matches!(self, Self::TooLarge | Self::Unauthenticated | Self::Forbidden),
            Interface::Resp => true,
        }
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    /// How long answers took, by [`STATUSES`]; the last are those with another status.
    http: [Durations; STATUSES.len() + 1],
    /// The same by [`GRPC_CODES`].
    grpc: [Durations; GRPC_CODES.len()],
    /// Replies that are none and those that are errors.
    resp: [Durations; 2],
    rejected: [[AtomicU64; Rejection::ALL.len()]; Interface::ALL.len()],
    /// Open connections of listeners for HTTP, and for RESP.
    connections: [AtomicI64; 2],
}

impl Counters {
    /// Counts an answer over HTTP.
    pub(crate) fn answered(&self, status: u16, took: Duration) {
        let at = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len());
        self.http[at].add(took, 1);
    }

    /// Counts an answer over gRPC.
    pub(crate) fn called(&self, code: tonic::Code, took: Duration) {
        if let Some(durations) = self.grpc.get(code as usize) {
            durations.add(took, 1);
        }
    }

    /// Counts commands over RESP that were answered together.
    pub(crate) fn replied(&self, answered: u64, failed: u64, took: Duration) {
        for (durations, replies) in self.resp.iter().zip([answered, failed]) {
            if replies > 0 {
                durations.add(took, replies);
            }
        }
    }

    pub(crate) fn rejected(&self, interface: impl Into<Interface>, why: Rejection) {
        self.rejected[interface.into() as usize][why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection for as long as the guard lives.
    pub(crate) fn connected(self: &Arc<Self>, protocol: Protocol) -> Connected {
        self.connections[protocol as usize].fetch_add(1, Ordering::Relaxed);
        Connected { counters: Arc::clone(self), protocol }
    }

    /// Every code with its interface, and whether it is reported before it has occurred.
    fn codes(&self) -> Vec<(Interface, String, bool, &Durations)> {
        let mut codes = Vec::new();
        let others = self.http.last().map(|durations| ("other".to_owned(), durations));
        let statuses = STATUSES.iter().map(u16::to_string).zip(&self.http).chain(others);
        codes.extend(statuses.map(|(code, durations)| (Interface::Http, code, false, durations)));
        let grpc = GRPC_CODES.iter().zip(&self.grpc);
        codes.extend(grpc.map(|(code, durations)| (Interface::Grpc, (*code).to_owned(), false, durations)));
        let resp = ["ok", "error"].into_iter().zip(&self.resp);
        codes.extend(resp.map(|(code, durations)| (Interface::Resp, code.to_owned(), true, durations)));
        codes
    }

    pub(crate) fn families(&self) -> Vec<Family> {
        let mut requests = Family::new(
            "polylimit_server_requests_total",
            FamilyKind::Counter,
            "Requests that were answered, by protocol and status code; over RESP ok or error.",
        );
        let mut durations = Family::new(
            "polylimit_server_request_duration_seconds",
            FamilyKind::Histogram,
            "The time from the head of a request to that of its answer; over RESP from commands that came together to their replies.",
        );
        let mut rejected = Family::new(
            "polylimit_server_rejected_total",
            FamilyKind::Counter,
            "Connections and requests that were refused before a decision, by reason.",
        );
        let mut connections =
            Family::new("polylimit_server_connections", FamilyKind::Gauge, "Connections that are open.");
        for (interface, code, is_always_told, took) in self.codes() {
            let labels = [("protocol", interface.name()), ("code", &*code)];
            let count = took.count();
            if count > 0 || is_always_told {
                requests.add(labels, SampleValue::Count(count));
            }
            if count > 0 {
                durations.add(labels, took.value());
            }
        }
        for interface in Interface::ALL {
            for why in Rejection::ALL.into_iter().filter(|why| why.concerns(interface)) {
                let count = self.rejected[interface as usize][why as usize].load(Ordering::Relaxed);
                let labels = [("protocol", interface.name()), ("reason", why.name())];
                rejected.add(labels, SampleValue::Count(count));
            }
        }
        for protocol in [Protocol::Http, Protocol::Resp] {
            #[expect(clippy::cast_precision_loss, reason = "there are at most thousands of connections")]
            let open = self.connections[protocol as usize].load(Ordering::Relaxed) as f64;
            connections.add([("protocol", protocol.name())], SampleValue::Number(open));
        }
        vec![requests, durations, rejected, connections]
    }
}

/// A connection that is open.
pub(crate) struct Connected {
    counters: Arc<Counters>,
    protocol: Protocol,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.counters.connections[self.protocol as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
