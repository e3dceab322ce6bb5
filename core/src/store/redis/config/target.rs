//! The connection target: address, credentials and TLS of a store URL, once everything is checked.

use std::fmt;
use std::path::PathBuf;

use crate::store::redis::config::secret::Secret;

/// A host and a port. An IPv6 address has no brackets here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The servers to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoints {
    /// One server.
    Tcp(Endpoint),
    /// One server on this host, by the path of its socket.
    Unix(PathBuf),
    /// The primary of a service, as the sentinels report it.
    Sentinel { service: Box<str>, sentinels: Box<[Endpoint]> },
    /// A cluster, found through some of its nodes.
    Cluster { seeds: Box<[Endpoint]> },
}

/// The address in the URL; user info is stored as options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    pub(crate) endpoints: Endpoints,
    pub(crate) tls: bool,
}

/// The credentials. Without a user name they belong to the default user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Credentials {
    pub(crate) username: Option<Secret>,
    pub(crate) password: Secret,
}

/// The TLS options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tls {
    /// The trusted authorities, in place of the system's.
    pub(crate) ca: Option<PathBuf>,
    /// The client certificate.
    pub(crate) identity: Option<Identity>,
    /// The name to verify in place of the host's.
    pub(crate) server_name: Option<Box<str>>,
}

/// The files of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The address of Redis, and what connecting requires.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) endpoints: Endpoints,
    /// `Some` when the connections to servers and sentinels are encrypted.
    pub(crate) tls: Option<Tls>,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) sentinel_credentials: Option<Credentials>,
    pub(crate) database: u32,
}
