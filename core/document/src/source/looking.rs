//! Looks at a source that are in progress. A look that never ends, over a dead connection or at a file on a file system that
//! does not answer, finds neither a change nor an error: only its duration shows the problem.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polylimit_runtime::clock::Clock;

/// How long a look may take before it is reported. The server holds a read of its log for a second.
const USUAL_US: u64 = 2_000_000;

/// Since when a look has been in progress, in microseconds since the Unix epoch; 0 while there is none.
#[derive(Debug, Default)]
pub struct Looks(AtomicU64);

/// A look in progress; it ends when this is dropped.
#[must_use = "the look ends at once"]
pub struct Looking(Arc<Looks>);

impl Looks {
    pub fn begin(self: &Arc<Self>) -> Looking {
        self.0.store(Clock::system().now_us(), Ordering::Relaxed);
        Looking(Arc::clone(self))
    }

    /// Since when a look has been in progress that should have ended.
    pub(crate) fn unended_since_us(&self, now_us: u64) -> Option<u64> {
        let since_us = self.0.load(Ordering::Relaxed);
        (since_us > 0 && now_us.saturating_sub(since_us) >= USUAL_US).then_some(since_us)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_that_does_not_end_is_reported_until_it_does() {
        let looks = Arc::new(Looks::default());
        assert_eq!(looks.unended_since_us(u64::MAX), None);
        let before_us = Clock::system().now_us();
        let looking = looks.begin();
        let since_us = looks.unended_since_us(u64::MAX).unwrap();
        assert!((before_us..before_us + 60_000_000).contains(&since_us));
        assert_eq!(looks.unended_since_us(since_us + USUAL_US - 1), None);
        assert_eq!(looks.unended_since_us(since_us + USUAL_US), Some(since_us));
        drop(looking);
        assert_eq!(looks.unended_since_us(u64::MAX), None);
    }
}
