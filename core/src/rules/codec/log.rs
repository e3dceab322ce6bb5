//! A log as bytes.
//!
//! The origin (7, us), the bytes of a total w (1), the total before the first entry (w), then for each entry the time
//! since the origin (6, us) and the running total (w). Totals wrap around; only differences count.

use crate::rules::algorithm::sliding_log;
use crate::rules::codec::reader::Reader;
use crate::rules::codec::{Bytes, MAX_US, put};

/// Reads the state of a log; `None` when the bytes are malformed.
pub(crate) fn read(bytes: &[u8]) -> Option<sliding_log::State> {
    let mut bytes = Reader(bytes);
    let (origin_us, width) = (bytes.number(7)?, usize::from(bytes.byte()?));
    if (width != 4 && width != 6) || origin_us > MAX_US {
        return None;
    }
    let wrap = (1_u64 << (8 * width)) - 1;
    let (mut before, mut units) = (bytes.number(width)?, 0_u64);
    let mut entries = Vec::with_capacity(bytes.0.len() / (6 + width));
    while !bytes.is_empty() {
        let (at_us, total) = (origin_us + bytes.number(6)?, bytes.number(width)?);
        units += total.wrapping_sub(before) & wrap;
        before = total;
        if entries.last().is_some_and(|(older_us, _)| *older_us > at_us) {
            return None;
        }
        entries.push((at_us, units));
    }
    Some(sliding_log::State::of_parts(entries))
}

/// Appends the bytes of a log; none when it is empty.
pub(crate) fn write(state: &sliding_log::State, out: &mut Bytes) {
    let (before, entries) = state.parts();
    let newest = entries.clone().next_back().map_or(0, |(_, total)| total.wrapping_sub(before));
    // Written totals start at 0, so they are no larger than the number of units in the log.
    let width = if newest < 1 << 31 { 4 } else { 6 };
    out.reserve(8 + width + entries.len() * (6 + width));
    let mut origin_us = None;
    for (at_us, total) in entries {
        let origin_us = *origin_us.get_or_insert_with(|| {
            put(out, at_us, 7);
            put(out, width as u64, 1);
            put(out, 0, width);
            at_us
        });
        put(out, at_us - origin_us, 6);
        put(out, total.wrapping_sub(before), width);
    }
}
