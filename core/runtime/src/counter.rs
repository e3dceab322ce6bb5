//! A clock of the operating system, read through the processor's counter.
//!
//! A call of the operating system's clock takes longer than a decision. So this clock calls it once a millisecond and in
//! between adds what the processor's counter (on x86-64 the TSC) has counted since. The two drift apart by less than a
//! tenth of a microsecond in a millisecond and are paired to a microsecond. A step of the system's clock shows within a
//! millisecond.
//!
//! The counter may go back: after a suspension, a migration to another host or the restoration of a snapshot it can be
//! lower than before. A value below the last pair says nothing about the time that has passed, so that the system's clock
//! is called again.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use polylimit_rules::units::MAX_US;

/// How long the counter is used before the next call of the system's clock, in microseconds.
const TRUSTED_US: u64 = 1_000;

/// How long a call of the system's clock may take for its answer to belong to the counter's value, in nanoseconds. It takes
/// longer when the thread was interrupted meanwhile.
const PAIRED_NS: u64 = 1_000;

/// The last answer of the system's clock, and the counter's value at that moment.
#[derive(Debug)]
pub(crate) struct CounterClock {
    counter: quanta::Clock,
    /// The system's clock, in nanoseconds.
    system_ns: fn() -> u64,
    /// Microseconds per `2^32` counts: one multiplication turns counts into microseconds and `2^32`ths of one.
    scale: u64,
    /// For how many counts after a reading the counter is used.
    trusted: u64,
    /// Odd while a thread writes the other fields; readers then call the system's clock themselves.
    version: AtomicU64,
    at_us: AtomicU64,
    /// The fraction of a microsecond beyond `at_us`, in `2^32`ths.
    at_fraction: AtomicU64,
    at_count: AtomicU64,
}

impl CounterClock {
    pub(crate) fn new(system_ns: fn() -> u64) -> Self {
        Self::of(quanta::Clock::new(), system_ns)
    }

    fn of(counter: quanta::Clock, system_ns: fn() -> u64) -> Self {
        // A counter of 1 GHz makes this 2^32 / 1000. A counter below 1 MHz is not used.
        let scale = counter.delta_as_nanos(0, 1 << 32) / 1_000;
        let trusted = if (1..1 << 32).contains(&scale) { (TRUSTED_US << 32) / scale } else { 0 };
        Self {
            counter,
            system_ns,
            scale,
            trusted,
            version: AtomicU64::default(),
            at_us: AtomicU64::default(),
            at_fraction: AtomicU64::default(),
            at_count: AtomicU64::default(),
        }
    }

    /// Microseconds of the system's clock.
    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        let count = self.counter.raw();
        let version = self.version.load(Ordering::Acquire);
        let at_us = self.at_us.load(Ordering::Relaxed);
        let at_fraction = self.at_fraction.load(Ordering::Relaxed);
        let at_count = self.at_count.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        // A counter below the last pair wraps to more than is trusted: it went back, or it is another core's and a little
        // behind.
        let passed = count.wrapping_sub(at_count);
        if whole && passed < self.trusted && at_count > 0 {
            at_us + ((at_fraction + passed * self.scale) >> 32)
        } else {
            self.resynchronize(version)
        }
    }

    /// Calls the system's clock and stores its answer, unless another thread is storing one or this thread was interrupted.
    #[cold]
    fn resynchronize(&self, version: u64) -> u64 {
        let even = version & !1;
        let noting =
            self.version.compare_exchange(even, even + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let before = self.counter.raw();
        let now_ns = (self.system_ns)();
        let count = self.counter.raw();
        let micros = (now_ns / 1_000).min(MAX_US);
        if noting {
            // A reader that sees one of the new values sees the odd version as well.
            fence(Ordering::Release);
            if before <= count && self.counter.delta_as_nanos(before, count) < PAIRED_NS {
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

    /// As after a suspension, a migration or the restoration of a snapshot: the counter starts again from a low value.
    #[test]
    fn counter_that_goes_back_does_not_stop_the_clock() {
        static SYSTEM_NS: AtomicU64 = AtomicU64::new(5_000_000_000);
        let (counter, mock) = quanta::Clock::mock();
        mock.increment(1_000_000_000_000_u64);
        let clock = CounterClock::of(counter, || SYSTEM_NS.load(Ordering::Relaxed));
        // A count is rounded down to a microsecond.
        let shows = |us: u64| assert!(us - clock.now_us() <= 1, "{us}");
        let pass = |ns: u64| {
            mock.increment(ns);
            SYSTEM_NS.fetch_add(ns, Ordering::Relaxed);
        };
        shows(5_000_000);
        pass(500_000);
        shows(5_000_500);
        mock.decrement(999_000_000_000_u64);
        for milliseconds in 1..=100 {
            pass(1_000_000);
            shows(5_000_500 + milliseconds * 1_000);
        }
        // Between two calls of the system's clock the counter goes on.
        mock.increment(300_000_u64);
        shows(5_100_800);
        // Forward by as much: what the system's clock shows counts, not the counter.
        mock.increment(999_000_000_000_u64);
        shows(5_100_500);
    }

    /// A clock of the system that an administrator sets, or that is corrected after hours of suspension.
    #[test]
    fn steps_of_the_systems_clock_show_within_a_millisecond() {
        static SYSTEM_NS: AtomicU64 = AtomicU64::new(0);
        const START_NS: u64 = 1_790_000_000_000_000_000;
        const HOUR_NS: u64 = 3_600_000_000_000;
        let (counter, mock) = quanta::Clock::mock();
        mock.increment(1_000_u64);
        let clock = CounterClock::of(counter, || SYSTEM_NS.load(Ordering::Relaxed));
        for shown_ns in [START_NS, START_NS + HOUR_NS, START_NS, START_NS - HOUR_NS] {
            SYSTEM_NS.store(shown_ns, Ordering::Relaxed);
            mock.increment(TRUSTED_US * 1_000);
            assert_eq!(clock.now_us(), shown_ns / 1_000);
        }
    }
}
