//! Times in the fields are whole seconds.

/// Rounded up: who waits so long does not come too early.
pub(crate) fn whole_seconds(us: u128) -> u64 {
    u64::try_from(us.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
