//! What the slices of a service amount to.

use std::fmt;
use std::time::Duration;

/// One slice of one service.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) requests: u64,
    pub(crate) wall: Duration,
    pub(crate) processor: Duration,
}

impl Slice {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.wall.as_secs_f64()
    }

    /// Microseconds of the service's processor time a request.
    pub(crate) fn processor_us(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.requests as f64
    }
}

/// Median and quartiles of a figure.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    /// Of one figure for each slice.
    pub(crate) fn of(slices: &[Slice], figure: impl Fn(&Slice) -> f64) -> Self {
        Self::of_figures(slices.iter().map(figure).collect())
    }

    /// Of one ratio for each round, in which both services have a slice.
    pub(crate) fn of_ratios(
        slices: &[Slice],
        others: &[Slice],
        ratio: impl Fn(&Slice, &Slice) -> f64,
    ) -> Self {
        Self::of_figures(slices.iter().zip(others).map(|(slice, other)| ratio(slice, other)).collect())
    }

    fn of_figures(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |quarter: usize| figures[(figures.len() - 1) * quarter / 4];
        Self { median: at(2), low: at(1), high: at(3) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.low, self.high)
    }
}
