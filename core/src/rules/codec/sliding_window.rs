//! Records of sliding windows.

use smallvec::{SmallVec, smallvec};

use crate::rules::algorithm::State;
use crate::rules::algorithm::sliding_window;
use crate::rules::codec::reader::Reader;
use crate::rules::codec::{Bytes, Form, MAX_US, Tag, put};
use crate::rules::quota::Quota;

/// The most bytes of a count.
pub(crate) const MAX_COUNT_BYTES: u8 = 6;

/// Reads a record of a quota; `None` when it is malformed.
pub(crate) fn read(form: Form, mut record: Reader<'_>, quota: &Quota) -> Option<State> {
    let buckets = quota.buckets().unwrap_or(1);
    let (bytes, length, newest) = (record.byte()?, record.byte()?, record.number(7)?);
    let good = form == Form::SlidingWindow
        && (1..=MAX_COUNT_BYTES).contains(&bytes)
        && u32::from(length) == buckets
        && newest <= MAX_US / (quota.period_us() / u64::from(buckets));
    if !good {
        return None;
    }
    let sum = record.number(6)?;
    let mut counts: SmallVec<[u64; 16]> = smallvec![sum];
    for _ in 0..length {
        counts.push(record.number(usize::from(bytes))?);
    }
    let older: u64 = counts[1..usize::from(length)].iter().sum();
    match sum.checked_sub(older) {
        Some(newest) => counts[0] = newest,
        // The sum is smaller than the other counts. The script trusts the sum and repairs the counts when it needs the
        // newest.
        None => counts[1..usize::from(length)].fill(0),
    }
    // Nothing was counted before the epoch.
    let written = usize::try_from(newest).unwrap_or(usize::MAX).saturating_add(1);
    counts.truncate(written);
    Some(State::SlidingWindow(sliding_window::State::of_parts(newest, &counts, buckets)))
}

/// Appends the record of a state, if the state has use.
pub(crate) fn write(out: &mut Bytes, state: &sliding_window::State, tag: Tag) {
    let (newest, counts) = state.parts();
    let counts: SmallVec<[u64; 16]> = counts.collect();
    let Some((oldest, inside)) = counts.split_last() else { return };
    let sum: u64 = inside.iter().sum();
    if sum == 0 && *oldest == 0 {
        return;
    }
    let largest = counts[1..].iter().copied().max().unwrap_or(0);
    let bytes = (1 + largest.checked_ilog2().unwrap_or(0) / 8) as usize;
    out.push(Form::SlidingWindow as u8);
    out.extend_from_slice(&tag.0);
    put(out, bytes as u64, 1);
    put(out, inside.len() as u64, 1);
    put(out, newest, 7);
    put(out, sum, 6);
    for count in &counts[1..] {
        put(out, *count, bytes);
    }
}
