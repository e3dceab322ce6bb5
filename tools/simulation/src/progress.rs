//! How far a simulation is.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far a simulation is, for another thread that shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// The simulated time of all runs together; 0 until the requests are known.
    total_us: AtomicU64,
    done_us: AtomicU64,
}

impl Progress {
    /// The share that is done, in percent: 0 while a log is read.
    pub fn percent(&self) -> u64 {
        let (done, total) = (self.done_us.load(Ordering::Relaxed), self.total_us.load(Ordering::Relaxed));
        done.saturating_mul(100).checked_div(total).unwrap_or(0).min(100)
    }

    pub(crate) fn expect(&self, total_us: u64) {
        self.total_us.store(total_us, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, done_us: u64) {
        self.done_us.fetch_add(done_us, Ordering::Relaxed);
    }
}
