//! Child processes: the test program started again, with a role in its environment.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

use polylimit::metrics::DegradedEvent;
use polylimit::{Limiter, Policy};

const ROLE: &str = "POLYLIMIT_LOCAL_ROLE";
const URL: &str = "POLYLIMIT_LOCAL_URL";
/// The prefix of messages of a child, since the test harness prints lines as well.
const MARK: &str = "message: ";
pub(crate) const QUOTA: &str = "100/52w fixed_window";
const THREADS: usize = 8;

/// A child process, killed on drop.
pub(crate) struct ChildProcess {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
    pub(crate) fn start(role: &str, url: &str) -> Self {
        Self::of(Command::new(std::env::current_exe().unwrap()), role, url)
    }

    pub(crate) fn of(mut command: Command, role: &str, url: &str) -> Self {
        let child = command
            .args(["child::child_process_entry", "--ignored", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output }
    }

    pub(crate) fn send(&mut self, message: &str) {
        writeln!(self.input, "{message}").unwrap();
    }

    /// Its next message; `None` when it ends.
    pub(crate) fn receive(&mut self) -> Option<String> {
        self.output.by_ref().map_while(Result::ok).find_map(|line| Some(line.split_once(MARK)?.1.to_owned()))
    }

    pub(crate) fn receive_number(&mut self) -> u64 {
        self.receive().unwrap().parse().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it and does not wait for it, so that it stays a zombie.
    pub(crate) fn kill_without_wait(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "not a test: the entry point of child processes"]
fn child_process_entry() {
    let (role, url) = (std::env::var(ROLE).unwrap(), std::env::var(URL).unwrap());
    let limiter = Limiter::builder().store(&url).policy(Policy::parse("test", QUOTA).unwrap());
    let limiter = limiter.build().unwrap().blocking();
    let send = |message: &str| {
        // One write, so that lines of several threads do not mix.
        let _ = std::io::stdout().write_all(format!("\n{MARK}{message}\n").as_bytes());
        let _ = std::io::stdout().flush();
    };
    match role.as_str() {
        "rounds" => rounds(&limiter, send),
        "endless" => endless(&limiter, send),
        "once" => match limiter.check("key") {
            Ok(decision) => match (decision.degraded(), &limiter.asynchronous().raw().take_events()[..]) {
                (None, _) => send(if decision.allowed() { "allowed" } else { "denied" }),
                (Some(reason), [DegradedEvent::Started { cause: Some(cause), .. }]) => {
                    send(&format!("{} {}: {cause}", decision.source().name(), reason.name()));
                }
                (Some(reason), events) => {
                    send(&format!("{} {}: {events:?}", decision.source().name(), reason.name()));
                }
            },
            Err(error) => send(&format!("{}: {error}", error.kind())),
        },
        "acquires" => super::processes::acquire_repeatedly(&limiter, send),
        "forks" => super::owners::fork_repeatedly(&url, send),
        "forks with two limiters" => super::limiters::fork_twice(send),
        "leaves a child" => super::owners::leave_a_child(&limiter, send),
        "full" => super::opening::use_full_file_system(&url, &limiter, send),
        "once and events" => super::outages::check_and_tell(&limiter, send),
        "no resources" => super::outages::use_without_resources(&limiter, send),
        "hidden" => super::owners::hide(&limiter, send),
        "opens" => {
            let _ = limiter.peek("key").unwrap();
            send("ready");
            let _ = std::io::stdin().lines().next();
        }
        _ => unreachable!(),
    }
}

/// For each key that it receives, all threads make requests until they are denied. It sends the number of admissions.
fn rounds(limiter: &polylimit::blocking::Limiter, send: impl Fn(&str)) {
    let admitted = AtomicU64::new(0);
    let (start, end) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    let key = std::sync::Mutex::new(String::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    start.wait();
                    let key = key.lock().unwrap().clone();
                    if key.is_empty() {
                        return;
                    }
                    while limiter.check(&key).unwrap().allowed() {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                    end.wait();
                }
            });
        }
        send("ready");
        for line in std::io::stdin().lines().map_while(Result::ok) {
            *key.lock().unwrap() = line;
            start.wait();
            end.wait();
            send(&admitted.swap(0, Ordering::Relaxed).to_string());
        }
        key.lock().unwrap().clear();
        start.wait();
    });
}

/// All threads make requests without end, for keys of their own and for one that the process receives. It sends a message
/// after each admission of the latter.
fn endless(limiter: &polylimit::blocking::Limiter, send: impl Fn(&str) + Sync) {
    let shared_key = OnceLock::<String>::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (shared_key, send) = (&shared_key, &send);
            scope.spawn(move || {
                let own = format!("own {thread}");
                loop {
                    if let Some(key) = shared_key.get()
                        && limiter.check(key).unwrap().allowed()
                    {
                        send("admitted");
                    }
                    // An entry that is created and removed.
                    let _ = limiter.check(&own).unwrap();
                    let _ = limiter.reset(&own).unwrap();
                }
            });
        }
        std::thread::sleep(Duration::from_millis(1));
        send("ready");
        let _ = shared_key.set(std::io::stdin().lines().next().unwrap().unwrap());
    });
}
