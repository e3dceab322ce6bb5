//! The connection target: address, credentials and TLS of a store URL, once everything is checked.

use std::fmt;
use std::path::PathBuf;

/// A host and a port. An IPv6 address has no brackets here.
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

/// Text that `Debug` prints as `***`. It has no `Display`, so that it cannot get into a message by mistake.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Secret(Box<str>);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<Box<str>> for Secret {
    fn from(text: Box<str>) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The credentials. Without a user name they belong to the default user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Credentials {
    pub(crate) username: Option<Secret>,
    pub(crate) password: Secret,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tls {
    /// The trusted authorities, in place of the system's.
    pub(crate) ca: Option<PathBuf>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_neither_text_nor_length() {
        for text in ["", "a", "correct horse battery staple"] {
            let secret = Secret::from(Box::from(text));
            assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "*** Some(\n    ***,\n)");
            assert_eq!(secret.reveal(), text);
        }
    }
}
