//! What a test may ask of a server before it starts.

use std::path::PathBuf;

use super::Server;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }
}

/// What a restarted server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dataset {
    /// What it held.
    Kept,
    /// Nothing.
    Empty,
}

/// Whether a server with TLS asks its clients for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None is asked for.
    Ignored,
    /// A client without one is turned away.
    Required,
}

impl ClientCertificates {
    pub(super) const fn setting(self) -> &'static str {
        match self {
            Self::Ignored => "no",
            Self::Required => "yes",
        }
    }
}

/// Options of a [`Server`]. Passwords are used as they are: take ones that need no escape in a URL.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub(super) kind: Kind,
    pub(super) lines: Vec<String>,
    pub(super) tls: Option<ClientCertificates>,
    pub(super) fake_clock: bool,
    pub(super) sentinel: bool,
    pub(super) program: Option<PathBuf>,
    login: Option<(String, String)>,
}

impl ServerOptions {
    pub(super) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            lines: Vec::new(),
            tls: None,
            fake_clock: false,
            sentinel: false,
            program: None,
            login: None,
        }
    }

    /// Runs the program at a path, which may be of another version or a fork: it gets no lines that Redis 6.0 does not know.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Adds lines to the configuration, such as `maxmemory 10mb`.
    #[must_use]
    pub fn lines(mut self, lines: &[&str]) -> Self {
        self.lines.extend(lines.iter().map(|&line| line.to_owned()));
        self
    }

    /// Loads polylimit's module, which Cargo has built with the test.
    #[must_use]
    pub fn module(self) -> Self {
        let line = format!("loadmodule {}", crate::module().display());
        self.lines(&[&line, "enable-module-command yes"])
    }

    /// Requires a password (of the default user).
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.login = Some((String::new(), password.to_owned()));
        self.lines(&[&format!("requirepass {password}")])
    }

    /// Adds a user with a password and all rights, and turns the default user off.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.login = Some((name.to_owned(), password.to_owned()));
        self.lines(&[&format!("user {name} on >{password} ~* &* +@all"), "user default off"])
    }

    /// Listens with TLS in place of plain TCP, with certificates made for this server.
    #[must_use]
    pub const fn tls(mut self, clients: ClientCertificates) -> Self {
        self.tls = Some(clients);
        self
    }

    /// Gives the server a clock that [`Server::set_clock_offset_us`] moves. Redis only: Valkey's allocator forbids it.
    #[must_use]
    pub fn fake_clock(mut self) -> Self {
        assert_eq!(self.kind, Kind::Redis, "only Redis can have a fake clock");
        self.fake_clock = true;
        self
    }

    pub(crate) const fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Server {
        let server = self.reserve();
        server.restart(super::Dataset::Empty);
        server
    }

    /// A server that does not run yet: its URL is known, and [`Server::restart`] starts it.
    pub fn reserve(self) -> Server {
        Server::new(self)
    }

    pub(super) fn user_info(&self) -> String {
        self.login.as_ref().map_or_else(String::new, |(user, password)| format!("{user}:{password}@"))
    }
}
