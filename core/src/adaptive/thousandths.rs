//! Limits in thousandths of a call, so that slow growth and decline add up.

pub(super) const MILLI: u64 = 1000;

/// What a limit becomes when more calls failed than are tolerated: 9/10, the default of `AIMDLimit`, and at least 1 less.
pub(super) fn shrunk(limit_milli: u64) -> u64 {
    (limit_milli / 10 * 9).min(limit_milli.saturating_sub(MILLI))
}
