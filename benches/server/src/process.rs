//! A server in a process of its own on the core of the servers, and what the system reports about it.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::process::{Signal, kill_process};
use tempfile::NamedTempFile;

/// How long a server may take until it listens, on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Dropping it ends the process.
pub(crate) struct Process {
    process: Child,
    log: NamedTempFile,
}

impl Process {
    /// Starts a server on a core, or on any with `None`. It ends with this process, in any case.
    pub(crate) fn start(
        command: &[impl AsRef<OsStr>],
        environment: &[(&str, String)],
        core: Option<usize>,
    ) -> io::Result<Self> {
        let log = NamedTempFile::new()?;
        let mut starter = Command::new("setpriv");
        starter.args(["--pdeathsig", "KILL", "--"]);
        if let Some(core) = core {
            starter.args(["taskset", "-c", &core.to_string()]);
        }
        starter.args(command).envs(environment.iter().map(|(name, value)| (name, value)));
        starter.stdin(Stdio::null()).stdout(log.reopen()?).stderr(log.reopen()?);
        Ok(Self { process: starter.spawn()?, log })
    }

    /// Waits until the server has written where it listens, and returns the address after each of these prefixes.
    pub(crate) fn addresses<const N: usize>(
        &mut self,
        prefixes: [&str; N],
    ) -> Result<[SocketAddr; N], Box<dyn Error>> {
        let mut found = [None; N];
        self.wait(|log| {
            for (prefix, address) in prefixes.iter().zip(&mut found) {
                let text = log.split_once(prefix).map(|(_, rest)| rest);
                let text = text.and_then(|rest| rest.split_once(|after: char| after.is_whitespace()));
                *address = text.and_then(|(text, _)| text.parse().ok());
            }
            found.iter().all(Option::is_some)
        })?;
        Ok(found.map(|address| address.unwrap_or(SocketAddr::from(([0; 4], 0)))))
    }

    /// Waits until the server accepts connections.
    pub(crate) fn listens(&mut self, address: SocketAddr) -> Result<(), Box<dyn Error>> {
        self.wait(|_| TcpStream::connect(address).is_ok())
    }

    fn wait(&mut self, mut is_there: impl FnMut(&str) -> bool) -> Result<(), Box<dyn Error>> {
        let started = Instant::now();
        loop {
            let log = fs::read_to_string(self.log.path())?;
            if is_there(&log) {
                return Ok(());
            }
            if started.elapsed() > START || self.process.try_wait()?.is_some() {
                return Err(format!("a server does not listen; it has printed:\n{log}").into());
            }
            sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Bytes of memory that the process has in use: `VmRSS`.
    pub(crate) fn memory(&self) -> Result<u64, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?.parse()?;
        Ok(kib << 10)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that the process has ended already.
        let _ = kill_process(rustix::process::Pid::from_child(&self.process), Signal::TERM);
        let started = Instant::now();
        while !matches!(self.process.try_wait(), Ok(Some(_)) | Err(_)) {
            if started.elapsed() > Duration::from_secs(15) {
                let _ = self.process.kill();
            }
            sleep(Duration::from_millis(5));
        }
    }
}

/// The processor time of a process so far.
pub(crate) fn processor_time(process: u32) -> io::Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(process.cast_signed()))?;
    Ok(Duration::from(clock.now()?))
}

/// Moves a process that runs already to a core.
pub(crate) fn pin(process: u32, core: usize) -> io::Result<()> {
    let moved = Command::new("taskset")
        .args(["-a", "-cp", &core.to_string(), &process.to_string()])
        .stdout(Stdio::null())
        .status()?;
    if moved.success() { Ok(()) } else { Err(io::Error::other("taskset cannot move a process to a core")) }
}

/// A port that is free now, for servers that cannot choose one.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
