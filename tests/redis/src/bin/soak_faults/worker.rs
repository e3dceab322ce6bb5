//! A process that decides while faults happen, and the handle of the process that started it.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _, stdin, stdout};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use polylimit::storage::Outage;
use polylimit::{Limiter, Policy, Request, blocking};
use polylimit_redis_tests::uncached;
use polylimit_test_servers::FakeClock;
use tempfile::TempDir;

/// One policy for each algorithm. The periods are so long that a step of an hour refills less than a unit.
pub(crate) const KINDS: [&str; 5] =
    ["fixed_window", "sliding_window", "token_bucket", "leaky_bucket", "sliding_log"];
/// The units of a key.
pub(crate) const LIMIT: u64 = 600;
const THREADS: usize = 2;
/// The pause of a thread between two decisions.
const PAUSE: Duration = Duration::from_millis(12);
/// Twice as long as a worker is frozen at most, so that no decision fails because of that, even if the machine is busy.
const DEADLINE: Duration = Duration::from_secs(5);

/// What the threads of a worker count for one key.
#[derive(Default)]
struct Counts {
    admitted: AtomicU64,
    denied: AtomicU64,
    degraded: AtomicU64,
    slowest_us: AtomicU64,
}

/// The line of a worker whose key is used up.
const USED_UP: &str = "used up";

/// The program of a worker: `worker URL`. A line of input, `key POLICY KEY`, changes what its threads ask for, and is answered by the
/// counts of the key before. A line of output, `store` or `outage REASON`, says that decisions are made otherwise than before, and `used up`
/// that the store has denied for the first time.
pub(crate) fn main(url: &str) {
    let mut builder = Limiter::builder().redis(uncached(url).deadline(DEADLINE));
    for kind in KINDS {
        let policy = Policy::parse(kind, &format!("{LIMIT}/52w {kind}")).unwrap();
        builder = builder.policy(policy).outage(kind, Outage::Deny);
    }
    let limiter = builder.build().unwrap().blocking();
    let current: Arc<RwLock<Option<(String, String)>>> = Arc::default();
    let counts: Arc<Counts> = Arc::default();
    let by_store = Arc::new(AtomicBool::new(true));
    for _ in 0..THREADS {
        let (limiter, current, counts, by_store) =
            (limiter.clone(), current.clone(), counts.clone(), by_store.clone());
        thread::spawn(move || {
            loop {
                if let Some((policy, key)) = &*current.read().unwrap() {
                    decide(&limiter, policy, key, &counts, &by_store);
                }
                thread::sleep(PAUSE);
            }
        });
    }
    for line in stdin().lock().lines() {
        let line = line.unwrap();
        let ["key", policy, key] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("unknown: {line}") };
        // The lock is free when no thread decides about the key before.
        let mut current = current.write().unwrap();
        *current = Some((policy.to_owned(), key.to_owned()));
        let of = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let Counts { admitted, denied, degraded, slowest_us } = &*counts;
        say(&format!("counts {} {} {} {}", of(admitted), of(denied), of(degraded), of(slowest_us)));
    }
}

fn decide(limiter: &blocking::Limiter, policy: &str, key: &str, counts: &Counts, by_store: &AtomicBool) {
    let start = Instant::now();
    let decision = limiter.check(Request::new(key).policy(policy)).unwrap();
    let us = u64::try_from(start.elapsed().as_micros()).unwrap();
    counts.slowest_us.fetch_max(us, Ordering::Relaxed);
    let is_outage = decision.source().is_outage();
    let count = match (is_outage, decision.allowed()) {
        (true, false) => &counts.degraded,
        (true, true) => panic!("an outage that denies has admitted: {decision:?}"),
        (false, true) => &counts.admitted,
        (false, false) => &counts.denied,
    };
    let before = count.fetch_add(1, Ordering::Relaxed);
    if before == 0 && !is_outage && !decision.allowed() {
        say(USED_UP);
    }
    if by_store.swap(!is_outage, Ordering::Relaxed) == is_outage {
        say(&decision.degraded().map_or_else(|| "store".to_owned(), |reason| format!("outage {reason:?}")));
    }
}

