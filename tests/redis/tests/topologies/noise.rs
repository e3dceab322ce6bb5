//! How late this machine is in giving a thread its turn: what no program can be blamed for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(1);

/// Watches until it is asked.
pub(crate) struct Noise {
    over: Arc<AtomicBool>,
    watcher: JoinHandle<Duration>,
}

impl Noise {
    pub(crate) fn watch() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let watcher = thread::spawn(move || {
            let mut worst = Duration::ZERO;
            while !told.load(Ordering::Relaxed) {
                let start = Instant::now();
                thread::sleep(NAP);
                worst = worst.max(start.elapsed().saturating_sub(NAP));
            }
            worst
        });
        Self { over, watcher }
    }

    /// The longest time by which a thread that slept was late.
    pub(crate) fn worst(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        self.watcher.join().unwrap()
    }
}
