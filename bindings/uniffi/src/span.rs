//! Durations across the boundary: whole microseconds there, and each language's own type beyond it.

use std::time::Duration;

use crate::error::Result;
use crate::number::{signed, unsigned};

/// How long something takes, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(i64);

uniffi::custom_type!(Span, i64, {
    lower: |span| span.0,
    try_lift: |us| Ok(Span(us)),
});

impl Span {
    pub(crate) fn of_us(us: u64) -> Self {
        Self(signed(us))
    }

    pub(crate) fn us(self, name: &str) -> Result<u64> {
        unsigned(name, self.0)
    }

    pub(crate) fn duration(self, name: &str) -> Result<Duration> {
        self.us(name).map(Duration::from_micros)
    }
}
