//! States as bytes, for stores outside this process's memory.
//!
//! The states of one key under one policy are a concatenation of records, one for each quota that has use, except logs. A
//! record describes itself:
//! | form (1 byte) | of | after it |
//! |---|---|---|
//! | 1 | a bucket | tag, at (7, us), debt (5, us): where a microsecond repays 1 |
//! | 2 | a bucket | tag, at (7, ticks), debt (7), limit (5), power of ten of the tick (1) |
//! | 3 | a stepped bucket | tag, used (6), at (7, us), limit (5) |
//! | 4 | a fixed window | tag, count (6), start (7, us) |
//! | 5 | a sliding window | tag, bytes of a count (1), counts (1), newest sub-window (7), sum of all counts but the oldest (6), counts but the newest, newest first |
//!
//! Numbers are big-endian. The tag identifies the quota. So when the quotas of a policy change, the remaining ones find
//! their states, and the records of removed ones are skipped. Changed numbers are applied when a record is read: a debt
//! names the limit and the tick under which it was counted; where it names none, it is a time in microseconds.
//!
//! A log has its own bytes: see [`log`].

mod bucket;
mod fixed_window;
pub(crate) mod log;
mod policy;
pub(crate) mod reader;
mod sliding_window;
mod stepped_bucket;
mod tag;
#[cfg(test)]
mod tests;

pub(crate) use bucket::is_short;
pub(crate) use policy::{PolicyCodec, States};
pub(crate) use tag::Tag;

/// The latest time in microseconds that a state can name: the latest that a clock can show, and exact in a double.
const MAX_US: u64 = crate::units::MAX_US;
/// The largest limit.
const MAX_LIMIT: u64 = crate::rules::quota::Quota::MAX_UNITS;

/// The kind of a record, which is its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    ShortBucket = 1,
    Bucket = 2,
    SteppedBucket = 3,
    FixedWindow = 4,
    SlidingWindow = 5,
}

impl Form {
    fn of(byte: u8) -> Option<Self> {
        [Self::ShortBucket, Self::Bucket, Self::SteppedBucket, Self::FixedWindow, Self::SlidingWindow]
            .into_iter()
            .find(|form| *form as u8 == byte)
    }
}

/// States as bytes; most keys have few of them.
pub(crate) type Bytes = smallvec::SmallVec<[u8; 128]>;

/// Appends a number, big-endian, in `bytes` bytes.
fn put(out: &mut Bytes, number: u64, bytes: usize) {
    out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
}
