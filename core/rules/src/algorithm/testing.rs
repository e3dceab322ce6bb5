//! Helpers for the tests of the algorithms.

use crate::quota::Quota;

pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const DAY: u64 = 86_400 * SECOND;

pub(crate) fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}
