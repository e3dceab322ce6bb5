//! One server: started, commanded, stopped, killed and restarted by a test.

mod options;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use redis::{FromRedisValue, RedisResult, Value};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::control::{self, Control};
use crate::fake_clock::FakeClock;
use crate::port::Port;
use crate::process::Process;
use crate::wait::until;

pub use options::{ClientCertificates, Dataset, Kind, ServerOptions};

/// How long a server may take until it answers.
const START: Duration = Duration::from_secs(15);

/// How many lines of its log a server shows when the test fails.
const LOG_LINES: usize = 20;

/// A server with a port, a Unix socket and a folder of its own. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    port: Port,
    bus: Port,
    control: Control,
    certificates: Option<Certificates>,
    clock: Option<FakeClock>,
    process: Mutex<Option<Process>>,
    // Last, so that the server is dead when its folder goes.
    dir: TempDir,
}

impl Server {
    /// Starts a server with these lines added to its configuration, such as `maxmemory 10mb`, and waits until it answers.
    pub fn start(kind: Kind, lines: &[&str]) -> Self {
        ServerOptions::new(kind).lines(lines).start()
    }

    /// More options than lines of configuration.
    pub fn options(kind: Kind) -> ServerOptions {
        ServerOptions::new(kind)
    }

    fn new(options: ServerOptions) -> Self {
        let dir = tempfile::Builder::new().prefix("polylimit-").tempdir().expect("a temporary folder");
        let server = Self {
            port: Port::reserve(),
            bus: Port::reserve(),
            control: Control::new(dir.path().join("socket")),
            certificates: options.tls.map(|_| Certificates::generate(dir.path())),
            clock: options.fake_clock.then(|| FakeClock::new(dir.path())),
            process: Mutex::new(None),
            options,
            dir,
        };
        fs::write(server.config(), server.config_text()).expect("the server's configuration");
        server
    }

    fn config(&self) -> std::path::PathBuf {
        self.dir.path().join("server.conf")
    }

    fn config_text(&self) -> String {
        let dir = self.dir.path().display();
        let (plain, tls) = if self.certificates.is_some() { (0, self.port()) } else { (self.port(), 0) };
        let mut text = format!(
            "port {plain}\nbind 127.0.0.1\ndir \"{dir}\"\nunixsocket \"{socket}\"\nsave \"\"\nrepl-diskless-sync-delay 0\n\
             {user}",
            socket = self.control.socket().display(),
            user = control::USER,
        );
        if self.options.program.is_none() {
            let bus = self.bus.number();
            let _ = write!(text, " &*\ntls-port {tls}\ncluster-port {bus}\nenable-debug-command local");
        }
        text.push('\n');
        if let (Some(files), Some(clients)) = (&self.certificates, self.options.tls) {
            let clients = clients.setting();
            let Certificates { ca, server, server_key, .. } = files;
            let _ = write!(
                text,
                "tls-ca-cert-file \"{}\"\ntls-cert-file \"{}\"\ntls-key-file \"{}\"\ntls-auth-clients {clients}\n",
                ca.display(),
                server.display(),
                server_key.display(),
            );
        }
        for line in &self.options.lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Redis or Valkey.
    pub fn kind(&self) -> Kind {
        self.options.kind
    }

    /// The port, which stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// 127.0.0.1 and the port.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The URL for a client, with the user and password of the options.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The URL for a client that goes to another port, such as a proxy's.
    pub fn url_at(&self, port: u16) -> String {
        let scheme = if self.certificates.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}127.0.0.1:{port}", self.options.user_info())
    }

    /// The Unix socket, which is always there.
    pub fn socket(&self) -> &Path {
        self.control.socket()
    }

    /// The folder with the server's files; its output is in `log`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The certificates of a server with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// The process id; panics when the server does not run.
    pub fn pid(&self) -> u32 {
        self.with_process(Process::id)
    }

