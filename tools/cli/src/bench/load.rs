//! Callers that check keys for a time, and how long each check took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use polylimit::{Limiter, Request};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::bench::zipf::KeyChoice;
use crate::exit::{Exit, Failure};

/// The longest time that is distinguished, in nanoseconds: 5 minutes.
const LONGEST_NS: u64 = 300_000_000_000;
/// How often the pace of a rate is looked at, at least.
const PACE: Duration = Duration::from_micros(50);

/// What the callers do.
pub(crate) struct Load {
    pub(crate) limiter: Limiter,
    pub(crate) policy: String,
    pub(crate) keys: KeyChoice,
    pub(crate) callers: u32,
    pub(crate) rate: Option<u32>,
    pub(crate) lasts: Duration,
    /// One bit for each key that was asked for.
    /// Whether an interrupt has ended it.
    pub(crate) interrupted: AtomicBool,
    pub(crate) asked: Vec<AtomicU64>,
}

/// What the callers have seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) latencies: Histogram<u64>,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Answers of an outage policy.
    pub(crate) undecided: u64,
    pub(crate) took: Duration,
    pub(crate) error: Option<polylimit::Error>,
}

impl Seen {
    fn new() -> Result<Self, Failure> {
        let latencies = Histogram::new_with_bounds(1, LONGEST_NS, 3)
            .map_err(|error| Failure::new(Exit::Undecided, error.to_string()))?;
        Ok(Self { latencies, allowed: 0, denied: 0, undecided: 0, took: Duration::ZERO, error: None })
    }

    fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.latencies.add(&other.latencies);
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.undecided += other.undecided;
        self.error = self.error.take().or_else(|| other.error.clone());
    }

    pub(crate) fn checks(&self) -> u64 {
        self.allowed + self.denied + self.undecided
    }
}

/// When the checks of a rate have to start.
struct Pace {
    start: Instant,
    rate: u32,
    /// The starts that are due.
    due: Semaphore,
    next: AtomicU64,
}

impl Pace {
    /// Waits for the next start, and returns when it was to be.
    async fn next_start(&self) -> Instant {
        if let Ok(permit) = self.due.acquire().await {
            permit.forget();
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.start + Duration::from_nanos(at_rate(number, self.rate))
    }

    /// Lets the starts go when they are due, until the end. A thread sleeps more exactly than a timer of the runtime.
    fn run(&self, load: &Load) {
        let (lasts, mut started) = (load.lasts, 0);
        loop {
            let elapsed = if load.is_interrupted() { lasts } else { self.start.elapsed().min(lasts) };
            let due = elapsed.as_nanos() * u128::from(self.rate) / 1_000_000_000;
            let due = usize::try_from(due).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS / 4);
            self.due.add_permits(due - started);
            started = due;
            if elapsed == lasts {
                self.due.add_permits(Semaphore::MAX_PERMITS / 2);
                return;
            }
            thread::sleep(PACE);
        }
    }
}

/// When the check of this number starts, in nanoseconds.
fn at_rate(number: u64, rate: u32) -> u64 {
    u64::try_from(u128::from(number) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX)
}

impl Load {
    /// Runs all callers to the end.
    pub(crate) fn run(self: &Arc<Self>) -> Result<Seen, Failure> {
        let runtime = runtime()?;
        let start = Instant::now();
        let pace = self
            .rate
            .map(|rate| Arc::new(Pace { start, rate, due: Semaphore::new(0), next: AtomicU64::new(0) }));
        let pacer = pace.clone().map(|pace| {
            let load = Arc::clone(self);
            thread::spawn(move || pace.run(&load))
        });
        let mut all = Seen::new()?;
        runtime.block_on(async {
            #[cfg(feature = "serve")]
            tokio::spawn(Arc::clone(self).heed_interrupt());
            let mut callers = Vec::new();
            for number in 0..u64::from(self.callers) {
                let (load, pace, seen) = (Arc::clone(self), pace.clone(), Seen::new()?);
                callers.push(tokio::spawn(load.call(number, start, pace, seen)));
            }
            for caller in callers {
                let seen = caller.await.map_err(|error| Failure::new(Exit::Undecided, error.to_string()))?;
                all.add(&seen);
            }
            Ok::<_, Failure>(())
        })?;
        all.took = start.elapsed();
        drop(pacer.map(thread::JoinHandle::join));
        Ok(all)
    }

    /// Ends the load when the program is interrupted, so that its keys are reset. Where the system does not let it be handled, an
    /// interrupt ends the program.
    #[cfg(feature = "serve")]
    async fn heed_interrupt(self: Arc<Self>) {
        if tokio::signal::ctrl_c().await.is_ok() {
            self.interrupted.store(true, Ordering::Relaxed);
        }
    }

    async fn call(
        self: Arc<Self>,
        number: u64,
        start: Instant,
        pace: Option<Arc<Pace>>,
        mut seen: Seen,
    ) -> Seen {
        let mut random = fastrand::Rng::with_seed(number);
        loop {
            let begun = match &pace {
                Some(pace) => pace.next_start().await,
                None => Instant::now(),
            };
            let is_over = begun.duration_since(start) >= self.lasts || start.elapsed() >= self.lasts;
            if is_over || self.is_interrupted() {
                return seen;
            }
            let key = self.keys.choose(&mut random);
            self.asked[key as usize / 64].fetch_or(1 << (key % 64), Ordering::Relaxed);
            match self.limiter.check(Request::new(&key.to_string()).policy(&self.policy)).await {
                Ok(decision) if decision.source().is_outage() => seen.undecided += 1,
                Ok(decision) if decision.allowed() => seen.allowed += 1,
                Ok(_) => seen.denied += 1,
                Err(error) => {
                    seen.error = Some(error);
                    return seen;
                }
            }
            let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            seen.latencies.saturating_record(took_ns.max(1));
            // A store in this process never lets other callers go by itself.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Whether the user has asked for the end by an interrupt. What was written is reset all the same.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Resets every key that was asked for, and returns how many there were.
    pub(crate) fn clean_up(self: &Arc<Self>) -> Result<u64, Failure> {
        runtime()?.block_on(async {
            let stripes = self.callers as usize;
            let tasks: Vec<_> =
                (0..stripes).map(|stripe| tokio::spawn(Arc::clone(self).reset(stripe, stripes))).collect();
            let mut keys = 0;
            for task in tasks {
                keys += task.await.map_err(|error| Failure::new(Exit::Undecided, error.to_string()))??;
            }
            Ok(keys)
        })
    }

    async fn reset(self: Arc<Self>, stripe: usize, stripes: usize) -> Result<u64, polylimit::Error> {
        let mut keys = 0;
        for (word, asked) in self.asked.iter().enumerate().skip(stripe).step_by(stripes) {
            let asked = asked.load(Ordering::Relaxed);
            for bit in (0..64).filter(|bit| asked >> bit & 1 == 1) {
                let key = (word * 64 + bit).to_string();
                self.limiter.reset(Request::new(&key).policy(&self.policy)).await?;
                keys += 1;
            }
        }
        Ok(keys)
    }
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::Undecided, error.to_string()))
}
