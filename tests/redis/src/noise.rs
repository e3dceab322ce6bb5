//! How late the system lets threads run at the moment, so that a deadline can be checked on a busy machine.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(1);
/// Between two looks at how long threads waited for a processor.
const LOOK: Duration = Duration::from_millis(20);

/// Threads that watch how late other threads run.
#[derive(Debug)]
pub struct Noise {
    shared: Arc<Shared>,
    watchers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    worst_us: AtomicU64,
}

impl Noise {
    /// Starts to watch.
    pub fn watch() -> Self {
        let shared = Arc::<Shared>::default();
        let watch = |how: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || how(&shared))
        };
        Self { watchers: vec![watch(Shared::nap), watch(Shared::look)], shared }
    }

    /// How late an answer may have been through no fault of its own: who drives the connection has to be woken, and then
    /// who asked.
    pub fn end(self) -> Duration {
        self.shared.over.store(true, Ordering::Relaxed);
        for watcher in self.watchers {
            watcher.join().expect("a watcher");
        }
        2 * Duration::from_micros(self.shared.worst_us.load(Ordering::Relaxed))
    }
}

impl Shared {
    /// Sleeps, again and again, and notes how much too long that was.
    fn nap(&self) {
        while !self.is_over() {
            let start = Instant::now();
            thread::sleep(NAP);
            self.note(start.elapsed().saturating_sub(NAP));
        }
    }

    /// Notes how long any thread of this process was ready to run and did not, between two looks. Threads that work are
    /// kept waiting for longer than one that sleeps.
    fn look(&self) {
        let mut then = waited();
        while !self.is_over() {
            thread::sleep(LOOK);
            let now = waited();
            let most = now.iter().map(|(thread, us)| us - then.get(thread).unwrap_or(&0).min(us)).max();
            self.note(Duration::from_micros(most.unwrap_or_default()));
            then = now;
        }
    }

    fn note(&self, late: Duration) {
        let us = u64::try_from(late.as_micros()).expect("not that long");
        self.worst_us.fetch_max(us, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// For how many microseconds each thread has waited for a processor so far, where the system says so (Linux).
fn waited() -> HashMap<OsString, u64> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return HashMap::new() };
    let of = |thread: fs::DirEntry| {
        let statistics = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let waited_ns: u64 = statistics.split(' ').nth(1)?.parse().ok()?;
        Some((thread.file_name(), waited_ns / 1_000))
    };
    threads.flatten().filter_map(of).collect()
}
