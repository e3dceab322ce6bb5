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
//! | 6 | the key's reservations | tag (all zero), length of the rest (3), see [`read_reservations`] |
//! | 7 | the key's blocks | tag (all zero), length of the rest (3): 23, until (7, us), length (6, us), since (7, us), count (2), level (1) |
//! | 8 | the commits that are remembered | as form 6 |
//! | 9 | a quota that groups share | tag, length of the rest (3), at (7, ticks), power of ten of the tick (1), limit (5), scale of the order (6), borrowed debt (7), number of groups (1), and of each: tag (4), own debt (7), rate (5), debt towards its most (7), rate of its most (5), place in the order (7), claim (5), end of the claim (7, us) |
//!
//! A key may have a record of blocks and no other one.
//!
//! A record of a form that is not known here comes from a later version. It is kept as it is, behind the others. From form 10 on, a
//! record begins, after its length, with the time until which its key has to live (7, us), so that it is kept for long enough. Where its
//! tag is that of a quota of the policy, nothing is decided: the quota's usage cannot be read ([`Unreadable::Newer`]).
//!
//! Numbers are big-endian. The tag identifies the quota. So when the quotas of a policy change, the remaining ones find
//! their states, and the records of removed ones are skipped. Changed numbers are applied when a record is read: a debt
//! names the limit and the tick under which it was counted; where it names none, it is a time in microseconds.
//!
//! A log has its own bytes: the origin (7, us), the bytes of a total w (1), the total before the first entry (w), then for
//! each entry the time since the origin (6, us) and the running total (w). Totals wrap around; only differences count.

pub mod log;
pub(crate) mod record;
#[cfg(test)]
mod tests;
pub mod value;

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::algorithm::token_bucket::{self, Parts};
use crate::algorithm::{State, fixed_window, sliding_log, sliding_window, stepped_bucket};
pub use crate::codec::record::{
    Bytes, Form, Reader, Tag, has_blocks, read_reservations, unknown_until_us, write_reservations,
};
use crate::codec::record::{
    MAX_COUNT_BYTES, MAX_DEBT, MAX_TICK_EXPONENT, Record, UnknownRecord, put, put_head, read_blocks,
    read_groups, write_blocks, write_groups,
};
use crate::history::{
    Change, PastNumbers, bucket_ran_out, past_of, repays_one, stepped_bucket_has_run_out,
    stepped_bucket_ran_out,
};
use crate::policy::Policy;
use crate::quota::tick::rate;
use crate::quota::{Algorithm, Quota};
use crate::units::MAX_US;

/// The largest debt that fits the five bytes of a short record.
const MAX_SHORT_DEBT: u64 = (1 << 40) - 1;

/// The states of one key, in the order of its policy's quotas.
pub type States = SmallVec<[State; 1]>;

/// Why bytes are no states of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They are not what any version writes.
    Malformed,
    /// A later version has written the state of one of the quotas.
    Newer,
}

/// Reads and writes the states of a policy's quotas.
#[derive(Clone, Debug)]
pub struct PolicyCodec {
    policy: Policy,
    quotas: Box<[QuotaCodec]>,
    /// Whether states that were written under other numbers were changed just now.
    is_changed_now: bool,
}

#[derive(Clone, Debug)]
struct QuotaCodec {
    tag: Tag,
    past: Box<[PastNumbers]>,
    /// Whether all records of a bucket are short.
    is_short: bool,
    /// The window by the calendar in which all decisions are, where that is known.
    window_us: Option<Range<u64>>,
}

impl PolicyCodec {
    /// A codec for a policy, with the other numbers of it that this process knows.
    pub fn new(policy: &Policy, change: Change<'_>) -> Self {
        let quotas = policy.quotas().iter();
        let quotas = quotas.map(|quota| QuotaCodec {
            tag: Tag::of(quota),
            past: past_of(quota, change.past()),
            is_short: quota.algorithm().is_bucket() && quota.limit() > 0 && is_short(quota),
            window_us: None,
        });
        let is_changed_now = matches!(change, Change::Now(_));
        Self { policy: policy.clone(), quotas: quotas.collect(), is_changed_now }
    }

