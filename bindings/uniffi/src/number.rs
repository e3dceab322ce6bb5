//! Numbers and durations across the boundary, where all numbers are signed. Durations are whole microseconds there, and each
//! language's own type beyond it.

use std::time::Duration;

use crate::error::{PolylimitError, Result};

/// A number from the caller, which must not be negative.
pub(crate) fn unsigned(name: &str, number: i64) -> Result<u64> {
    u64::try_from(number)
        .map_err(|_| PolylimitError::InvalidArgument(format!("{name} is {number}: allowed is 0 or more")))
}

/// A headroom from the caller; the core refuses what is above 99.
pub(crate) fn percent(headroom: i32) -> Result<u8> {
    u8::try_from(headroom).map_err(|_| {
        PolylimitError::InvalidArgument(format!("headroom is {headroom} %: allowed is 0 to 99 %"))
    })
}

/// Numbers of the core are below 2^63. Counters saturate.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A duration in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(i64);

uniffi::custom_type!(Span, i64, {
    lower: |span| span.0,
    try_lift: |us| Ok(Span(us)),
});

impl Span {
    /// This many microseconds from the caller.
    pub(crate) fn of_signed(us: i64) -> Self {
        Self(us)
    }

    pub(crate) fn of_us(us: u64) -> Self {
        Self(signed(us))
    }

    pub(crate) fn us(self, name: &str) -> Result<u64> {
        u64::try_from(self.0).map_err(|_| {
            PolylimitError::InvalidArgument(format!("{name} is {} us: allowed is 0 or more", self.0))
        })
    }

    pub(crate) fn duration(self, name: &str) -> Result<Duration> {
        self.us(name).map(Duration::from_micros)
    }
}

/// The address of an object, as long as it exists.
pub(crate) fn address<T>(object: &T) -> i64 {
    (std::ptr::from_ref(object).expose_provenance() as u64).cast_signed()
}
