//! Other processes: this one once more, told by its environment what to do.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

use polylimit::{Limiter, Policy};

const ROLE: &str = "POLYLIMIT_LOCAL_ROLE";
const URL: &str = "POLYLIMIT_LOCAL_URL";
/// What a child says begins with it, since the test harness says things as well.
const MARK: &str = "said: ";
pub(crate) const QUOTA: &str = "100/52w fixed_window";
const THREADS: usize = 8;

/// A process that is killed in the end.
pub(crate) struct Other {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Other {
    pub(crate) fn start(role: &str, url: &str) -> Self {
        Self::of(Command::new(std::env::current_exe().unwrap()), role, url)
    }

    pub(crate) fn of(mut command: Command, role: &str, url: &str) -> Self {
        let child = command
            .args(["child::a_child", "--exact", "--nocapture", "--test-threads=1"])
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

    pub(crate) fn tell(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
    }

    /// What it says next; nothing when it ends.
    pub(crate) fn hear(&mut self) -> Option<String> {
        self.output.by_ref().map_while(Result::ok).find_map(|line| Some(line.split_once(MARK)?.1.to_owned()))
    }

    pub(crate) fn hear_number(&mut self) -> u64 {
        self.hear().unwrap().parse().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and leaves it to be waited for.
    pub(crate) fn kill_only(&mut self) {
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

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: the other processes begin here.
#[test]
fn a_child() {
    let (Ok(role), Ok(url)) = (std::env::var(ROLE), std::env::var(URL)) else { return };
    let limiter = Limiter::builder().store(&url).policy(Policy::parse("test", QUOTA).unwrap());
    let limiter = limiter.build().unwrap().blocking();
    let said = |what: &str| {
        // One write, so that lines of several threads do not mix.
        let _ = std::io::stdout().write_all(format!("\n{MARK}{what}\n").as_bytes());
        let _ = std::io::stdout().flush();
    };
    match role.as_str() {
        "rounds" => rounds(&limiter, said),
        "endless" => endless(&limiter, said),
        "once" => match limiter.check("key") {
            Ok(decision) => said(if decision.allowed() { "allowed" } else { "denied" }),
            Err(error) => said(&format!("{}: {error}", error.kind())),
        },
        "acquires" => super::processes::acquires(&limiter, said),
        "forks" => super::forks::forks(&url, said),
        "child of one" => super::limiters::forks(said),
        "leaves a child" => super::forks::leaves_a_child(&limiter, said),
        "full" => super::opening::full(&url, &limiter, said),
        "hidden" => super::owners::hidden(&limiter, said),
        _ => unreachable!(),
    }
}

/// For each key that it is told: all threads ask until they are denied; it says how many were admitted.
fn rounds(limiter: &polylimit::blocking::Limiter, said: impl Fn(&str)) {
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
        said("ready");
        for line in std::io::stdin().lines().map_while(Result::ok) {
            *key.lock().unwrap() = line;
            start.wait();
            end.wait();
            said(&admitted.swap(0, Ordering::Relaxed).to_string());
        }
        key.lock().unwrap().clear();
        start.wait();
    });
}

/// All threads ask for ever: for keys of their own, and for the one that they are told. It says so of each admission
/// there, after it.
fn endless(limiter: &polylimit::blocking::Limiter, said: impl Fn(&str) + Sync) {
    let told = OnceLock::<String>::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (told, said) = (&told, &said);
            scope.spawn(move || {
                let own = format!("own {thread}");
                loop {
                    if let Some(key) = told.get()
                        && limiter.check(key).unwrap().allowed()
                    {
                        said("admitted");
                    }
                    // An entry that comes and goes.
                    let _ = limiter.check(&own).unwrap();
                    let _ = limiter.reset(&own).unwrap();
                }
            });
        }
        std::thread::sleep(Duration::from_millis(1));
        said("ready");
        let _ = told.set(std::io::stdin().lines().next().unwrap().unwrap());
    });
}
