//! Waiting for something to come about, for so long and no longer.

use std::thread::sleep;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(5);

/// Polls `probe` until it returns a value, and panics when that takes longer than `bound`.
pub fn until<T>(what: &str, bound: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = probe() {
            return answer;
        }
        assert!(start.elapsed() < bound, "timed out after {bound:?}: {what}");
        sleep(STEP);
    }
}
