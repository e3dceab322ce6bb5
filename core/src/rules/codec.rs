//! States as bytes: how a store keeps them that is not this process's memory.
//!
//! The states of one key under one policy are a concatenation of records, one for each quota that is not a log and of
//! which something is used. A record describes itself:
//!
//! | form (1 byte) | of | after it |
//! |---|---|---|
//! | 1 | a bucket | tag, at (7, us), debt (5, us): where a microsecond repays 1 |
//! | 2 | a bucket | tag, at (7, ticks), debt (7), limit (5), power of ten of the tick (1) |
//! | 3 | a stepped bucket | tag, used (6), at (7, us), limit (5) |
//! | 4 | a fixed window | tag, count (6), start (7, us) |
//! | 5 | a sliding window | tag, bytes of a count (1), counts (1), newest sub-window (7), sum of all counts but the oldest (6), counts but the newest, newest first |
//!
//! Numbers are big-endian. The tag says which quota it is, by its identity; so when the quotas of a policy change, those
//! that stay find their states, and the others are skipped. Changed numbers are taken into account when a record is
//! read: a debt names the limit and the tick that it was counted with, or is a time where it names none.
//!
//! A log is bytes of its own: see [`log`].

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

/// The latest time in microseconds that a state can name: what a clock can show, and what is exact in a double.
const MAX_US: u64 = crate::units::MAX_US;
/// The largest limit.
const MAX_LIMIT: u64 = crate::rules::quota::Quota::MAX_UNITS;

/// What kind of record a byte says it is.
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

/// States as bytes; those of most keys are few.
pub(crate) type Bytes = smallvec::SmallVec<[u8; 128]>;

/// Appends a number in so many bytes, big-endian.
fn put(out: &mut Bytes, number: u64, bytes: usize) {
    out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
}
