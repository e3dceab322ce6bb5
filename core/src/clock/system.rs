//! The system clock.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{MAX_US, micros};

/// Microseconds since the Unix epoch; a clock before the epoch shows the epoch.
pub(super) fn now_us() -> u64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()).min(MAX_US)
}

/// The same as of the kernel's last tick.
#[cfg(target_os = "linux")]
pub(super) fn coarse_now_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let us = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000);
    u64::try_from(us).map_or(0, |us| us.min(MAX_US))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn coarse_now_us() -> u64 {
    now_us()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_show_the_same_time() {
        let (coarse, fine) = (coarse_now_us(), now_us());
        assert!(fine > 1_700_000_000_000_000);
        assert!(fine.abs_diff(coarse) < 1_000_000, "{coarse} {fine}");
    }
}
