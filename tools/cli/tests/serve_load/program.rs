//! The program, with a Redis server of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use polylimit::{Limiter, Request};
use polylimit_test_servers::{Kind, Server};
use tempfile::TempDir;

/// How long what has to happen may take.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// More than the tests ask for, in a period that is longer than they take. A fixed window shows exactly how many units are spent.
pub(crate) const LIMIT: u64 = 1_000_000_000;

/// A Redis server, and a folder with the document of limits.
pub(crate) struct Store {
    redis: Server,
    folder: TempDir,
}

/// `polylimit serve`, which is ended when this is dropped.
pub(crate) struct Program {
    process: Child,
    errors: BufReader<ChildStderr>,
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
}

impl Store {
    /// With the policy `load`, and lines that are added to it.
    pub(crate) fn start(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let document = format!(
            "polylimit = 1\n[policies.load]\nquotas = \"{LIMIT}/366d fixed_window\"\n{lines}\n\
             [[rules]]\nmatch = {{ domain = \"load\", descriptor = \"caller\" }}\n\
             apply = [{{ policy = \"load\", key = \"{{caller}}\" }}]\n"
        );
        fs::write(folder.path().join("limits.toml"), document).unwrap();
        Self { redis: Server::start(Kind::Redis, &[]), folder }
    }

    /// How many units of a key are spent.
    pub(crate) fn spent(&self, key: &str) -> u64 {
        let document = fs::read_to_string(self.folder.path().join("limits.toml")).unwrap();
        let limiter = Limiter::builder().store(&url(self.address())).document(&document).build().unwrap();
        let peeked = limiter.blocking().peek(Request::new(key).policy("load")).unwrap();
        LIMIT - peeked.remaining()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.redis.address()
    }

    /// Starts the program, and waits until it listens.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Program {
        self.serve_through(self.address(), arguments)
    }

    /// The same, with a store that is found elsewhere.
    pub(crate) fn serve_through(&self, address: SocketAddr, arguments: &[&str]) -> Program {
        let url = url(address);
        let mut command = Command::new(env!("CARGO_BIN_EXE_polylimit"));
        command.args(["--policies", "limits.toml", "--store", &url, "serve", "--admin", "off"]);
        command.args(["--listen", "http://127.0.0.1:0", "--listen", "resp://127.0.0.1:0"]).args(arguments);
        command
            .current_dir(self.folder.path())
            .env_remove("POLYLIMIT_STORE")
            .env_remove("POLYLIMIT_POLICIES");
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let [http, resp] = ["http", "resp"].map(|scheme| {
            let mut line = String::new();
            errors.read_line(&mut line).unwrap();
            let listener = line.trim().split_once("info listening: listening on ");
            let address =
                listener.and_then(|(_, listener)| listener.strip_prefix(scheme)?.strip_prefix("://"));
            address.unwrap_or_else(|| panic!("it writes {line:?}")).parse().unwrap()
        });
        Program { process, errors, http, resp }
    }
}

/// A loaded machine may take longer than the default deadline, and here no outage policy may answer.
fn url(address: SocketAddr) -> String {
    format!("redis://{address}?deadline=20s")
}

impl Program {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    /// Waits for the end, and returns what it has written besides.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < SOON, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut written = String::new();
        self.errors.read_to_string(&mut written).unwrap();
        (status, written)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