fn say(line: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// What a worker counted for a key.
#[derive(Default, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    pub(crate) degraded: u64,
    pub(crate) slowest_us: u64,
}

/// What a worker holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) resident_kib: usize,
}

/// A worker that this process has started. It ends when this value is dropped.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Counted>,
    changes: Arc<Mutex<VecDeque<(Instant, bool, String)>>>,
    is_used_up: Arc<AtomicBool>,
    clock: FakeClock,
    _folder: TempDir,
}

impl Worker {
    /// Starts one against the store at `url`, with a clock of its own.
    pub(crate) fn start(url: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = FakeClock::new(folder.path());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["worker", url]).envs(clock.environment()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let changes: Arc<Mutex<VecDeque<_>>> = Arc::default();
        let (sender, answers) = channel();
        let seen = changes.clone();
        let is_used_up: Arc<AtomicBool> = Arc::default();
        let used_up = is_used_up.clone();
        thread::spawn(move || {
            for line in output.lines() {
                let line = line.unwrap();
                if let Some(counts) = line.strip_prefix("counts ") {
                    let numbers: Vec<u64> = counts.split(' ').map(|number| number.parse().unwrap()).collect();
                    let [admitted, denied, degraded, slowest_us] = numbers[..] else { panic!("{line}") };
                    let counted = Counted { admitted, denied, degraded, slowest_us };
                    used_up.store(false, Ordering::Relaxed);
                    // The other end is gone when the run is over.
                    let _ = sender.send(counted);
                } else if line == USED_UP {
                    used_up.store(true, Ordering::Relaxed);
                } else {
                    seen.lock().unwrap().push_back((Instant::now(), line == "store", line));
                }
            }
        });
        Self {
            input: child.stdin.take().unwrap(),
            child,
            answers,
            changes,
            is_used_up,
            clock,
            _folder: folder,
        }
    }

    /// Makes it ask for another key, and returns what it counted for the key before.
    pub(crate) fn ask_for(&mut self, policy: &str, key: &str) -> Counted {
        writeln!(self.input, "key {policy} {key}").unwrap();
        self.answers.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    /// Whether the store has denied its key.
    pub(crate) fn is_used_up(&self) -> bool {
        self.is_used_up.load(Ordering::Relaxed)
    }

    /// When it last began to be answered by the store, if it was not for a time after `since`; `Err` has the reason of an outage that goes on.
    pub(crate) fn recovered(&self, since: Instant) -> Result<Option<Instant>, String> {
        let mut changes = self.changes.lock().unwrap();
        while changes.len() > 1 && changes[1].0 < since {
            changes.pop_front();
        }
        match changes.back() {
            Some((_, false, reason)) => Err(reason.clone()),
            Some((at, true, _)) => Ok((*at >= since).then_some(*at)),
            None => Ok(None),
        }
    }

    /// Why the store did not decide after `since`.
    pub(crate) fn reasons(&self, since: Instant) -> Vec<String> {
        let changes = self.changes.lock().unwrap();
        let after = changes.iter().filter(|(at, by_store, _)| *at >= since && !by_store);
        after.map(|(.., line)| line.trim_start_matches("outage ").to_owned()).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Moves its system clock to this much from the true time.
    pub(crate) fn set_clock_offset_us(&self, offset_us: i64) {
        self.clock.set_offset_us(offset_us);
    }

    pub(crate) fn held(&self) -> Held {
        let folder = format!("/proc/{}", self.pid());
        let entries = |name: &str| fs::read_dir(format!("{folder}/{name}")).unwrap().count();
        let pages = fs::read_to_string(format!("{folder}/statm")).unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        Held { descriptors: entries("fd"), threads: entries("task"), resident_kib: pages * 4 }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
