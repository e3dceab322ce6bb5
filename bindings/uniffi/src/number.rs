//! Numbers across the boundary, where all are signed.

use crate::error::{PolylimitError, Result};

/// A number of the caller's, which must not be below 0.
pub(crate) fn unsigned(name: &str, number: i64) -> Result<u64> {
    u64::try_from(number)
        .map_err(|_| PolylimitError::InvalidArgument(format!("{name} is {number}: allowed is 0 or more")))
}

/// The core's numbers are below 2^63, but for counts that would take ages to get there.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
