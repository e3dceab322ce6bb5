//! The settings of a server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polylimit::ClientAddressRules;

use crate::endpoint::Endpoint;
use crate::limits::Limits;
use crate::tls::TlsFiles;

/// How operators see keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownKeys {
    /// As they are.
    #[default]
    Plain,
    /// As the first digits of their SHA-256, so that one can be told from another.
    Hash,
    /// Not at all.
    Off,
}

impl ShownKeys {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Hash, Self::Off];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Hash => "hash",
            Self::Off => "off",
        }
    }
}

/// The settings of a server; those of its limiter are the limiter's own.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Where callers ask.
    pub listen: Vec<Endpoint>,
    /// Where operators look: metrics, documents, keys. `None` for nowhere. It speaks HTTP.
    pub admin: Option<Endpoint>,
    /// Names under which operators reach the admin listener, besides its own, `localhost` and addresses. A web page of another name
    /// cannot ask it.
    pub admin_hosts: Vec<String>,
    /// How operators see keys.
    pub show_keys: ShownKeys,
    /// The file of tokens and certificates, and of the roles that they have. Without it every caller may do everything.
    pub tokens: Option<PathBuf>,
    /// Certificate and key, for listeners with TLS.
    pub tls: Option<TlsFiles>,
    /// Listens beyond this host without TLS or without authentication, too.
    pub insecure: bool,
    /// The mode of the files of Unix sockets. Default `0o600`.
    pub socket_mode: u32,
    /// How long connections may go on once the server stops. Default 10 s.
    pub drain: Duration,
    /// The server is ready only while its store answers.
    pub ready_needs_store: bool,
    /// How clients' addresses are found behind proxies, for forward authentication.
    pub client_address: ClientAddressRules,
    /// How Envoy's rate limit service decides.
    pub rls: RlsOptions,
    /// The file of the document of limits, where it is one.
    pub policies: Option<PathBuf>,
    /// What bounds everything that a client can make grow.
    pub limits: Limits,
    /// Gets one line for each event that an operator should see.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
}

/// How Envoy's rate limit service decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RlsOptions {
    /// Every descriptor counts for itself, also where another one denies the request, as in envoyproxy/ratelimit. Otherwise a denial
    /// spends nothing.
    pub count_all: bool,
    /// A limit that comes with a descriptor is in place of those of the document. Otherwise it is ignored.
    pub overrides: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            admin: None,
            admin_hosts: Vec::new(),
            show_keys: ShownKeys::Plain,
            tokens: None,
            tls: None,
            insecure: false,
            socket_mode: 0o600,
            drain: Duration::from_secs(10),
            ready_needs_store: false,
            client_address: ClientAddressRules::default(),
            rls: RlsOptions::default(),
            policies: None,
            limits: Limits::default(),
            log: Arc::new(|_| ()),
        }
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("listen", &self.listen)
            .field("admin", &self.admin)
            .finish_non_exhaustive()
    }
}
