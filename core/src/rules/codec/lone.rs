//! The state of a policy with one bucket and nothing else but logs, in 12 bytes: this is most of what a store holds.
//!
//! | bits | |
//! |---|---|
//! | 48 | the low bits of the time (us) |
//! | 1 | 1, so that no text is taken for it |
//! | 4 | the high bits of the time |
//! | 8 | the first byte of the tag |
//! | 35 | the debt (us) |
//!
//! No record is that short. It is used where a microsecond repays 1 and a saturated bucket is full again within
//! 2^35 us (9.5 hours), until the year 2112. One byte of tag takes one bucket in 256 for another when a policy changes
//! from the one to the other: then what was used stays used for as long as before.

use crate::rules::history::repays_one;
use crate::rules::quota::Quota;
use crate::rules::quota::tick::SATURATION;

pub(crate) const LENGTH: usize = 12;
pub(crate) const MAX_DEBT: u64 = (1 << 35) - 1;
const MAX_AT_US: u64 = (1 << 52) - 1;

/// Whether the states of a policy of these quotas are kept in that form.
pub(crate) fn is_lone(quotas: &[Quota]) -> bool {
    let mut packed =
        quotas.iter().filter(|quota| quota.algorithm() != crate::rules::quota::Algorithm::SlidingLog);
    let (Some(quota), None) = (packed.next(), packed.next()) else { return false };
    let plain = quota.algorithm().is_bucket() && quota.step().is_none() && repays_one(quota);
    let saturated =
        || u128::from(SATURATION * quota.capacity()) * u128::from(quota.period_us() / quota.limit());
    plain && saturated() <= u128::from(MAX_DEBT)
}

/// The first byte of the tag, the time and the debt; `None` when the bytes are something else.
pub(crate) fn read(bytes: &[u8]) -> Option<(u8, u64, u64)> {
    let bytes: [u8; LENGTH] = bytes.try_into().ok()?;
    let (low, high) =
        (crate::rules::codec::reader::number(&bytes[..6]), crate::rules::codec::reader::number(&bytes[6..]));
    let tag = (high >> 35).to_be_bytes()[7];
    (high >> 47 == 1).then_some((tag, (high >> 43 & 15) << 48 | low, high & MAX_DEBT))
}

/// The bytes of a state that fits.
pub(crate) fn write(tag: u8, at_us: u64, debt: u64) -> Option<[u8; LENGTH]> {
    if at_us > MAX_AT_US || debt > MAX_DEBT {
        return None;
    }
    let high = 1 << 47 | at_us >> 48 << 43 | u64::from(tag) << 35 | debt;
    let mut bytes = [0; LENGTH];
    bytes[..6].copy_from_slice(&at_us.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&high.to_be_bytes()[2..]);
    Some(bytes)
}
