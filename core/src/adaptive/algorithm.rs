//! The algorithm of a limit.

use crate::adaptive::aimd::Aimd;
use crate::adaptive::gradient::Gradient;
use crate::adaptive::window::Measurement;

#[derive(Clone, Debug)]
pub(super) enum Algorithm {
    Aimd(Aimd),
    Gradient(Gradient),
}

impl Algorithm {
    /// The latency from which on a call counts as failed.
    pub(super) fn longest_us(&self) -> u64 {
        match self {
            Self::Aimd(aimd) => aimd.longest_us,
            Self::Gradient(_) => u64::MAX,
        }
    }

    /// The limit after a window, in thousandths; the caller keeps it within the bounds.
    pub(super) fn after(&mut self, limit_milli: u64, measurement: &Measurement) -> u64 {
        match self {
            Self::Aimd(aimd) => aimd.after(limit_milli, measurement),
            Self::Gradient(gradient) => gradient.after(limit_milli, measurement),
        }
    }
}
