//! Scheduling delays of the machine during a test. A check of a deadline allows for them, so that it holds on a busy
//! machine.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const SLEEP: Duration = Duration::from_millis(1);
/// Between two samples of the run-queue times of all threads.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// The most that a test allows for, however late threads run: a decision that hangs fails the test on every machine.
const MAX_ALLOWANCE: Duration = Duration::from_millis(200);

thread_local! {
    /// Whether a measurement of this thread exceeded the allowance.
    static EXCEEDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test that measures how long decisions take. Repeats it once if it fails while the system ran threads so late that no
/// test allows for it: on such a machine a repetition shows more than a wider bound.
pub fn repeated_if_noisy(test: impl Fn()) {
    EXCEEDED.set(false);
    let Err(failure) = catch_unwind(AssertUnwindSafe(&test)) else { return };
    if !EXCEEDED.get() {
        resume_unwind(failure);
    }
    println!("the system ran threads more than {MAX_ALLOWANCE:?} too late: the test is repeated");
    test();
}

/// Threads that measure how late the system runs threads of this process.
#[derive(Debug)]
pub struct Noise {
    shared: Arc<Shared>,
    samplers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    worst_us: AtomicU64,
}

impl Noise {
    /// Starts to measure.
    pub fn measure() -> Self {
        let shared = Arc::<Shared>::default();
        let start = |sample: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || sample(&shared))
        };
        Self { samplers: vec![start(Shared::sample_oversleep), start(Shared::sample_run_queue)], shared }
    }

    /// Ends the measurement. Returns the delay of an answer for which the system is responsible: twice the longest delay
    /// of a thread, since both the thread that drives the connection and then the caller have to be woken. At most 200 ms.
    pub fn finish(self) -> Duration {
        self.finish_with(Duration::ZERO)
    }

    /// As [`finish`](Self::finish), with a delay that a task of the caller has measured on top. The sum has the same bound.
    pub(crate) fn finish_with(self, task_delay: Duration) -> Duration {
        self.shared.stop.store(true, Ordering::Relaxed);
        for sampler in self.samplers {
            sampler.join().expect("a sampler");
        }
        let delay = 2 * Duration::from_micros(self.shared.worst_us.load(Ordering::Relaxed)) + task_delay;
        if delay > MAX_ALLOWANCE {
            EXCEEDED.set(true);
        }
        delay.min(MAX_ALLOWANCE)
    }
}

impl Shared {
    /// Sleeps repeatedly and records by how much each sleep was too long.
    fn sample_oversleep(&self) {
        while !self.is_stopped() {
            let start = Instant::now();
            thread::sleep(SLEEP);
            self.record(start.elapsed().saturating_sub(SLEEP));
        }
    }

    /// Records the longest time for which a thread of this process was runnable and did not run between two samples. The
    /// scheduler delays threads that compute for longer than one that sleeps.
    fn sample_run_queue(&self) {
        let mut before = run_queue_times_us();
        while !self.is_stopped() {
            thread::sleep(SAMPLE_INTERVAL);
            let now = run_queue_times_us();
            let longest = now.iter().map(|(thread, us)| us - before.get(thread).unwrap_or(&0).min(us)).max();
            self.record(Duration::from_micros(longest.unwrap_or_default()));
            before = now;
        }
    }

    fn record(&self, delay: Duration) {
        let us = u64::try_from(delay.as_micros()).expect("a delay in microseconds");
        self.worst_us.fetch_max(us, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// How long each thread of this process has waited in a run queue since it started; empty where the system is not Linux.
fn run_queue_times_us() -> HashMap<OsString, u64> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return HashMap::new() };
    let of_thread = |thread: fs::DirEntry| {
        let statistics = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let waited_ns: u64 = statistics.split(' ').nth(1)?.parse().ok()?;
        Some((thread.file_name(), waited_ns / 1_000))
    };
    threads.flatten().filter_map(of_thread).collect()
}
