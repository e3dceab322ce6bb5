//! Times in the fields, in whole seconds.

/// Rounded up, so that a client that waits this long does not come too early.
pub(crate) fn whole_seconds(us: u128) -> u64 {
    u64::try_from(us.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
