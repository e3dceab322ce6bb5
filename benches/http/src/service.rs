//! A service in a process of its own, and the processor time that it has used.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::process::{Signal, kill_process};
use tempfile::NamedTempFile;

/// How long a service may take until it listens, on a busy machine.
const START: Duration = Duration::from_secs(120);

/// The core of the services. The client and Redis share another one.
const CORE: usize = 0;

/// Dropping it ends the service.
pub(crate) struct Service {
    process: Child,
    log: NamedTempFile,
}

impl Service {
    /// Starts a service that prints the URL where it listens. It ends with this process, in any case.
    pub(crate) fn start<V: AsRef<OsStr>>(
        command: &[impl AsRef<OsStr>],
        environment: &[(&str, V)],
        pinned: bool,
    ) -> io::Result<Self> {
        let log = NamedTempFile::new()?;
        let mut starter = Command::new("setpriv");
        starter.args(["--pdeathsig", "KILL", "--"]);
        if pinned {
            starter.args(["taskset", "-c", &CORE.to_string()]);
        }
        starter.args(command).envs(environment.iter().map(|(name, value)| (name, value)));
        starter.stdin(Stdio::null()).stdout(log.reopen()?).stderr(log.reopen()?);
        Ok(Self { process: starter.spawn()?, log })
    }

    /// Waits until the service listens, and returns where.
    pub(crate) fn address(&mut self) -> io::Result<SocketAddr> {
        let started = Instant::now();
        loop {
            let log = fs::read_to_string(self.log.path())?;
            let url = log.split_once("http://").map(|(_, rest)| rest);
            let address = url.and_then(|url| url.split_once(|after: char| after.is_whitespace()));
            if let Some(address) = address.and_then(|(address, _)| address.parse().ok()) {
                return Ok(address);
            }
            if started.elapsed() > START || self.process.try_wait()?.is_some() {
                return Err(io::Error::other(format!("a service does not listen; it has printed:\n{log}")));
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// The processor time of the process and its children, which gunicorn has, so far.
    pub(crate) fn processor_time(&self) -> io::Result<Duration> {
        let own = Pid::from_raw(self.process.id().cast_signed());
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"))?;
        let children = children.split_whitespace().filter_map(|child| child.parse().ok()).map(Pid::from_raw);
        let mut sum = Duration::ZERO;
        for process in children.chain([own]) {
            sum += Duration::from(ClockId::pid_cpu_clock_id(process)?.now()?);
        }
        Ok(sum)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // An error says that the process has ended already. gunicorn ends its worker on this signal.
        let _ = kill_process(rustix::process::Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}
