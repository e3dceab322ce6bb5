//! Records: the bytes of a state of a quota, of a key's reservations and of its blocks, with what distinguishes them.

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::algorithm::grouped;
use crate::groups::GroupTag;
use crate::penalty::BlockRecord;
use crate::quota::Quota;
use crate::quota::shares::MAX_PLACE;
use crate::reservation::id::ReservationId;
use crate::reservation::list::{Reservation, Reservations};
use crate::units::MAX_US;

pub(super) const MAX_DEBT: u64 = 1 << 53;
pub(super) const MAX_TICK_EXPONENT: u8 = 13;
/// The most bytes of a count of a sliding window.
pub(super) const MAX_COUNT_BYTES: u8 = 6;

/// States as bytes; most keys have few of them.
pub type Bytes = SmallVec<[u8; 128]>;

/// The kind of a record, which is its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
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

/// The first form with a length: from here on each record has 3 bytes of a length after its tag, so that a version which does
/// not know a form can step over it.
const FIRST_WITH_LENGTH: u8 = 6;
/// The forms of the records of a key's reservations, blocks and remembered commits, whose tags are all zero.
pub(super) const RESERVATIONS: u8 = 6;
const BLOCKS: u8 = 7;
pub(super) const COMMITS: u8 = 8;
/// The form of the state of a quota that groups share.
const GROUPS: u8 = 9;
/// The first form whose record begins with the time until which its key has to live, so that a version which does not know the
/// form keeps the record for as long.
const FIRST_WITH_END: u8 = 10;
const BLOCKS_LENGTH: usize = 23;

