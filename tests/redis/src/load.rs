//! Callers of both faces that keep asking while a test does something to the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polylimit::Limiter;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::noise::Noise;
use crate::story::{Asked, Story};

/// Who asks, how often, and of which keys.
#[derive(Clone, Debug)]
pub struct Load {
    limiter: Limiter,
    keys: Vec<String>,
    tasks: usize,
    threads: usize,
    pause: Duration,
}

impl Load {
    /// Four tasks and two threads that each ask every millisecond, of `keys` keys in turn.
    pub fn on(limiter: &Limiter, keys: usize) -> Self {
        Self {
            limiter: limiter.clone(),
            keys: (0..keys).map(|key| format!("k{key}")).collect(),
            tasks: 4,
            threads: 2,
            pause: Duration::from_millis(1),
        }
    }

    /// Other numbers of callers.
    #[must_use]
    pub fn callers(mut self, tasks: usize, threads: usize) -> Self {
        (self.tasks, self.threads) = (tasks, threads);
        self
    }

    /// Another pause between a caller's answer and its next question.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// The keys that are asked of.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Asks for this long, and at least until `meanwhile` is over. That is told when the asking began.
    pub fn run<T>(&self, span: Duration, meanwhile: impl FnOnce(Instant) -> T) -> (Story, T) {
        let (start, over) = (Instant::now(), AtomicBool::new(false));
        let noise = Noise::watch();
        thread::scope(|scope| {
            let over = &over;
            let tasks = (self.tasks > 0).then(|| scope.spawn(move || self.tasks(start, over)));
            let threads: Vec<_> = (0..self.threads)
                .map(|number| scope.spawn(move || self.thread(number, start, over)))
                .collect();
            let told = meanwhile(start);
            thread::sleep(span.saturating_sub(start.elapsed()));
            over.store(true, Ordering::Relaxed);
            let asked = tasks.into_iter().chain(threads).flat_map(|caller| caller.join().expect("a caller"));
            let story = Story { asked: asked.collect(), noise: noise.end() };
            println!("{}", story.told());
            (story, told)
        })
    }

    /// The tasks, on a runtime of their own.
    fn tasks(&self, start: Instant, over: &AtomicBool) -> Vec<Asked> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let ended = std::sync::Arc::new(AtomicBool::new(false));
            for number in 0..self.tasks {
                let (load, ended) = (self.clone(), std::sync::Arc::clone(&ended));
                tasks.spawn(async move { load.task(number, start, &ended).await });
            }
            while !over.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            ended.store(true, Ordering::Relaxed);
            tasks.join_all().await.into_iter().flatten().collect()
        })
    }

    async fn task(&self, number: usize, start: Instant, over: &AtomicBool) -> Vec<Asked> {
        let mut asked = Vec::new();
        for turn in number.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let key = turn % self.keys.len();
            let at = Instant::now();
            let decision = self.limiter.check(&self.keys[key]).await.expect("a decision");
            asked.push(Asked::new(at - start, at.elapsed(), key, &decision, false));
            if self.pause.is_zero() {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(self.pause).await;
            }
        }
        asked
    }

    fn thread(&self, number: usize, start: Instant, over: &AtomicBool) -> Vec<Asked> {
        let limiter = self.limiter.blocking();
        let mut asked = Vec::new();
        for turn in number.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let key = turn % self.keys.len();
            let at = Instant::now();
            let decision = limiter.check(&self.keys[key]).expect("a decision");
            asked.push(Asked::new(at - start, at.elapsed(), key, &decision, true));
            thread::sleep(self.pause);
        }
        asked
    }
}
