//! Callers who ask all the time, and what they were answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polylimit::{Decision, Degradation, Limiter, Source};
use polylimit_test_servers::until;
use tokio::task::JoinSet;

use super::runtime;

/// Between two questions of one caller.
const PAUSE: Duration = Duration::from_millis(1);

/// Several callers on one runtime. They end when this is dropped.
pub(crate) struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    over: AtomicBool,
    made: Mutex<Vec<Made>>,
}

/// One decision.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) key: Arc<str>,
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
    pub(crate) allowed: bool,
    pub(crate) source: Source,
    pub(crate) degraded: Option<Degradation>,
}

impl Load {
    /// Starts so many callers, each of whom asks for its part of the keys in turn.
    pub(crate) fn start(limiter: &Limiter, keys: &[String], callers: usize) -> Self {
        let shared = Arc::new(Shared { over: AtomicBool::new(false), made: Mutex::default() });
        let (limiter, inner) = (limiter.clone(), Arc::clone(&shared));
        let part = keys.len().div_ceil(callers);
        let parts: Vec<Vec<Arc<str>>> =
            keys.chunks(part).map(|part| part.iter().map(|key| Arc::from(key.as_str())).collect()).collect();
        let thread = thread::spawn(move || {
            runtime().block_on(async {
                let callers: JoinSet<()> =
                    parts.into_iter().map(|keys| ask(limiter.clone(), keys, Arc::clone(&inner))).collect();
                callers.join_all().await;
            });
        });
        Self { shared, thread: Some(thread) }
    }

    /// What was decided so far.
    pub(crate) fn made(&self) -> Vec<Made> {
        self.shared.made.lock().unwrap().clone()
    }

    /// Waits until the store has answered a question that was asked from now on, and says when.
    pub(crate) fn until_stored(&self, bound: Duration, key: impl Fn(&str) -> bool) -> Instant {
        let from = Instant::now();
        until("the store answers again", bound, || {
            let made = self.shared.made.lock().unwrap();
            let stored = |made: &&Made| made.source == Source::Store && made.asked >= from && key(&made.key);
            // Those before are older.
            made.iter()
                .rev()
                .take_while(|made| made.answered >= from)
                .filter(stored)
                .last()
                .map(|made| made.answered)
        })
    }

    /// Ends it: all that was decided, in the order of the answers.
    pub(crate) fn end(mut self) -> Vec<Made> {
        self.join();
        std::mem::take(&mut *self.shared.made.lock().unwrap())
    }

    fn join(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.join();
        }
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

async fn ask(limiter: Limiter, keys: Vec<Arc<str>>, shared: Arc<Shared>) {
    for key in keys.iter().cycle() {
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        let asked = Instant::now();
        let decision = limiter.check(&**key).await.unwrap();
        shared.made.lock().unwrap().push(Made::new(key, asked, &decision));
        tokio::time::sleep(PAUSE).await;
    }
}

impl Made {
    fn new(key: &Arc<str>, asked: Instant, decision: &Decision) -> Self {
        Self {
            key: Arc::clone(key),
            asked,
            answered: Instant::now(),
            allowed: decision.allowed(),
            source: decision.source(),
            degraded: decision.degraded(),
        }
    }

    pub(crate) fn took(&self) -> Duration {
        self.answered - self.asked
    }
}

/// How many were admitted to the key that got most.
pub(crate) fn most_admitted(made: &[Made]) -> usize {
    let mut admitted: HashMap<&str, usize> = HashMap::new();
    for made in made.iter().filter(|made| made.allowed) {
        *admitted.entry(&made.key).or_default() += 1;
    }
    admitted.into_values().max().unwrap_or(0)
}

/// The longest time in which the store answered nobody.
pub(crate) fn longest_gap(made: &[Made]) -> Duration {
    let stored: Vec<Instant> =
        made.iter().filter(|made| made.source == Source::Store).map(|made| made.answered).collect();
    stored.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(Duration::MAX)
}

/// The longest time that a decision took.
pub(crate) fn slowest(made: &[Made]) -> Duration {
    made.iter().map(Made::took).max().unwrap_or_default()
}
