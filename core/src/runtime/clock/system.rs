//! The system clock, read through the processor's counter.
//!
//! A call of the operating system's clock takes longer than a decision. So this clock calls it once a millisecond and in
//! between adds what the processor's counter (on x86-64 the TSC) has counted since. The two drift apart by less than a
//! tenth of a microsecond in a millisecond and are paired to a microsecond. A step of the system clock shows within a
//! millisecond.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::runtime::fork;
use crate::units::MAX_US;

/// How long the counter is used before the next call of the system clock, in microseconds.
const TRUSTED_US: u64 = 1_000;

/// How long a call of the system clock may take for its answer to belong to the counter's value, in nanoseconds. It takes
/// longer when the thread was interrupted meanwhile.
const PAIRED_NS: u64 = 1_000;

/// The process-wide clock.
pub(crate) fn counter_clock() -> &'static CounterClock {
    static CLOCK: OnceLock<CounterClock> = OnceLock::new();
    fork::once(&CLOCK, CounterClock::default)
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

/// The operating system's time, in nanoseconds since the Unix epoch.
fn system_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The last answer of the system clock, and the counter's value at that moment.
#[derive(Debug)]
pub(crate) struct CounterClock {
    counter: quanta::Clock,
    /// Microseconds per `2^32` counts: one multiplication turns counts into microseconds and `2^32`ths of one.
    scale: u64,
    /// For how many counts after a reading the counter is used.
    trusted: u64,
    /// Odd while a thread writes the other fields; readers then call the system clock themselves.
    version: AtomicU64,
    at_us: AtomicU64,
    /// The fraction of a microsecond beyond `at_us`, in `2^32`ths.
    at_fraction: AtomicU64,
    at_count: AtomicU64,
}

impl Default for CounterClock {
    fn default() -> Self {
        let counter = quanta::Clock::new();
        // A counter of 1 GHz makes this 2^32 / 1000. A counter below 1 MHz is not used.
        let scale = counter.delta_as_nanos(0, 1 << 32) / 1_000;
        let trusted = if (1..1 << 32).contains(&scale) { (TRUSTED_US << 32) / scale } else { 0 };
        Self {
            counter,
            scale,
            trusted,
            version: AtomicU64::default(),
            at_us: AtomicU64::default(),
            at_fraction: AtomicU64::default(),
            at_count: AtomicU64::default(),
        }
    }
}

impl CounterClock {
    /// Microseconds since the Unix epoch; a clock before the epoch shows the epoch.
    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        let count = self.counter.raw();
        let version = self.version.load(Ordering::Acquire);
        let at_us = self.at_us.load(Ordering::Relaxed);
        let at_fraction = self.at_fraction.load(Ordering::Relaxed);
        let at_count = self.at_count.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        // This core's counter may be a little behind the counter of the core that wrote; then no time has passed.
        let passed = count.saturating_sub(at_count);
        if whole && passed < self.trusted && at_count > 0 {
            at_us + ((at_fraction + passed * self.scale) >> 32)
        } else {
            self.resynchronize(version)
        }
    }

    /// Calls the system clock and stores its answer, unless another thread is storing one or this thread was interrupted.
    #[cold]
    fn resynchronize(&self, version: u64) -> u64 {
        let even = version & !1;
        let noting =
            self.version.compare_exchange(even, even + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let before = self.counter.raw();
        let now_ns = system_ns();
        let count = self.counter.raw();
        let micros = (now_ns / 1_000).min(MAX_US);
        if noting {
            // A reader that sees one of the new values sees the odd version as well.
            fence(Ordering::Release);
            if self.counter.delta_as_nanos(before, count) < PAIRED_NS {
                // Leaves room for what the counter adds, so that the clock never passes the latest time.
                self.at_us.store(micros.min(MAX_US - TRUSTED_US), Ordering::Relaxed);
                self.at_fraction.store(((now_ns % 1_000) << 32) / 1_000, Ordering::Relaxed);
                self.at_count.store(count, Ordering::Relaxed);
            }
            self.version.store(even + 2, Ordering::Release);
        }
        micros
    }
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
