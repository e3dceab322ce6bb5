//! The connection target: address, credentials and TLS of a store URL, once everything is checked.

use std::fmt;
use std::path::PathBuf;

pub(crate) use polylimit_store::credentials::{Credentials, CredentialsFunction, Secret};

/// A host and a port. An IPv6 address is stored without brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoint {
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
}

/// The servers to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoints {
    Tcp(Endpoint),
    /// One server on this host, by the path of its socket.
    Unix(PathBuf),
    /// The primary of a service, as the sentinels report it.
    Sentinel {
        service: Box<str>,
        sentinels: Box<[Endpoint]>,
    },
    /// A cluster, found through some of its nodes.
    Cluster {
        seeds: Box<[Endpoint]>,
    },
}

/// The address in the URL; user info is stored as options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    pub(crate) endpoints: Endpoints,
    pub(crate) tls: bool,
}

/// Changing credentials, and their source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChangingCredentials {
    /// The option that names the source.
    pub(crate) option: &'static str,
    pub(crate) source: CredentialsSource,
    /// The user, unless the source provides it.
    pub(crate) username: Option<Secret>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CredentialsSource {
    /// A file that holds the password.
    File(PathBuf),
    /// A program with its arguments, whose output is the password.
    Program(Box<str>),
    Function(CredentialsFunction),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tls {
    pub(crate) trust: Trust,
    pub(crate) identity: Option<Identity>,
    /// The name to verify instead of the host's.
    pub(crate) server_name: Option<Box<str>>,
}

/// The SHA-256 of a certificate.
pub(crate) type Fingerprint = [u8; 32];

/// Which certificates of servers are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Trust {
    /// Those of the system's authorities.
    #[default]
    System,
    /// Those of the authorities in a file, and the certificates in it.
    File(PathBuf),
    /// Those with one of these fingerprints.
    Fingerprints(Box<[Fingerprint]>),
    /// All of them: the server may be anything.
    Any,
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
    /// The credentials in place of `credentials`.
    pub(crate) changing: Option<ChangingCredentials>,
    pub(crate) sentinel_credentials: Option<Credentials>,
    /// The credentials in place of `sentinel_credentials`.
    pub(crate) sentinel_changing: Option<ChangingCredentials>,
    pub(crate) database: u32,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A target as operators see it: its addresses and its database, and never its credentials.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |endpoints: &[Endpoint]| endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(" ");
        match &self.endpoints {
            Endpoints::Tcp(endpoint) => write!(f, "{endpoint}")?,
            Endpoints::Unix(path) => write!(f, "{}", path.display())?,
            Endpoints::Sentinel { service, sentinels } => write!(f, "{service} of {}", list(sentinels))?,
            Endpoints::Cluster { seeds } => write!(f, "cluster {}", list(seeds))?,
        }
        match self.database {
            0 => Ok(()),
            database => write!(f, ", db {database}"),
        }
    }
}
