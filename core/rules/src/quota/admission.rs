//! How much a quota can admit in any span of real time.

use std::time::Duration;

use crate::quota::{Algorithm, Quota};

impl Quota {
    /// The most units that this quota admits to one key in any span of real time of this length, without faults.
    ///
    /// With B the capacity, L the limit, P the period and W the span:
    ///
    /// | algorithm | at most |
    /// |---|---|
    /// | token bucket, leaky bucket | B + floor(W * L / P), with W in whole ticks begun; with a step: B + step * intervals begun |
    /// | fixed window | B a window, and W touches at most ceil(W / P) + 1 |
    /// | sliding window of n > 1 buckets | B in any span of P - P/n |
    /// | sliding window of 1 bucket | 2B in any span of P |
    /// | sliding log | B in any span of P |
    /// | concurrency | any number, since it counts no units |
    ///
    /// A tick is a microsecond for nearly every quota, and coarser for those whose numbers would not be exact in a
    /// double. Spans are half-open: what is admitted at the very end of one belongs to the next. Saturates at
    /// `u64::MAX`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let quota: polylimit::Quota = "10/s token_bucket burst=20".parse()?;
    /// assert_eq!(quota.most_admitted(Duration::from_secs(60)), 20 + 600);
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn most_admitted(&self, span: Duration) -> u64 {
        let span_us = span.as_micros();
        let limit = u128::from(self.limit);
        let most = match self.counting() {
            _ if limit == 0 => 0,
            Counting::Unbounded => u128::MAX,
            Counting::Refilled { each_us, tokens } => {
                let arrivals = match self.step {
                    0 => {
                        let ticks = span_us.div_ceil(u128::from(self.tick_us));
                        (ticks * u128::from(self.tick_us)).saturating_mul(limit) / u128::from(self.period_us)
                    }
                    // The first refill may come at once.
                    _ => (span_us / each_us + 1).saturating_mul(tokens),
                };
                arrivals.saturating_add(u128::from(self.capacity))
            }
            Counting::Windows { span_us: each_us, extra } => {
                (span_us.div_ceil(each_us) + extra).saturating_mul(u128::from(self.capacity))
            }
        };
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// A lower bound on the time in which `units` units can be admitted to one key, in microseconds: for every shorter
    /// span [`most_admitted`](Self::most_admitted) is less than `units`.
    #[doc(hidden)]
    pub fn least_span_us(&self, units: u64) -> u64 {
        let units = u128::from(units);
        let span_us = match self.counting() {
            _ if self.limit == 0 => 0,
            Counting::Unbounded => 0,
            Counting::Refilled { each_us, tokens } => {
                let missing = units.saturating_sub(u128::from(self.capacity));
                match self.step {
                    // One tick may be about to end. Rounded down, so that a time that was rounded up may precede it.
                    0 => (missing * u128::from(self.period_us) / u128::from(self.limit))
                        .saturating_sub(u128::from(self.tick_us - 1)),
                    _ => missing.div_ceil(tokens).saturating_sub(1) * each_us,
                }
            }
            Counting::Windows { span_us, extra } => {
                let spans = units.div_ceil(u128::from(self.capacity)).saturating_sub(1 + extra);
                spans * span_us
            }
        };
        u64::try_from(span_us).unwrap_or(u64::MAX)
    }

    /// How long a unit counts in full at least, in microseconds; `None` for a bucket, whose debt is repaid gradually.
    #[doc(hidden)]
    pub fn forgets_after_us(&self) -> Option<u64> {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Concurrency => None,
            Algorithm::SlidingWindow => Some(self.period_us - self.period_us / u64::from(self.buckets)),
            // A fixed window that ends forgets the old use with the new; then everything fits.
            Algorithm::FixedWindow | Algorithm::SlidingLog => Some(self.period_us),
        }
    }

    fn counting(&self) -> Counting {
        let period_us = u128::from(self.period_us);
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Counting::Refilled {
                each_us: u128::from(self.step_interval_us()),
                tokens: u128::from(self.step),
            },
            Algorithm::SlidingWindow if self.buckets > 1 => {
                Counting::Windows { span_us: period_us - period_us / u128::from(self.buckets), extra: 0 }
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                Counting::Windows { span_us: period_us, extra: 1 }
            }
            Algorithm::SlidingLog => Counting::Windows { span_us: period_us, extra: 0 },
            Algorithm::Concurrency => Counting::Unbounded,
        }
    }
}

