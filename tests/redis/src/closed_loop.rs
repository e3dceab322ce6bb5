//! A closed-loop load: each caller makes its next request when the one before is answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polylimit::Limiter;
use polylimit_test_servers::until;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::noise::Noise;
use crate::report::{LoadReport, Observation};

/// The callers of a load, their pause between two requests, and the keys that they request in turn.
#[derive(Clone, Debug)]
pub struct Load {
    limiter: Limiter,
    keys: Arc<[String]>,
    tasks: usize,
    threads: usize,
    pause: Duration,
}

/// A load whose callers are running. They stop when this is dropped.
#[derive(Debug)]
pub struct RunningLoad {
    start: Instant,
    shared: Arc<Shared>,
    callers: Vec<JoinHandle<()>>,
    noise: Option<Noise>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    observations: Mutex<Vec<Observation>>,
}

impl Load {
    /// Four tasks and two threads that each check a key every millisecond, of the keys `k0`, `k1` and so on.
    pub fn new(limiter: &Limiter, keys: usize) -> Self {
        let keys: Vec<String> = (0..keys).map(|key| format!("k{key}")).collect();
        Self::of_keys(limiter, &keys).callers(4, 2)
    }

    /// One task that checks these keys in turn, one every millisecond.
    pub fn of_keys(limiter: &Limiter, keys: &[String]) -> Self {
        let pause = Duration::from_millis(1);
        Self { limiter: limiter.clone(), keys: keys.into(), tasks: 1, threads: 0, pause }
    }

    /// Other numbers of callers.
    #[must_use]
    pub fn callers(mut self, tasks: usize, threads: usize) -> Self {
        (self.tasks, self.threads) = (tasks, threads);
        self
    }

    /// Another pause between a caller's decision and its next request.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// The keys that are requested.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Starts the callers: the tasks on a runtime of their own, each thread by itself.
    pub fn start(&self) -> RunningLoad {
        let (start, shared, noise) = (Instant::now(), Arc::<Shared>::default(), Noise::measure());
        let mut callers = Vec::new();
        if self.tasks > 0 {
            let (load, shared) = (self.clone(), Arc::clone(&shared));
            callers.push(thread::spawn(move || load.run_tasks(start, &shared)));
        }
        for number in 0..self.threads {
            let (load, shared) = (self.clone(), Arc::clone(&shared));
            callers.push(thread::spawn(move || load.run_thread(number, start, &shared)));
        }
        RunningLoad { start, shared, callers, noise: Some(noise) }
    }

    /// Runs the load for this long, and at least until `meanwhile` returns. `meanwhile` is given the start of the load.
    pub fn run<T>(&self, span: Duration, meanwhile: impl FnOnce(Instant) -> T) -> (LoadReport, T) {
        let running = self.start();
        let result = meanwhile(running.start);
        thread::sleep(span.saturating_sub(running.start.elapsed()));
        (running.finish(), result)
    }

    fn run_tasks(&self, start: Instant, shared: &Arc<Shared>) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for number in 0..self.tasks {
                let (load, shared) = (self.clone(), Arc::clone(shared));
                tasks.spawn(async move { load.run_task(number, start, &shared).await });
            }
            tasks.join_all().await;
        });
    }

    async fn run_task(&self, number: usize, start: Instant, shared: &Shared) {
        for key in self.key_numbers(number) {
            if shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let at = Instant::now();
            let decision = self.limiter.check(&self.keys[key]).await.expect("a decision");
            shared.observations().push(Observation::new(at - start, at.elapsed(), key, &decision, false));
            if self.pause.is_zero() {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(self.pause).await;
            }
        }
    }

    fn run_thread(&self, number: usize, start: Instant, shared: &Shared) {
        let limiter = self.limiter.blocking();
        for key in self.key_numbers(number) {
            if shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let at = Instant::now();
            let decision = limiter.check(&self.keys[key]).expect("a decision");
            shared.observations().push(Observation::new(at - start, at.elapsed(), key, &decision, true));
            thread::sleep(self.pause);
        }
    }

    fn key_numbers(&self, caller: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.keys.len();
        (caller..).map(move |turn| turn % count)
    }
}

impl RunningLoad {
    /// The decisions so far, in the order in which callers received them.
    pub fn observations(&self) -> MutexGuard<'_, Vec<Observation>> {
        self.shared.observations()
    }

    /// Waits until the store has answered a request that was made after this call. Returns when that was.
    pub fn until_stored(&self, bound: Duration) -> Instant {
        let from = self.start.elapsed();
        let answered = until("the store answers again", bound, || {
            let observations = self.observations();
            let recent = observations.iter().rev().take_while(|seen| seen.answered_at() >= from);
            let stored = recent.filter(|seen| seen.at() >= from && !seen.source.is_outage());
            stored.last().map(Observation::answered_at)
        });
        self.start + answered
    }

    /// Stops the callers and returns all that they saw.
    pub fn finish(mut self) -> LoadReport {
        self.join();
        let noise = self.noise.take().map_or(Duration::ZERO, Noise::finish);
        let report = LoadReport { observations: std::mem::take(&mut *self.observations()), noise };
        println!("{}", report.summary());
        report
    }

    fn join(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for caller in self.callers.drain(..) {
            caller.join().expect("a caller");
        }
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if !thread::panicking() {
            self.join();
        }
    }
}

impl Shared {
    fn observations(&self) -> MutexGuard<'_, Vec<Observation>> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
