//! What one slice of load measures, and what the slices of a row amount to.

use std::time::Duration;

/// One slice of load on one server.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    /// Answers, of which none was an error.
    pub(crate) answers: u64,
    pub(crate) wall: Duration,
    /// The latency that half of the answers and 99 % of them did not exceed; `None` where the generator does not report it.
    pub(crate) latency: Option<(Duration, Duration)>,
    /// Processor time of the server.
    pub(crate) processor: Duration,
    /// Processor time of the servers of Redis that it keeps its states in.
    pub(crate) store: Duration,
}

impl Slice {
    pub(crate) fn per_second(&self) -> f64 {
        self.answers as f64 / self.wall.as_secs_f64()
    }

    /// Microseconds of the server's processor time for an answer.
    pub(crate) fn processor_us(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.answers as f64
    }

    /// Microseconds of the store's processor time for an answer.
    pub(crate) fn store_us(&self) -> f64 {
        self.store.as_secs_f64() * 1e6 / self.answers as f64
    }

    /// The part of a core that the server used.
    pub(crate) fn core(&self) -> f64 {
        self.processor.as_secs_f64() / self.wall.as_secs_f64()
    }

    pub(crate) fn median_us(&self) -> f64 {
        self.latency.map_or(f64::NAN, |(median, _)| median.as_secs_f64() * 1e6)
    }

    pub(crate) fn p99_us(&self) -> f64 {
        self.latency.map_or(f64::NAN, |(_, p99)| p99.as_secs_f64() * 1e6)
    }
}

/// The median of one figure of each slice.
pub(crate) fn median(slices: &[Slice], figure: impl Fn(&Slice) -> f64) -> f64 {
    middle(slices.iter().map(figure).collect())
}

/// Median and quartiles of the ratios of two servers' figures, in slices of the same round.
pub(crate) fn ratio(slices: &[Slice], others: &[Slice], figure: impl Fn(&Slice) -> f64) -> [f64; 3] {
    let mut ratios: Vec<f64> =
        slices.iter().zip(others).map(|(slice, other)| figure(slice) / figure(other)).collect();
    ratios.sort_by(f64::total_cmp);
    let last = ratios.len() - 1;
    [ratios[last / 2], ratios[last / 4], ratios[(last * 3).div_ceil(4)]]
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_compares_slices_of_the_same_round() {
        let slice = |answers| {
            let (wall, time) = (Duration::from_secs(1), Duration::from_millis(1));
            Slice { answers, wall, latency: None, processor: time, store: time }
        };
        // The machine was ten times as slow in the second round.
        let (own, other) = ([slice(200), slice(20), slice(300)], [slice(100), slice(10), slice(100)]);
        let ratios = ratio(&own, &other, Slice::per_second);
        assert_eq!(ratios.map(|ratio| format!("{ratio:.2}")), ["2.00", "2.00", "3.00"]);
        assert!((median(&own, Slice::per_second) - 200.0).abs() < 1e-9);
        assert!(median(&own, Slice::p99_us).is_nan());
    }
}
