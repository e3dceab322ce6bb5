//! Runs many seeds on several threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::run::{Report, run};
use crate::schedule::Schedule;

/// How often a seed may be seen running. A seed takes a fraction of a second; a limiter that spins stops the simulated time.
const MAX_LOOKS: u32 = 3_000;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What many seeds have shown.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many seeds ran.
    pub seeds: u64,
    /// How many operations the servers executed.
    pub executed: u64,
    /// How many operations were answered by each source.
    pub sources: BTreeMap<&'static str, u64>,
    /// The seeds that failed, in no order.
    pub failed: Vec<Report>,
}

/// Runs seeds on this number of threads. The run ends early when several have failed.
pub fn run_all(seeds: Range<u64>, threads: usize) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let is_enough = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    let running = Mutex::new(BTreeMap::new());
    let left = AtomicU64::new(threads as u64);
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&running, &left));
        for _ in 0..threads {
            scope.spawn(|| {
                let _left = Left(&left);
                while !is_enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    running.lock().unwrap().insert(seed, 0);
                    let report = run(seed);
                    running.lock().unwrap().remove(&seed);
                    let mut summary = summary.lock().unwrap();
                    summary.seeds += 1;
                    summary.executed += report.executed;
                    for (name, count) in &report.sources {
                        *summary.sources.entry(name).or_default() += count;
                    }
                    if !report.violations.is_empty() {
                        summary.failed.push(report);
                        is_enough.store(summary.failed.len() >= 5, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    summary.into_inner().unwrap()
}

/// A thread that runs seeds.
struct Left<'a>(&'a AtomicU64);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Ends the program when a seed does not end. It counts looks, not time, so that a suspended program is not ended.
fn watch(running: &Mutex<BTreeMap<u64, u32>>, left: &AtomicU64) {
    while left.load(Ordering::Relaxed) > 0 {
        std::thread::sleep(LOOK_EVERY);
        for (seed, looks) in &mut *running.lock().unwrap() {
            *looks += 1;
            if *looks > MAX_LOOKS {
                println!("seed {seed}: 1 violations:\n  it does not end\n{}", Schedule::of(*seed));
                std::process::exit(1);
            }
        }
    }
}

/// A failed seed as people read it: what did not hold, how to repeat it, and its schedule, which is a file for `failures` as it is.
pub fn describe(report: &Report) -> String {
    let Report { schedule, violations, .. } = report;
    let shown: Vec<&str> = violations.iter().take(10).map(String::as_str).collect();
    let seed = schedule.seed;
    format!(
        "seed {seed}: {} violations:\n  {}\nrepeat it with: cargo run --profile simulation -p polylimit-fault-simulation -- --seed {seed}\n\
         keep it as a test: tests/simulation/failures/{seed}.toml\n{schedule}",
        violations.len(),
        shown.join("\n  "),
    )
}