/// A record without its head.
pub(super) enum Record<'a> {
    OfQuota(Form, Tag, Reader<'a>),
    OfGroups(Tag, Reader<'a>),
    Reservations(Reader<'a>),
    Commits(Reader<'a>),
    Blocks(Reader<'a>),
    Unknown(UnknownRecord<'a>),
}

/// A record of a later version.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnknownRecord<'a> {
    pub(super) tag: Tag,
    /// All of it, with form, tag and length.
    pub(super) bytes: &'a [u8],
    /// Until when its key has to live.
    pub(super) until_us: u64,
}

/// Identifies the quota of a policy that a record belongs to: the first bytes of a digest of the quota's identity, which is
/// algorithm, period, step and buckets, and whether groups share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub [u8; 4]);

impl Tag {
    pub fn of(quota: &Quota) -> Self {
        let text = match quota.calendar() {
            Some(calendar) => format!("{} {calendar}", quota.algorithm()),
            None => format!(
                "{} {} {} {}",
                quota.algorithm(),
                quota.period_us(),
                quota.step().unwrap_or(0),
                quota.buckets().unwrap_or(0)
            ),
        };
        let text = if quota.is_grouped() { format!("{text} groups") } else { text };
        let digest = Sha256::digest(text);
        Self([digest[0], digest[1], digest[2], digest[3]])
    }

    /// The tag of a record that belongs to all quotas.
    pub const OF_KEY: Self = Self([0; 4]);
    /// The tag of the commits that are remembered, in the shared file.
    pub const OF_COMMITS: Self = Self([0, 0, 0, 1]);
}

/// The bytes that are left to read; they are not trusted.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a big-endian number of `length` bytes, at most 8.
    pub fn number(&mut self, length: usize) -> Option<u64> {
        Some(self.bytes(length)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Reads a length, which is a number of `length` bytes.
    pub fn length(&mut self, length: usize) -> Option<usize> {
        self.number(length).and_then(|length| usize::try_from(length).ok())
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|byte| byte[0])
    }

    pub(super) fn record(&mut self) -> Option<Record<'a>> {
        let all = self.0;
        let byte = self.byte()?;
        let tag = Tag(self.bytes(4)?.try_into().ok()?);
        if byte >= FIRST_WITH_LENGTH {
            let length = self.length(3)?;
            let bytes = Reader(self.bytes(length)?);
            return Some(match byte {
                RESERVATIONS if tag == Tag::OF_KEY => Record::Reservations(bytes),
                COMMITS if tag == Tag::OF_KEY => Record::Commits(bytes),
                BLOCKS if tag == Tag::OF_KEY => Record::Blocks(bytes),
                GROUPS => Record::OfGroups(tag, bytes),
                _ => {
                    let mut content = bytes;
                    let until_us = if byte >= FIRST_WITH_END { content.number(7)? } else { 0 };
                    Record::Unknown(UnknownRecord { tag, bytes: &all[..8 + length], until_us })
                }
            });
        }
        let form = Form::of(byte)?;
        let length = match form {
            Form::ShortBucket => 12,
            Form::Bucket => 20,
            Form::SteppedBucket => 18,
            Form::FixedWindow => 13,
            Form::SlidingWindow => {
                let mut head = *self;
                let (bytes, counts) = (head.byte()?, head.byte()?);
                if !(1..=MAX_COUNT_BYTES).contains(&bytes) {
                    return None;
                }
                15 + usize::from(bytes) * usize::from(counts)
            }
        };
        Some(Record::OfQuota(form, tag, Reader(self.bytes(length)?)))
    }
}

/// Appends a number, big-endian, in `bytes` bytes.
pub(super) fn put(out: &mut Bytes, number: u64, bytes: usize) {
    out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
}

/// Appends the beginning of a record.
pub(super) fn put_head(out: &mut Bytes, form: Form, tag: Tag) {
    out.push(form as u8);
    out.extend_from_slice(&tag.0);
}

/// Reads reservations: how many there are (2), numbers that spare the script reading them all (28), and of each the time at which
/// it ends (7), its time to live (5), its units (5), how long its commit is remembered (5), the length of its id (1) and the id.
pub fn read_reservations(mut record: Reader<'_>) -> Option<Reservations> {
    let number = record.length(2)?;
    record.bytes(4 * 7)?;
    let mut list = Vec::new();
    for _ in 0..number {
        let (ends_us, ttl_us) = (record.number(7)?, record.number(5)?);
        let (units, remember_us) = (record.number(5)?, record.number(5)?);
        let length = record.length(1)?;
        let id = ReservationId::stored(record.bytes(length)?)?;
        list.push(Reservation { id, units, ends_us, ttl_us, remember_us });
    }
    if record.is_empty() { Reservations::of_parts(list) } else { None }
}

/// Appends the bytes of reservations, without the head of a record; none where there are none.
pub fn write_reservations(Reservations(list): &Reservations, out: &mut Bytes) {
    if list.is_empty() {
        return;
    }
    put(out, list.len() as u64, 2);
    let made = list.iter().map(|reservation| reservation.ends_us.saturating_sub(reservation.ttl_us)).max();
    let ends = || list.iter().map(|reservation| reservation.ends_us);
    let units = list.iter().map(|reservation| reservation.units).sum::<u64>();
    for number in [made, ends().min(), ends().max(), Some(units)] {
        put(out, number.unwrap_or(0), 7);
    }
    for Reservation { id, units, ends_us, ttl_us, remember_us } in list {
        put(out, *ends_us, 7);
        put(out, *ttl_us, 5);
        put(out, *units, 5);
        put(out, *remember_us, 5);
        put(out, id.as_bytes().len() as u64, 1);
        out.extend_from_slice(id.as_bytes());
    }
}

/// The place of the group that was served last, as it is stored: places before it are less.
const PLACE_OF_SERVED: u64 = 2 * MAX_PLACE;

/// Reads the rest of a record of the form 9; `None` when it is malformed.
pub(super) fn read_groups(mut record: Reader<'_>) -> Option<grouped::State> {
    let (at, exponent) =
        (record.number(7)?, record.byte().filter(|exponent| *exponent <= MAX_TICK_EXPONENT)?);
    let (limit, scale, borrowed) = (record.number(5)?, record.number(6)?, record.number(7)?);
    if at > MAX_US / 10_u64.pow(exponent.into()) || limit > Quota::MAX_UNITS || borrowed > MAX_DEBT {
        return None;
    }
    let mut state = grouped::State { at, exponent, limit, scale, borrowed, parts: Vec::new() };
    for _ in 0..record.byte()? {
        let tag = GroupTag(record.bytes(4)?.try_into().ok()?);
        let (own, rate, top, top_rate) =
            (record.number(7)?, record.number(5)?, record.number(7)?, record.number(5)?);
        let (place, claim, until_us) = (record.number(7)?, record.number(5)?, record.number(7)?);
        if own > MAX_DEBT
            || top > MAX_DEBT
            || place.abs_diff(PLACE_OF_SERVED) > MAX_PLACE
            || until_us > MAX_US
        {
            return None;
        }
        let place = i64::try_from(place).ok()? - i64::try_from(PLACE_OF_SERVED).ok()?;
        let debts = grouped::Debts { own, top, place, claim, until_us };
        state.parts.push(grouped::Part { tag, rate, top_rate, debts });
    }
    record.is_empty().then_some(state)
}

/// Appends a record of the form 9; none when nothing is used and no group waits.
pub(super) fn write_groups(state: &grouped::State, tag: Tag, out: &mut Bytes) {
    if state.holds_nothing() {
        return;
    }
    out.push(GROUPS);
    out.extend_from_slice(&tag.0);
    put(out, (27 + 47 * state.parts.len()) as u64, 3);
    put(out, state.at, 7);
    put(out, state.exponent.into(), 1);
    put(out, state.limit, 5);
    put(out, state.scale, 6);
    put(out, state.borrowed, 7);
    put(out, state.parts.len() as u64, 1);
    for grouped::Part { tag, rate, top_rate, debts } in &state.parts {
        let grouped::Debts { own, top, place, claim, until_us } = *debts;
        out.extend_from_slice(&tag.0);
        put(out, own, 7);
        put(out, *rate, 5);
        put(out, top, 7);
        put(out, *top_rate, 5);
        put(out, PLACE_OF_SERVED.saturating_add_signed(place), 7);
        put(out, claim, 5);
        put(out, until_us, 7);
    }
}

/// Reads a record of blocks. Numbers beyond their bounds are brought into them, as a transition would do.
pub(super) fn read_blocks(mut record: Reader<'_>) -> Option<BlockRecord> {
    let (until_us, length_us, since_us) = (record.number(7)?, record.number(6)?, record.number(7)?);
    let (count, level) = (u16::try_from(record.number(2)?).ok()?, record.byte()?);
    record.is_empty().then_some(BlockRecord {
        until_us: until_us.min(MAX_US),
        length_us,
        since_us: since_us.min(MAX_US),
        count,
        level: level.min(BlockRecord::MAX_LEVEL),
    })
}

/// Appends a record of blocks, if it says anything.
pub(super) fn write_blocks(record: &BlockRecord, out: &mut Bytes) {
    let BlockRecord { until_us, length_us, since_us, count, level } = *record;
    if *record == BlockRecord::default() {
        return;
    }
    out.push(BLOCKS);
    out.extend_from_slice(&Tag::OF_KEY.0);
    put(out, BLOCKS_LENGTH as u64, 3);
    put(out, until_us, 7);
    put(out, length_us, 6);
    put(out, since_us, 7);
    put(out, count.into(), 2);
    put(out, level.into(), 1);
}

/// Until when the key of these records has to live for those that are not known here.
pub fn unknown_until_us(records: &[u8]) -> u64 {
    let (mut rest, mut until_us) = (Reader(records), 0);
    while let Some(record) = rest.record() {
        if let Record::Unknown(unknown) = record {
            until_us = until_us.max(unknown.until_us);
        }
    }
    until_us
}

/// Whether there is a record of blocks among the records, which may be of an unknown policy.
pub fn has_blocks(records: &[u8]) -> bool {
    let mut rest = Reader(records);
    while let Some(record) = rest.record() {
        if matches!(record, Record::Blocks(_)) {
            return true;
        }
    }
    false
}
