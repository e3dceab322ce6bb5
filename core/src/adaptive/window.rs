//! The calls that end in one window, summed up.

/// Fewer calls are no measurement: one slow call among three says little. As in Netflix's `WindowedLimit`.
const MIN_CALLS: u64 = 10;
/// The longest latency that counts, 2^42 microseconds or 50 days, and the number of calls: sums stay below 2^63.
const MAX_LATENCY_US: u64 = 1 << 42;
const MAX_CALLS: u64 = 1 << 21;

#[derive(Debug)]
pub(super) struct Window {
    length_us: u64,
    tolerated_percent: u64,
    start_us: u64,
    succeeded: u64,
    failed: u64,
    /// Of those that succeeded: a failure may be much faster than any work.
    latencies_us: u64,
}

/// The result of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measurement {
    /// The mean latency of calls that succeeded, if there were any: in nanoseconds, because calls may take only a few microseconds. At
    /// most 2^52.
    pub(super) mean_ns: Option<u64>,
    /// Whether more calls failed than are tolerated.
    pub(super) is_overloaded: bool,
    /// Whether at least half of the limit was used.
    pub(super) is_limiting: bool,
}

impl Window {
    pub(super) fn new(length_us: u64, tolerated_percent: u64, start_us: u64) -> Self {
        Self { length_us, tolerated_percent, start_us, succeeded: 0, failed: 0, latencies_us: 0 }
    }

    pub(super) fn add(&mut self, now_us: u64, latency_us: u64, failed: bool) {
        if now_us < self.start_us {
            // A manual clock went back: what it measured means nothing.
            *self = Self::new(self.length_us, self.tolerated_percent, now_us);
        }
        // A window this full ends with the next call that ends after its time.
        if self.calls() >= MAX_CALLS {
            return;
        }
        if failed {
            self.failed += 1;
        } else {
            self.succeeded += 1;
            self.latencies_us += latency_us.min(MAX_LATENCY_US);
        }
    }

    fn calls(&self) -> u64 {
        self.succeeded + self.failed
    }

    pub(super) fn is_complete(&self, now_us: u64) -> bool {
        self.calls() >= MIN_CALLS && now_us.saturating_sub(self.start_us) >= self.length_us
    }

    /// The result; the next window starts now.
    pub(super) fn finish(&mut self, now_us: u64, is_limiting: bool) -> Measurement {
        let mean_ns = (u128::from(self.latencies_us) * 1000).checked_div(u128::from(self.succeeded));
        let measurement = Measurement {
            mean_ns: mean_ns.and_then(|mean_ns| u64::try_from(mean_ns).ok()),
            is_overloaded: self.failed * 100 > self.calls() * self.tolerated_percent,
            is_limiting,
        };
        *self = Self::new(self.length_us, self.tolerated_percent, now_us);
        measurement
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_needs_its_time_and_ten_calls() {
        let mut window = Window::new(100, 5, 0);
        for _ in 0..9 {
            window.add(200, 3, false);
            assert!(!window.is_complete(200));
        }
        window.add(50, 3, false);
        assert!(!window.is_complete(99));
        assert!(window.is_complete(100));
        assert_eq!(
            window.finish(100, true),
            Measurement { mean_ns: Some(3000), is_overloaded: false, is_limiting: true }
        );
        assert!(!window.is_complete(10_000));
    }

    #[test]
    fn mean_of_short_calls_is_not_rounded_to_a_microsecond() {
        let mut window = Window::new(1, 5, 0);
        (0..10).for_each(|call| window.add(1, 1 + call % 2, false));
        assert_eq!(window.finish(1, true).mean_ns, Some(1500));
    }

    #[test]
    fn more_failures_than_tolerated_are_an_overload_and_no_latency() {
        for (failed, is_overloaded) in [(5, false), (6, true), (100, true)] {
            let mut window = Window::new(1, 5, 0);
            for call in 0..100 {
                let failed = call < failed;
                window.add(1, if failed { 0 } else { 7 }, failed);
            }
            let measurement = window.finish(1, false);
            assert_eq!(measurement.is_overloaded, is_overloaded, "{failed}");
            assert_eq!(measurement.mean_ns, (failed < 100).then_some(7000));
        }
    }

    #[test]
    fn window_starts_again_when_the_clock_goes_back() {
        let mut window = Window::new(100, 5, 1_000_000);
        (0..10).for_each(|_| window.add(1_000_050, 1, true));
        window.add(10, 4, false);
        assert_eq!(window.calls(), 1);
        (0..9).for_each(|_| window.add(110, 4, false));
        assert!(window.is_complete(110));
    }

    #[test]
    fn sums_stay_in_range() {
        let mut window = Window::new(1, 5, 0);
        for _ in 0..=MAX_CALLS {
            window.add(0, u64::MAX, false);
        }
        assert_eq!(window.finish(5, false).mean_ns, Some(MAX_LATENCY_US * 1000));
    }
}