    /// Sets the windows of the quotas by the calendar, in their order, which say how long keys live.
    pub fn set_windows(&mut self, windows_us: &[Range<u64>]) {
        let quotas = self.policy.quotas().iter().zip(&mut self.quotas);
        let by_calendar = quotas.filter(|(quota, _)| quota.calendar().is_some());
        for ((_, codec), window_us) in by_calendar.zip(windows_us) {
            codec.window_us = Some(window_us.clone());
        }
    }

    fn each(&self) -> impl Iterator<Item = (&Quota, &QuotaCodec)> {
        self.policy.quotas().iter().zip(&self.quotas)
    }

    /// Reads the states as of some time, and after them the reservations, the commits and the record of blocks, if there are any. No bytes
    /// mean a key that was never seen. Logs are fresh here, since they have their own bytes.
    ///
    /// # Errors
    /// When the bytes are malformed, or a later version has written the state of a quota.
    pub fn read(&self, bytes: &[u8], now_us: u64) -> Result<States, Unreadable> {
        self.read_and_keep(bytes, now_us, &mut Vec::new())
    }

    /// The same, and appends the records that are not known here to `unknown`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_and_keep(
        &self,
        bytes: &[u8],
        now_us: u64,
        unknown: &mut Vec<u8>,
    ) -> Result<States, Unreadable> {
        let mut is_newer = false;
        let read = self.read_records(bytes, now_us, |UnknownRecord { tag, bytes, .. }| {
            is_newer |= self.quotas.iter().any(|quota| quota.tag == tag);
            unknown.extend_from_slice(bytes);
        });
        if is_newer { Err(Unreadable::Newer) } else { read.ok_or(Unreadable::Malformed) }
    }

    /// Reads the states, and passes the records that are not known here on; `None` when the bytes are malformed.
    fn read_records(
        &self,
        bytes: &[u8],
        now_us: u64,
        mut unknown: impl FnMut(UnknownRecord<'_>),
    ) -> Option<States> {
        let mut records = SmallVec::<[(Form, Tag, Reader<'_>); 4]>::new();
        let (mut reservations, mut commits, mut blocks) = (None, None, None);
        let mut groups = SmallVec::<[(Tag, Reader<'_>); 1]>::new();
        let mut rest = Reader(bytes);
        while !rest.is_empty() {
            match rest.record()? {
                Record::OfQuota(form, tag, record) => records.push((form, tag, record)),
                Record::OfGroups(tag, record) => groups.push((tag, record)),
                Record::Reservations(record) => reservations = Some(read_reservations(record)?),
                Record::Commits(record) => commits = Some(read_reservations(record)?),
                Record::Blocks(record) => blocks = Some(read_blocks(record)?),
                Record::Unknown(record) => unknown(record),
            }
        }
        let superseded_at = self.superseded_at(now_us);
        let each = self.each().map(|(quota, codec)| {
            if quota.is_grouped() {
                return match groups.iter().find(|(tag, _)| *tag == codec.tag) {
                    Some((_, record)) => read_groups(*record).map(|state| State::Grouped(Box::new(state))),
                    None => Some(State::fresh(quota)),
                };
            }
            let is_log = quota.algorithm() == Algorithm::SlidingLog;
            match records.iter().find(|(_, tag, _)| *tag == codec.tag && !is_log) {
                Some((form, _, record)) => codec.read(*form, *record, quota, superseded_at),
                None => Some(State::fresh(quota)),
            }
        });
        let mut states: States = each.collect::<Option<_>>()?;
        states.extend(reservations.map(|reservations| State::Reservations(Box::new(reservations))));
        states.extend(commits.map(|commits| State::Commits(Box::new(commits))));
        states.extend(blocks.map(|blocks| State::Block(Box::new(blocks))));
        Some(states)
    }

    /// Reads the states at the beginning of bytes that hold one record per quota, in their order, with more bytes after
    /// them; `None` when the bytes do not.
    pub fn read_in_order(&self, bytes: &mut Reader<'_>, now_us: u64) -> Option<States> {
        let superseded_at = self.superseded_at(now_us);
        let each = self.each().map(|(quota, codec)| match bytes.record()? {
            Record::OfQuota(form, tag, record) if tag == codec.tag => {
                codec.read(form, record, quota, superseded_at)
            }
            _ => None,
        });
        each.collect()
    }

    /// When numbers that are not known here were superseded, if that is known.
    fn superseded_at(&self, now_us: u64) -> Option<u64> {
        self.is_changed_now.then_some(now_us)
    }

    /// Appends the bytes of the quotas' states and of the record of blocks; none when nothing is used. Logs are left out, and
    /// reservations and commits as well.
    pub fn write(&self, states: &[State], out: &mut Bytes) {
        for ((quota, QuotaCodec { tag, .. }), state) in self.each().zip(states) {
            write_state(out, state, quota, *tag);
        }
        for state in states.iter().skip(self.quotas.len()) {
            if let State::Block(record) = state {
                write_blocks(record, out);
            }
        }
    }
}

/// Appends the record of a quota; none when nothing is used. Logs are left out.
fn write_state(out: &mut Bytes, state: &State, quota: &Quota, tag: Tag) {
    match state {
        State::TokenBucket(state) => write_bucket(out, *state, quota, tag),
        State::SteppedBucket(stepped_bucket::State { used: 0, .. })
        | State::FixedWindow(fixed_window::State { count: 0, .. })
        | State::SlidingLog(_)
        | State::Slots
        | State::Reservations(_)
        | State::Commits(_)
        | State::Block(_) => {}
        State::SteppedBucket(stepped_bucket::State { used, at_us }) => {
            put_head(out, Form::SteppedBucket, tag);
            put(out, *used, 6);
            put(out, *at_us, 7);
            // Under a limit of 0 the state was written under an earlier limit, which is not known here.
            put(out, quota.limit().max(1), 5);
        }
        State::FixedWindow(fixed_window::State { count, start_us }) => {
            put_head(out, Form::FixedWindow, tag);
            put(out, *count, 6);
            put(out, *start_us, 7);
        }
        State::SlidingWindow(state) => write_sliding_window(out, state, tag),
        State::Grouped(state) => write_groups(state, tag, out),
    }
}

impl QuotaCodec {
    /// Reads the rest of a record; `None` when it is malformed or of another algorithm. `superseded_at` is when other numbers were
    /// superseded, where that is not in the past numbers.
    fn read(
        &self,
        form: Form,
        mut record: Reader<'_>,
        quota: &Quota,
        superseded_at: Option<u64>,
    ) -> Option<State> {
        match (form, quota.algorithm()) {
            (Form::ShortBucket | Form::Bucket, Algorithm::TokenBucket | Algorithm::LeakyBucket)
                if quota.step().is_none() =>
            {
                read_bucket(form, record, quota, &self.past)
            }
            (Form::SteppedBucket, Algorithm::TokenBucket) if quota.step().is_some() => {
                let (used, at_us, limit) = (record.number(6)?, record.number(7)?, record.number(5)?);
                if at_us > MAX_US || !(1..=Quota::MAX_UNITS).contains(&limit) {
                    return None;
                }
                let state = stepped_bucket::State { used, at_us };
                let is_over = match superseded_at {
                    Some(now_us) => stepped_bucket_has_run_out(state, limit, quota, now_us),
                    None => stepped_bucket_ran_out(state, limit, quota, &self.past),
                };
                let kept = (!is_over).then_some(state);
                Some(State::SteppedBucket(kept.unwrap_or_default()))
            }
            (Form::FixedWindow, Algorithm::FixedWindow) => {
                let (count, start_us) = (record.number(6)?, record.number(7)?);
                (start_us <= MAX_US).then_some(State::FixedWindow(fixed_window::State { count, start_us }))
            }
            (Form::SlidingWindow, Algorithm::SlidingWindow) => read_sliding_window(record, quota),
            _ => None,
        }
    }
}

/// Whether a bucket's records are short, whatever its debt is.
pub fn is_short(quota: &Quota) -> bool {
    let token = || u128::from(quota.period_us() / quota.limit());
    repays_one(quota)
        && u128::from(crate::quota::tick::SATURATION * quota.capacity()) * token()
            <= u128::from(MAX_SHORT_DEBT)
}

/// Reads a bucket; it is fresh when nothing was used any more at the time when its numbers were superseded.
fn read_bucket(form: Form, mut record: Reader<'_>, quota: &Quota, past: &[PastNumbers]) -> Option<State> {
    let (parts, is_past) = if form == Form::ShortBucket {
        let (at, debt) = (record.number(7)?, record.number(5)?);
        // With a limit of 1 a microsecond repays 1, whatever the period.
        let limit = if repays_one(quota) { quota.limit() } else { 1 };
        (Parts { debt, at, limit, tick_us: 1 }, past.iter().any(|past| past.repays_one))
    } else {
        let (at, debt, limit) = (record.number(7)?, record.number(7)?, record.number(5)?);
        let exponent = record.byte().filter(|exponent| *exponent <= MAX_TICK_EXPONENT)?;
        let tick_us = 10_u64.pow(u32::from(exponent));
        let named = |past: &PastNumbers| (past.limit, past.tick_us) == (limit, tick_us);
        (Parts { debt, at, limit, tick_us }, past.iter().any(named))
    };
    let Parts { debt, at, limit, tick_us } = parts;
    if at > MAX_US / tick_us || debt > MAX_DEBT || !(1..=Quota::MAX_UNITS).contains(&limit) {
        return None;
    }
    let kept = (!bucket_ran_out(parts, quota, past, is_past)).then(|| token_bucket::State::of_parts(parts));
    Some(State::TokenBucket(kept.unwrap_or_default()))
}

fn write_bucket(out: &mut Bytes, state: token_bucket::State, quota: &Quota, tag: Tag) {
    let Parts { debt, at, limit, tick_us } = state.parts();
    if debt == 0 {
        return;
    }
    let is_time = tick_us == 1 && rate(limit, quota.period_us(), 1) == 1;
    if is_time && debt <= MAX_SHORT_DEBT {
        put_head(out, Form::ShortBucket, tag);
        put(out, at, 7);
        put(out, debt, 5);
    } else {
        write_long_bucket(out, state, tag);
    }
}

fn write_long_bucket(out: &mut Bytes, state: token_bucket::State, tag: Tag) {
    let Parts { debt, at, limit, tick_us } = state.parts();
    if debt == 0 {
        return;
    }
    put_head(out, Form::Bucket, tag);
    put(out, at, 7);
    put(out, debt, 7);
    put(out, limit, 5);
    put(out, u64::from(tick_us.ilog10()), 1);
}

fn read_sliding_window(mut record: Reader<'_>, quota: &Quota) -> Option<State> {
    let buckets = quota.buckets().unwrap_or(1);
    let (bytes, length, newest) = (record.byte()?, record.byte()?, record.number(7)?);
    let good = (1..=MAX_COUNT_BYTES).contains(&bytes)
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

fn write_sliding_window(out: &mut Bytes, state: &sliding_window::State, tag: Tag) {
    let (newest, counts) = state.parts();
    let counts: SmallVec<[u64; 16]> = counts.collect();
    let Some((oldest, inside)) = counts.split_last() else { return };
    let sum: u64 = inside.iter().sum();
    if sum == 0 && *oldest == 0 {
        return;
    }
    let largest = counts[1..].iter().copied().max().unwrap_or(0);
    let bytes = (1 + largest.checked_ilog2().unwrap_or(0) / 8) as usize;
    put_head(out, Form::SlidingWindow, tag);
    put(out, bytes as u64, 1);
    put(out, inside.len() as u64, 1);
    put(out, newest, 7);
    put(out, sum, 6);
    for count in &counts[1..] {
        put(out, *count, bytes);
    }
}

/// Reads the state of a log; `None` when the bytes are malformed.
pub fn read_log(bytes: &[u8]) -> Option<sliding_log::State> {
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
pub fn write_log(state: &sliding_log::State, out: &mut Bytes) {
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
