//! What the tests of the algorithms share.

use crate::quota::Quota;

pub(super) const SECOND: u64 = 1_000_000;
pub(super) const DAY: u64 = 86_400 * SECOND;

pub(super) fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}
