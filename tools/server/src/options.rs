//! The settings of a server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polylimit::http::ClientAddressRules;
use sha2::{Digest, Sha256};

use crate::endpoint::Endpoint;
use crate::limits::Limits;
use crate::log::LogRecord;
use crate::tls::TlsFiles;

/// How operators see keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownKeys {
    /// As they are.
    #[default]
    Plain,
    /// As the first digits of their SHA-256, so that one can be distinguished from another.
    Hash,
    /// Not at all.
    Off,
}

impl ShownKeys {
    /// A key as operators see it in the log; empty where they do not see it.
    pub(crate) fn of(self, key: &[u8]) -> String {
        match self {
            Self::Plain => String::from_utf8_lossy(key).into_owned(),
            Self::Hash => format!("#{}", key_digest(key)),
            Self::Off => String::new(),
        }
    }

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

/// The first digits of a key's SHA-256, which distinguishes keys.
pub(crate) fn key_digest(key: impl AsRef<[u8]>) -> String {
    const DIGITS: usize = 16;
    let digest = Sha256::digest(key);
    digest.iter().take(DIGITS / 2).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The settings of a server; those of its limiter are the limiter's own.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Where callers ask.
    pub listen: Vec<Endpoint>,
    /// Where callers ask without a token, also where [`tokens`](Self::tokens) are needed elsewhere: a Unix socket or loopback. They have the
    /// role [`Check`](crate::Role::Check), and what they send as `Authorization` is not looked at: it may be that of a proxy's client.
    pub listen_open: Vec<Endpoint>,
    /// Where operators look: metrics, documents, keys. `None` for nowhere. It speaks HTTP.
    pub admin: Option<Endpoint>,
    /// Names under which the admin listener is reached, and listeners for callers that need no token, besides their own, `localhost` and
    /// addresses. A web page of another name cannot ask them.
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
    /// Reads the name and the password for the store again, where they are in a file. It is called on SIGHUP, every 10 s, and when the store
    /// refuses the ones before.
    pub store_login: Option<ReadLogin>,
    /// Gets each record of the log, on any thread.
    pub log: Arc<dyn Fn(&LogRecord) + Send + Sync>,
}

/// Reads name and password for the store; none where it needs none. A failure says why.
pub type ReadLogin = Arc<dyn Fn() -> Result<Option<StoreLogin>, String> + Send + Sync>;

/// Name and password for the store.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreLogin {
    /// The name; `None` for the default user.
    pub username: Option<String>,
    /// The password.
    pub password: String,
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
            listen_open: Vec::new(),
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
            store_login: None,
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
