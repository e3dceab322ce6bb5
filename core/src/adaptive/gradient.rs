//! The gradient of latency: Netflix's `Gradient2Limit`, whose formulas its documentation gives, in integers.
//!
//! With L the limit, S the mean latency of the window, B the baseline, and q the queue that is allowed:
//!
//! ```text
//! g  = B / S, at least 1/2 and at most 1
//! L' = L + (L * g + q - L) / 5
//! ```
//!
//! Without a queue g is 1, and L grows by q / 5. With one, L settles where L * (1 - g) = q. For a service with k workers and the
//! service time s, S = L * s / k and B = s, so L = k + q: all workers are busy, and q calls wait. Worked example, k = 10, q = 4: at
//! L = 14, g = 10/14, and L' = 14 + (10 + 4 - 14) / 5 = 14.

use crate::adaptive::thousandths::{MILLI, shrunk};
use crate::adaptive::window::Measurement;

/// The baseline is the mean of the first windows, and then moves to each window by a 6,000th: at 100 ms each, that is ten
/// minutes, as is the default of `Gradient2Limit`.
const FIRST_WINDOWS: i64 = 10;
const WINDOWS: i64 = 6000;

/// The calls that may wait: the default of `Gradient2Limit`.
const QUEUE: u64 = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Gradient {
    /// In nanoseconds, so that a 6,000th of a difference is rarely lost.
    baseline_ns: i64,
    /// Windows that the baseline has seen, up to the first ones.
    windows: i64,
}

impl Gradient {
    pub(super) fn after(&mut self, limit_milli: u64, measurement: &Measurement) -> u64 {
        let gradient_milli = measurement.mean_ns.map(|mean_ns| self.gradient_milli(mean_ns));
        if measurement.is_overloaded {
            return shrunk(limit_milli);
        }
        // Where the limit is not the constraint, a longer latency is not caused by a queue behind it.
        let Some(gradient_milli) = gradient_milli.filter(|_| measurement.is_limiting) else {
            return limit_milli;
        };
        let target = limit_milli / MILLI * gradient_milli + limit_milli % MILLI * gradient_milli / MILLI;
        limit_milli / 5 * 4 + limit_milli % 5 * 4 / 5 + (target + QUEUE * MILLI) / 5
    }

    /// The gradient in thousandths, 500 to 1000.
    fn gradient_milli(&mut self, mean_ns: u64) -> u64 {
        // Windows have means of at most 2^52. One of zero would be no divisor.
        let mean_ns = i64::try_from(mean_ns.max(1)).unwrap_or(i64::MAX);
        let divisor = if self.windows < FIRST_WINDOWS {
            self.windows += 1;
            self.windows
        } else {
            WINDOWS
        };
        self.baseline_ns += (mean_ns - self.baseline_ns) / divisor;
        // After an overload that the baseline has learned, or a slow start: it returns within seconds instead of minutes.
        if self.baseline_ns / 2 > mean_ns {
            self.baseline_ns = self.baseline_ns / 10 * 9;
        }
        let gradient = i128::from(self.baseline_ns) * 1000 / i128::from(mean_ns);
        u64::try_from(gradient.clamp(500, 1000)).unwrap_or(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(mean_us: u64) -> Measurement {
        Measurement { mean_ns: Some(mean_us.saturating_mul(1000)), is_overloaded: false, is_limiting: true }
    }

    /// A baseline of 100 ms.
    fn learned() -> Gradient {
        let mut gradient = Gradient::default();
        for _ in 0..FIRST_WINDOWS {
            gradient.after(10_000, &measured(100_000));
        }
        assert_eq!(gradient.baseline_ns, 100_000_000);
        gradient
    }

    #[test]
    fn worked_example_settles_at_workers_and_queue() {
        // 10 workers, 100 ms each: 14 calls take 140 ms.
        assert_eq!(learned().after(14_000, &measured(140_000)), 13_999);
        for start in [10_000, 40_000] {
            let mut gradient = learned();
            let mut limit = start;
            for _ in 0..200 {
                limit = gradient.after(limit, &measured(limit.max(10_000) * 10));
            }
            assert!((13_500..=15_000).contains(&limit), "{limit}");
        }
    }

    #[test]
    fn limit_grows_by_a_fifth_of_the_queue_without_one() {
        assert_eq!(learned().after(20_000, &measured(100_000)), 20_800);
        assert_eq!(learned().after(20_000, &measured(1)), 20_800);
        let idle = Measurement { is_limiting: false, ..measured(100_000) };
        assert_eq!(learned().after(20_000, &idle), 20_000);
        assert_eq!(learned().after(20_000, &Measurement { is_limiting: false, ..measured(900_000) }), 20_000);
    }

    #[test]
    fn one_window_takes_at_most_a_tenth() {
        // The gradient is at least 1/2, and a fifth of it counts: 20 + (10 + 4 - 20) / 5.
        assert_eq!(learned().after(20_000, &measured(u64::MAX >> 22)), 18_800);
        let failed = Measurement { is_overloaded: true, mean_ns: None, is_limiting: false };
        assert_eq!(learned().after(20_000, &failed), 18_000);
    }

    #[test]
    fn baseline_follows_latency_slowly_up_and_fast_down() {
        let mut gradient = learned();
        gradient.after(10_000, &measured(700_000));
        assert_eq!(gradient.baseline_ns, 100_100_000);
        let mut gradient = learned();
        for _ in 0..30 {
            gradient.after(10_000, &measured(10_000));
        }
        assert!(gradient.baseline_ns <= 20_000_000, "{}", gradient.baseline_ns);
    }

    #[test]
    fn longest_latencies_overflow_nothing() {
        let mut gradient = Gradient::default();
        for mean_us in [u64::MAX, 0, u64::MAX, 1 << 42, 0] {
            let limit = gradient.after(1_000_000_000, &measured(mean_us));
            assert!(limit <= 1_000_800_000, "{limit}");
        }
    }
}