/// What bounds an algorithm's admission.
enum Counting {
    /// The capacity, and the refill: continuous, or `tokens` every `each_us`.
    Refilled { each_us: u128, tokens: u128 },
    /// The capacity in any span of `span_us`, and for some algorithms `extra` times more.
    Windows { span_us: u128, extra: u128 },
    /// Concurrency bounds no units.
    Unbounded,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        for (text, most) in [
            ("10/s token_bucket burst=20", 30),
            ("10/s leaky_bucket", 20),
            ("10/s token_bucket step=5", 10 + 15),
            ("10/s fixed_window", 20),
            ("10/s", 20),
            ("10/s buckets=1", 20),
            ("10/s sliding_log", 10),
            ("0/s", 0),
        ] {
            let quota: Quota = text.parse().unwrap();
            assert_eq!(quota.most_admitted(Duration::from_secs(1)), most, "{text}");
        }
        let quota: Quota = "1000000000000/ms sliding_log".parse().unwrap();
        assert_eq!(quota.most_admitted(Duration::MAX), u64::MAX);
    }

    #[test]
    fn bounds_of_short_spans_and_of_ticks() {
        let quota = |text: &str| -> Quota { text.parse().unwrap() };
        // Nine of ten sub-windows count in full.
        assert_eq!(quota("10/s").most_admitted(Duration::from_millis(900)), 10);
        assert_eq!(quota("10/s").most_admitted(Duration::from_micros(900_001)), 20);
        assert_eq!(quota("10/s fixed_window").least_span_us(25), 1_000_000);
        assert_eq!(quota("10/s").least_span_us(25), 2 * 900_000);
        let ticks = quota("999983/day token_bucket");
        assert_eq!(ticks.tick_us(), 100);
        assert_eq!(ticks.most_admitted(Duration::from_secs(86_400)), 2 * 999_983);
    }

    #[test]
    fn no_fewer_microseconds_admit_so_many_units() {
        for text in
            ["10/s token_bucket", "7/s token_bucket", "10/s token_bucket step=5", "10/s", "10/s sliding_log"]
        {
            let quota: Quota = text.parse().unwrap();
            for units in 1..200 {
                let span_us = quota.least_span_us(units);
                if span_us > 0 {
                    let shorter = Duration::from_micros(span_us - 1);
                    assert!(quota.most_admitted(shorter) < units, "{text}: {units} in {span_us}");
                }
            }
        }
    }

    /// The bound is the least: a microsecond more, or a tick, may admit them.
    #[test]
    fn so_many_units_may_be_admitted_in_the_least_time() {
        for text in [
            "10/s token_bucket",
            "10/s token_bucket step=5",
            "20/s token_bucket step=10 burst=7",
            "10/s",
            "10/s fixed_window",
            "10/s buckets=1",
            "6/s buckets=4",
            "10/s sliding_log",
            "7/h leaky_bucket burst=3",
        ] {
            let quota: Quota = text.parse().unwrap();
            for units in 1..200 {
                let enough = Duration::from_micros(quota.least_span_us(units) + 1);
                assert!(quota.most_admitted(enough) >= units, "{text}: {units} in {enough:?}");
            }
        }
        let frozen: Quota = "0/s sliding_log".parse().unwrap();
        assert_eq!((frozen.least_span_us(5), frozen.most_admitted(Duration::from_secs(9))), (0, 0));
        let slots: Quota = "4 concurrent".parse().unwrap();
        assert_eq!((slots.least_span_us(5), slots.most_admitted(Duration::from_secs(9))), (0, u64::MAX));
        let frozen: Quota = "0 concurrent".parse().unwrap();
        assert_eq!(frozen.most_admitted(Duration::from_secs(9)), 0);
    }

    #[test]
    fn units_count_in_full_for_a_time() {
        for (text, expected) in [
            ("10/s token_bucket", None),
            ("10/s leaky_bucket", None),
            ("10/s token_bucket step=5", None),
            ("4 concurrent", None),
            ("10/s fixed_window", Some(1_000_000)),
            ("10/s sliding_log", Some(1_000_000)),
            ("10/s buckets=4", Some(750_000)),
            ("10/s buckets=1", Some(0)),
        ] {
            assert_eq!(text.parse::<Quota>().unwrap().forgets_after_us(), expected, "{text}");
        }
    }
}
