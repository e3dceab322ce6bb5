//! The time by which calls are measured.

use polylimit_rules::units::micros;
use polylimit_runtime::clock::{Clock, ManualClock};
use polylimit_runtime::monotonic::{self, Instant};

/// A manual clock, or the monotonic time, since no latency may contain a correction of the wall clock.
#[derive(Debug)]
pub(super) enum Time {
    Monotonic(Instant),
    Manual(ManualClock),
}

impl Time {
    pub(super) fn of(clock: &Clock) -> Self {
        clock.manual().map_or_else(|| Self::Monotonic(monotonic::now()), |clock| Self::Manual(clock.clone()))
    }

    pub(super) fn now_us(&self) -> u64 {
        match self {
            Self::Monotonic(since) => micros(monotonic::now().saturating_duration_since(*since)),
            Self::Manual(clock) => clock.now_us(),
        }
    }
}
