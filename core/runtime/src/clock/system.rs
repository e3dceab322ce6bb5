//! The system's wall clock.

use std::sync::OnceLock;
#[cfg(not(target_family = "wasm"))]
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(target_family = "wasm")]
use web_time::{SystemTime, UNIX_EPOCH};

use crate::counter::CounterClock;
use crate::fork;
#[cfg(target_os = "linux")]
use polylimit_rules::units::MAX_US;

/// The process-wide clock.
pub(crate) fn counter_clock() -> &'static CounterClock {
    static CLOCK: OnceLock<CounterClock> = OnceLock::new();
    fork::once(&CLOCK, || CounterClock::new(system_ns))
}

/// The time as of the kernel's last tick.
#[cfg(target_os = "linux")]
pub(crate) fn coarse_now_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    // `tv_nsec` is never negative and below a second.
    let ns = u32::try_from(time.tv_nsec).unwrap_or(0);
    match u64::try_from(time.tv_sec) {
        Ok(seconds) => (seconds.min(MAX_US / 1_000_000) * 1_000_000 + u64::from(ns / 1_000)).min(MAX_US),
        Err(_) => 0,
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn coarse_now_us() -> u64 {
    counter_clock().now_us()
}

/// The operating system's time, in nanoseconds since the Unix epoch; a clock before the epoch shows the epoch.
fn system_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_clock_shows_the_time_of_the_system() {
        for _ in 0..100_000 {
            let (before, shown, after) = (system_ns() / 1_000, counter_clock().now_us(), system_ns() / 1_000);
            assert!((before - 2..=after + 2).contains(&shown), "{before} {shown} {after}");
        }
    }

    #[test]
    fn counter_clock_advances_for_all_threads_together() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut last = counter_clock().now_us();
                    for _ in 0..100_000 {
                        let now = counter_clock().now_us();
                        assert!(now + 2 >= last, "{last} {now}");
                        last = now;
                    }
                });
            }
        });
    }

    #[test]
    fn the_coarse_clock_is_a_tick_behind_at_most() {
        let (coarse, fine) = (coarse_now_us(), counter_clock().now_us());
        assert!(fine > 1_700_000_000_000_000);
        assert!(fine.abs_diff(coarse) < 1_000_000, "{coarse} {fine}");
    }
}
