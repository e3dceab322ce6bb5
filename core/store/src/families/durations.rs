//! How long something took: a histogram that many threads add to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::families::SampleValue;

/// The upper bounds of the buckets, in microseconds, and in seconds as they are reported.
const BOUNDS: [(u64, f64); 13] = [
    (100, 0.0001),
    (250, 0.000_25),
    (500, 0.0005),
    (1_000, 0.001),
    (2_500, 0.0025),
    (5_000, 0.005),
    (10_000, 0.01),
    (25_000, 0.025),
    (50_000, 0.05),
    (100_000, 0.1),
    (250_000, 0.25),
    (500_000, 0.5),
    (1_000_000, 1.0),
];

/// How long something took, such as calls: a histogram from 100 µs to 1 s, to which any number of threads add. Programs make families of
/// their own of it, in addition to those of a limiter.
///
/// ```
/// use std::time::Duration;
///
/// use polylimit::metrics::{Durations, Family, FamilyKind};
///
/// let requests = Durations::default();
/// requests.add(Duration::from_millis(2), 1);
/// let mut family = Family::new("shop_request_duration_seconds", FamilyKind::Histogram, "How long requests took.");
/// family.add([("path", "/orders")], requests.value());
/// assert_eq!(requests.count(), 1);
/// ```
#[derive(Debug, Default)]
pub struct Durations {
    /// How many durations were above the bound before and at most this one; the last have no bound.
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

/// The buckets with cumulative counts, the sum in seconds, and the number of durations.
pub type DurationCounts = (Vec<(f64, u64)>, f64, u64);

impl Durations {
    /// Adds this many durations that were the same.
    pub fn add(&self, took: Duration, times: u64) {
        let bucket = BOUNDS.partition_point(|(us, _)| Duration::from_micros(*us) < took);
        self.counts[bucket].fetch_add(times, Ordering::Relaxed);
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns.wrapping_mul(times), Ordering::Relaxed);
    }

    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// The histogram, in seconds.
    pub fn value(&self) -> SampleValue {
        let (buckets, sum, count) = self.read();
        SampleValue::Histogram { buckets, sum, count }
    }

    #[expect(clippy::cast_precision_loss, reason = "a sum of durations is not exact")]
    #[doc(hidden)]
    pub fn read(&self) -> DurationCounts {
        let mut count = 0;
        let mut up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let buckets =
            BOUNDS.iter().zip(&self.counts).map(|((_, bound), bucket)| (*bound, up_to(bucket))).collect();
        let count = up_to(&self.counts[BOUNDS.len()]);
        (buckets, self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_for_every_bound_that_it_does_not_exceed() {
        let durations = Durations::default();
        for us in [1, 100, 101, 1_000_000, 2_000_000] {
            durations.add(Duration::from_micros(us), 1);
        }
        let (buckets, sum, count) = durations.read();
        assert_eq!(buckets[..2], [(0.0001, 2), (0.000_25, 3)]);
        assert_eq!((buckets[12], count), ((1.0, 4), 5));
        assert!((sum - 3.000_202).abs() < 1e-9, "{sum}");
    }
}
