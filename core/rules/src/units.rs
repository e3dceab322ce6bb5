//! Conversions between units of time.

use std::time::Duration;

/// The latest time that a clock can show, in microseconds since the Unix epoch: 2^53 - 1, in the year 2255. Up to it
/// every time is exact in a double, which is what Redis scripts compute in.
pub const MAX_US: u64 = (1 << 53) - 1;

/// A duration in whole microseconds; `u64::MAX` when it does not fit 64 bits.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
