//! As many decisions as the machine gives, asked whether or not the ones before were answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polylimit::{Decision, Error, Limiter};
use tokio::runtime::Builder;

use crate::noise::Noise;

/// So many decisions are asked for at once.
const AT_ONCE: usize = 25;
/// So many tasks do so, each this often.
const TASKS: usize = 2;
const TICK: Duration = Duration::from_millis(1);
/// Who could not run for a while asks for so many ticks at most when it can.
const CATCH_UP: u32 = 5;

/// Tasks that ask for 50,000 decisions a second, and a thread that waits for each of its own.
#[derive(Debug)]
pub struct Flood {
    shared: Arc<Shared>,
    callers: Vec<JoinHandle<()>>,
    noise: Noise,
}

#[derive(Debug)]
struct Shared {
    limiter: Limiter,
    keys: Vec<String>,
    open: AtomicBool,
    over: AtomicBool,
    asked: AtomicU64,
    answered: AtomicU64,
    admitted: AtomicU64,
    sound: AtomicU64,
    slowest_us: AtomicU64,
    /// How late a task that does nothing was: as late are those who ask for more than the machine gives.
    behind_us: AtomicU64,
}

/// What came of it.
#[derive(Debug)]
pub struct Flooded {
    /// How many decisions were asked for; all were answered.
    pub asked: u64,
    /// How many requests the store admitted.
    pub admitted: u64,
    /// The longest that a decision took.
    pub slowest: Duration,
    /// How late the system let threads run meanwhile.
    pub noise: Duration,
}

impl Flood {
    /// Begins to ask for decisions of so many keys.
    pub fn on(limiter: &Limiter, keys: usize) -> Self {
        let shared = Arc::new(Shared {
            limiter: limiter.clone(),
            keys: (0..keys).map(|key| format!("k{key}")).collect(),
            open: AtomicBool::new(true),
            over: AtomicBool::default(),
            asked: AtomicU64::default(),
            answered: AtomicU64::default(),
            admitted: AtomicU64::default(),
            sound: AtomicU64::default(),
            slowest_us: AtomicU64::default(),
            behind_us: AtomicU64::default(),
        });
        let (tasks, waiting) = (Arc::clone(&shared), Arc::clone(&shared));
        let callers =
            vec![thread::spawn(move || run_tasks(&tasks)), thread::spawn(move || wait_for_each(&waiting))];
        Self { shared, callers, noise: Noise::watch() }
    }

    /// Stops asking, or goes on.
    pub fn set_open(&self, open: bool) {
        self.shared.open.store(open, Relaxed);
    }

    /// How many decisions the store has made in good health so far.
    pub fn sound(&self) -> u64 {
        self.shared.sound.load(Relaxed)
    }

    /// How many were asked for so far.
    pub fn asked(&self) -> u64 {
        self.shared.asked.load(Relaxed)
    }

    /// The keys that are asked of.
    pub fn keys(&self) -> &[String] {
        &self.shared.keys
    }

    /// Ends it when all are answered.
    pub fn end(self) -> Flooded {
        self.shared.over.store(true, Relaxed);
        for caller in self.callers {
            caller.join().expect("a caller");
        }
        let Shared { asked, answered, admitted, slowest_us, behind_us, .. } = &*self.shared;
        assert_eq!(asked.load(Relaxed), answered.load(Relaxed));
        let flooded = Flooded {
            asked: asked.load(Relaxed),
            admitted: admitted.load(Relaxed),
            slowest: Duration::from_micros(slowest_us.load(Relaxed)),
            noise: self.noise.end() + Duration::from_micros(behind_us.load(Relaxed)),
        };
        println!("{flooded:?}");
        flooded
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// The keys of the decisions that are asked for next.
    fn some_keys(&self) -> impl Iterator<Item = &String> {
        let first = usize::try_from(self.asked.fetch_add(AT_ONCE as u64, Relaxed)).expect("not that many");
        (first..first + AT_ONCE).map(|at| &self.keys[at % self.keys.len()])
    }

    fn count(&self, began: Instant, decisions: Vec<Result<Decision, Error>>) {
        let took = began.elapsed();
        let decisions: Vec<_> = decisions.into_iter().map(|decision| decision.expect("a decision")).collect();
        let by_store = decisions.iter().filter(|decision| !decision.source().is_outage());
        let (sound, admitted) =
            by_store.fold((0, 0), |(sound, admitted), it| (sound + 1, admitted + u64::from(it.allowed())));
        self.sound.fetch_add(sound, Relaxed);
        self.admitted.fetch_add(admitted, Relaxed);
        self.answered.fetch_add(decisions.len() as u64, Relaxed);
        self.slowest_us.fetch_max(u64::try_from(took.as_micros()).expect("not that long"), Relaxed);
    }
}

fn run_tasks(shared: &Arc<Shared>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(ask_at_each_tick(Arc::clone(shared)))).collect();
        while !shared.is_over() {
            let start = Instant::now();
            tokio::spawn(tokio::time::sleep(TICK)).await.expect("a task");
            let behind = start.elapsed().saturating_sub(2 * TICK);
            shared.behind_us.fetch_max(u64::try_from(behind.as_micros()).expect("not that long"), Relaxed);
        }
        for task in tasks {
            task.await.expect("a task");
        }
    });
}

async fn ask_at_each_tick(shared: Arc<Shared>) {
    let mut asking = tokio::task::JoinSet::new();
    let mut next = Instant::now();
    while !shared.is_over() {
        next = next.max(Instant::now().checked_sub(TICK * CATCH_UP).expect("an uptime"));
        while next <= Instant::now() {
            next += TICK;
            if shared.is_open() {
                let shared = Arc::clone(&shared);
                asking.spawn(async move {
                    let began = Instant::now();
                    let decisions = shared.limiter.check_many(shared.some_keys()).await;
                    shared.count(began, decisions);
                });
            }
        }
        while asking.try_join_next().is_some() {}
        tokio::time::sleep_until(next.into()).await;
    }
    asking.join_all().await;
}

fn wait_for_each(shared: &Shared) {
    let limiter = shared.limiter.blocking();
    while !shared.is_over() {
        if shared.is_open() {
            let began = Instant::now();
            let decisions = limiter.check_many(shared.some_keys());
            shared.count(began, decisions);
        }
        thread::sleep(TICK);
    }
}
