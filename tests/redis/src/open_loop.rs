//! An open-loop load: callers make requests at a fixed rate, whether or not earlier ones have been answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polylimit::{Decision, Error, Limiter};
use polylimit_test_servers::Row;
use tokio::runtime::Builder;

use crate::noise::Noise;

/// Requests of one call of `check_many`.
const BATCH: usize = 25;
/// Tasks that each make such a call in every tick.
const TASKS: usize = 2;
const TICK: Duration = Duration::from_millis(1);
/// The most ticks for which a task makes up after it could not run for a while.
const MAX_CATCH_UP: u32 = 5;

/// Tasks that request 50,000 decisions a second, and a thread that waits for each of its own.
#[derive(Debug)]
pub struct OpenLoopLoad {
    shared: Arc<Shared>,
    callers: Vec<JoinHandle<()>>,
    noise: Noise,
}

#[derive(Debug)]
struct Shared {
    limiter: Limiter,
    keys: Vec<String>,
    open: AtomicBool,
    stop: AtomicBool,
    requested: AtomicU64,
    answered: AtomicU64,
    admitted: AtomicU64,
    by_store: AtomicU64,
    slowest_us: AtomicU64,
    /// How late a task that only sleeps was. The tasks that make requests are as late, since they request more than the
    /// machine can decide.
    task_delay_us: AtomicU64,
}

/// The result of the load.
#[derive(Debug)]
pub struct OpenLoopReport {
    /// How many decisions were requested; all were answered.
    pub requested: u64,
    /// How many requests the store admitted.
    pub admitted: u64,
    /// The longest time that a decision took.
    pub slowest: Duration,
    /// How late the system ran threads meanwhile.
    pub noise: Duration,
}

impl OpenLoopLoad {
    /// Starts to request decisions for this number of keys.
    pub fn start(limiter: &Limiter, keys: usize) -> Self {
        let shared = Arc::new(Shared {
            limiter: limiter.clone(),
            keys: (0..keys).map(|key| format!("k{key}")).collect(),
            open: AtomicBool::new(true),
            stop: AtomicBool::default(),
            requested: AtomicU64::default(),
            answered: AtomicU64::default(),
            admitted: AtomicU64::default(),
            by_store: AtomicU64::default(),
            slowest_us: AtomicU64::default(),
            task_delay_us: AtomicU64::default(),
        });
        let (of_tasks, of_thread) = (Arc::clone(&shared), Arc::clone(&shared));
        let callers =
            vec![thread::spawn(move || run_tasks(&of_tasks)), thread::spawn(move || run_thread(&of_thread))];
        Self { shared, callers, noise: Noise::measure() }
    }

    /// Pauses the requests, or resumes them.
    pub fn set_open(&self, open: bool) {
        self.shared.open.store(open, Relaxed);
    }

    /// How many decisions the store has made so far.
    pub fn by_store(&self) -> u64 {
        self.shared.by_store.load(Relaxed)
    }

    /// How many decisions were requested so far.
    pub fn requested(&self) -> u64 {
        self.shared.requested.load(Relaxed)
    }

    /// The keys that are requested.
    pub fn keys(&self) -> &[String] {
        &self.shared.keys
    }

    /// Stops the callers when all requests are answered.
    pub fn finish(self) -> OpenLoopReport {
        self.shared.stop.store(true, Relaxed);
        for caller in self.callers {
            caller.join().expect("a caller");
        }
        let Shared { requested, answered, admitted, slowest_us, task_delay_us, .. } = &*self.shared;
        assert_eq!(requested.load(Relaxed), answered.load(Relaxed));
        let report = OpenLoopReport {
            requested: requested.load(Relaxed),
            admitted: admitted.load(Relaxed),
            slowest: Duration::from_micros(slowest_us.load(Relaxed)),
            noise: self.noise.finish_with(Duration::from_micros(task_delay_us.load(Relaxed))),
        };
        println!("{report:?}");
        report
    }
}

impl OpenLoopReport {
    /// A record of this load for a row of `docs/faults.md`; see [`Row`]. Requests that the outage policy admitted are not
    /// in its number of admitted ones.
    #[track_caller]
    pub fn row(&self, id: &str, case: impl Into<String>, deadline: Duration) -> Row {
        Row::new(id, case)
            .decisions(self.requested)
            .admitted(self.admitted)
            .slowest(self.slowest, deadline)
            .noise(self.noise)
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// The keys of the next batch.
    fn next_keys(&self) -> impl Iterator<Item = &String> {
        let first =
            usize::try_from(self.requested.fetch_add(BATCH as u64, Relaxed)).expect("a count of 64 bits");
        (first..first + BATCH).map(|at| &self.keys[at % self.keys.len()])
    }

    fn record(&self, start: Instant, decisions: Vec<Result<Decision, Error>>) {
        let took = start.elapsed();
        let decisions: Vec<_> = decisions.into_iter().map(|decision| decision.expect("a decision")).collect();
        let by_store = decisions.iter().filter(|decision| !decision.source().is_outage());
        let (count, admitted) =
            by_store.fold((0, 0), |(count, admitted), it| (count + 1, admitted + u64::from(it.allowed())));
        self.by_store.fetch_add(count, Relaxed);
        self.admitted.fetch_add(admitted, Relaxed);
        self.answered.fetch_add(decisions.len() as u64, Relaxed);
        self.slowest_us.fetch_max(micros(took), Relaxed);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a duration in microseconds")
}

fn run_tasks(shared: &Arc<Shared>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let tasks: Vec<_> =
            (0..TASKS).map(|_| tokio::spawn(request_at_each_tick(Arc::clone(shared)))).collect();
        while !shared.is_stopped() {
            let start = Instant::now();
            tokio::spawn(tokio::time::sleep(TICK)).await.expect("a task");
            shared.task_delay_us.fetch_max(micros(start.elapsed().saturating_sub(2 * TICK)), Relaxed);
        }
        for task in tasks {
            task.await.expect("a task");
        }
    });
}

async fn request_at_each_tick(shared: Arc<Shared>) {
    let mut pending = tokio::task::JoinSet::new();
    let mut next = Instant::now();
    while !shared.is_stopped() {
        next = next.max(Instant::now().checked_sub(TICK * MAX_CATCH_UP).expect("an uptime"));
        while next <= Instant::now() {
            next += TICK;
            if shared.is_open() {
                let shared = Arc::clone(&shared);
                pending.spawn(async move {
                    let start = Instant::now();
                    let decisions = shared.limiter.check_many(shared.next_keys()).await;
                    shared.record(start, decisions);
                });
            }
        }
        while pending.try_join_next().is_some() {}
        tokio::time::sleep_until(next.into()).await;
    }
    pending.join_all().await;
}

fn run_thread(shared: &Shared) {
    let limiter = shared.limiter.blocking();
    while !shared.is_stopped() {
        if shared.is_open() {
            let start = Instant::now();
            let decisions = limiter.check_many(shared.next_keys());
            shared.record(start, decisions);
        }
        thread::sleep(TICK);
    }
}