    /// Whether there is a process, be it stopped or not.
    pub fn is_running(&self) -> bool {
        self.process().as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// Whether it answers a PING, and is not loading.
    pub fn answers(&self) -> bool {
        self.is_running() && self.control.send(&["PING"]).is_ok()
    }

    /// Kills the server (SIGKILL) and waits for its end.
    pub fn kill(&self) {
        self.control.close();
        *self.process() = None;
    }

    /// Stops the process (SIGSTOP): the kernel still accepts connections and bytes, and nothing is answered.
    pub fn stop(&self) {
        self.with_process(|process| process.signal(Signal::STOP));
    }

    /// Lets a stopped process go on (SIGCONT).
    pub fn cont(&self) {
        self.with_process(|process| process.signal(Signal::CONT));
    }

    /// Kills the server, if it runs, and starts it on the same port; returns when it answers.
    ///
    /// [`Dataset::Kept`] saves a running server's data before. One that was killed has what it wrote by `appendonly yes`.
    pub fn restart(&self, dataset: Dataset) {
        self.launch(dataset);
        self.wait_until_ready();
    }

    /// As [`restart`](Self::restart), but returns at once: the server may not listen yet, or be loading.
    pub fn launch(&self, dataset: Dataset) {
        if dataset == Dataset::Kept && self.is_running() {
            self.command(&["SAVE"]);
        }
        self.kill();
        if dataset == Dataset::Empty {
            remove(fs::remove_file(self.dir().join("dump.rdb")));
            remove(fs::remove_dir_all(self.dir().join("appendonlydir")));
        }
        // A socket of the process before would look as if this one listened.
        remove(fs::remove_file(self.socket()));
        let log = File::options().create(true).append(true).open(self.log()).expect("the server's log");
        let mut arguments = vec![self.config().display().to_string()];
        if self.options.sentinel {
            arguments.push("--sentinel".into());
        }
        let environment = self.clock.as_ref().map(FakeClock::environment).unwrap_or_default();
        *self.process() = Some(Process::start(&self.program(), &arguments, &environment, log));
    }

    /// Waits until the server answers and has loaded its data.
    pub fn wait_until_ready(&self) {
        until("the server answers PING", START, || {
            let ended = self.process().as_mut().and_then(Process::ended);
            if let Some(status) = ended {
                let name = self.program();
                panic!(
                    "{name} ended with {status} (if it is not installed: tests/setup)\n{}",
                    self.log_tail()
                );
            }
            self.answers().then_some(())
        });
    }

    /// The reply to a command, sent past port, passwords, TLS and connection limit; panics when it is an error.
    pub fn command(&self, arguments: &[impl AsRef<[u8]>]) -> Value {
        self.query(arguments)
    }

    /// The reply to a command as a Rust type: `query::<u64>(&["DBSIZE"])`.
    pub fn query<T: FromRedisValue>(&self, arguments: &[impl AsRef<[u8]>]) -> T {
        let reply = self.try_command(arguments).and_then(|value| Ok(redis::from_redis_value(value)?));
        reply.unwrap_or_else(|error| {
            let name = arguments.first().map(|name| String::from_utf8_lossy(name.as_ref()).into_owned());
            panic!("{}: {error}", name.unwrap_or_default())
        })
    }

    /// The reply to a command.
    ///
    /// # Errors
    ///
    /// What the server answered, or that it cannot be reached.
    pub fn try_command(&self, arguments: &[impl AsRef<[u8]>]) -> RedisResult<Value> {
        self.control.send(arguments)
    }

    /// A field of INFO, such as `used_memory`.
    pub fn info(&self, field: &str) -> String {
        let text: String = self.query(&["INFO", "everything"]);
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("INFO has no field {field}")).to_owned()
    }

    /// Whether it is a primary, or a replica that has all of its primary's data.
    pub(crate) fn has_its_data(&self) -> bool {
        // In one answer: a replica may become a primary between two.
        let text: String = self.query(&["INFO", "replication"]);
        text.lines().any(|line| ["role:master", "master_link_status:up"].contains(&line))
    }

    /// Moves the server's clock to this much from the true time; needs [`ServerOptions::fake_clock`].
    pub fn set_clock_offset_us(&self, offset_us: i64) {
        self.clock.as_ref().expect("a server with a fake clock").set_offset_us(offset_us);
    }

    pub(crate) const fn bus_port(&self) -> u16 {
        self.bus.number()
    }

    fn program(&self) -> String {
        let path = self.options.program.as_ref().map(|path| path.display().to_string());
        path.unwrap_or_else(|| self.kind().program().to_owned())
    }

    fn log(&self) -> std::path::PathBuf {
        self.dir.path().join("log")
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    fn with_process<T>(&self, act: impl FnOnce(&Process) -> T) -> T {
        act(self.process().as_ref().expect("a server that runs"))
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    /// Prints the log of the server when the test fails.
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{} on port {}:\n{}", self.program(), self.port(), self.log_tail());
        }
    }
}

/// A missing file counts as removed.
fn remove(result: io::Result<()>) {
    if let Err(error) = result {
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }
}
