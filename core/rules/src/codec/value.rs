//! The value of a key's main string in Redis: read and written byte for byte as the scripts do.
//!
//! The value has the records of the quotas in their order, then the reservations, the blocks, the remembered commits, and what a
//! later version wrote. What an operation does not change stays as it was found.

use smallvec::SmallVec;

use super::record::{
    Bytes, COMMITS, Form, RESERVATIONS, Reader, Record, Tag, put, read_reservations, write_blocks,
    write_reservations,
};
use super::{PolicyCodec, States, write_long_bucket, write_state};
use crate::algorithm::State;
use crate::history::rate;
use crate::quota::Quota;
use crate::reservation::list::Reservations;

/// Keys live until a multiple of their quota's period or of this, whichever is longer, so that their time to live is rarely renewed.
const MIN_EXPIRY_UNIT_US: u64 = 10_000_000;
/// The bytes of a record of reservations before the first of them.
const HEAD: usize = 38;

/// A value that was found, cut into its records.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    bytes: &'a [u8],
    /// The record of each quota.
    quotas: SmallVec<[Option<&'a [u8]>; 4]>,
    reservations: Option<&'a [u8]>,
    commits: Option<&'a [u8]>,
    /// What a later version wrote.
    unknown: SmallVec<[&'a [u8]; 1]>,
}

/// Which states an operation has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Those of all quotas, as with everything that is spent.
    All,
    /// Those that differ from before.
    Changed,
    /// Those of all quotas if a reservation was added, or else those that differ.
    AllIfReserved,
}

/// The numbers in front of a key's reservations, which suffice for a decision while none of them has ended and the clock is not
/// behind any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sums {
    number: u64,
    /// No reservation was made later.
    made_us: u64,
    /// None ends earlier.
    first_us: u64,
    /// None ends later.
    last_us: u64,
    units: u64,
}

impl Sums {
    /// Reads a whole record.
    fn of(record: &[u8]) -> Option<Self> {
        let mut numbers = Reader(record.get(8..HEAD)?);
        Some(Self {
            number: numbers.number(2)?,
            made_us: numbers.number(7)?,
            first_us: numbers.number(7)?,
            last_us: numbers.number(7)?,
            units: numbers.number(7)?,
        })
    }

    fn suffice(&self, now_us: u64) -> bool {
        self.made_us <= now_us && self.first_us > now_us
    }
}

impl PolicyCodec {
    /// Cuts a value; `None` when it is malformed. States are read by [`read`](Self::read).
    pub fn cut<'a>(&self, bytes: &'a [u8]) -> Option<Value<'a>> {
        let mut value = Value {
            bytes,
            quotas: SmallVec::from_elem(None, self.quotas.len()),
            reservations: None,
            commits: None,
            unknown: SmallVec::new(),
        };
        let mut rest = Reader(bytes);
        while !rest.is_empty() {
            let from = bytes.len() - rest.0.len();
            let record = rest.record()?;
            let whole = &bytes[from..bytes.len() - rest.0.len()];
            match record {
                Record::OfQuota(_, tag, _) | Record::OfGroups(tag, _) => {
                    let of_tag = self.quotas.iter().position(|quota| quota.tag == tag);
                    if let Some(place) = of_tag.filter(|at| value.quotas[*at].is_none()) {
                        value.quotas[place] = Some(whole);
                    }
                }
                Record::Reservations(_) => value.reservations = Some(whole),
                Record::Commits(_) => value.commits = Some(whole),
                // Every write writes it anew.
                Record::Blocks(_) => {}
                Record::Unknown => value.unknown.push(whole),
            }
        }
        Some(value)
    }

    /// The time until which a key with this value lives at least: with every quota that has a record.
    pub fn lives_until_us(&self, value: &Value<'_>) -> u64 {
        let records = self.policy.quotas().iter().zip(&value.quotas);
        let quotas = records.filter_map(|(quota, record)| Some(lives_until_us(quota, (*record)?)));
        let lists = [value.reservations, value.commits].into_iter().flatten().map(list_lives_until_us);
        quotas.chain(lists).max().unwrap_or(0)
    }

    /// Appends the record of a quota in the form that the scripts' fast path expects: a bucket whose debt may need a long record always has one.
    fn write_record(&self, at: usize, state: &State, out: &mut Bytes) {
        let (quota, codec) = (&self.policy.quotas()[at], &self.quotas[at]);
        match state {
            State::TokenBucket(state) if !codec.is_short => write_long_bucket(out, *state, codec.tag),
            state => write_state(out, state, quota, codec.tag),
        }
    }

    /// Appends the value after an operation that has written something, and returns the time until which its key has to live.
    pub fn write_value(
        &self,
        before: &Value<'_>,
        states: &States,
        written: Written,
        now_us: u64,
        out: &mut Bytes,
    ) -> u64 {
        let rest = &states[self.quotas.len()..];
        let of = |wanted: fn(&State) -> Option<&Reservations>| rest.iter().find_map(wanted);
        let reservations = of(|state| match state {
            State::Reservations(list) => Some(list),
            _ => None,
        });
        let is_all = match written {
            Written::All => true,
            Written::Changed => false,
            Written::AllIfReserved => is_added(before.reservations, reservations, now_us),
        };
        let found = if is_all { None } else { self.read(before.bytes, now_us) };
        let mut until_us = 0;
        for (at, (quota, record)) in self.policy.quotas().iter().zip(&before.quotas).enumerate() {
            let from = out.len();
            self.write_record(at, &states[at], out);
            let unchanged = |found: &States| {
                let mut then = Bytes::new();
                self.write_record(at, &found[at], &mut then);
                then[..] == out[from..]
            };
            // Under a limit of 0 nothing is written.
            let is_kept = quota.limit() == 0 && quota.algorithm().is_rate()
                || found.as_ref().is_some_and(|found| !found[at].holds_nothing() && unchanged(found))
                    && !(self.is_changed_now && quota.step().is_some());
            if is_kept {
                out.truncate(from);
                out.extend_from_slice(record.unwrap_or_default());
            }
            if out.len() > from {
                until_us = until_us.max(lives_until_us(quota, &out[from..]));
            }
        }
        until_us = until_us.max(put_list(RESERVATIONS, before.reservations, reservations, now_us, out));
        for state in rest {
            if let State::Block(record) = state {
                write_blocks(record, out);
                let counts_us = now_us + record.expires_after_us(now_us, self.policy.penalty());
                until_us = until_us.max(next_multiple(counts_us, MIN_EXPIRY_UNIT_US));
            }
        }
        let commits = of(|state| match state {
            State::Commits(list) => Some(list),
            _ => None,
        });
        until_us = until_us.max(put_list(COMMITS, before.commits, commits, now_us, out));
        before.unknown.iter().for_each(|record| out.extend_from_slice(record));
        until_us
    }
}

/// The reservations or commits of a whole record.
fn read_list(record: Option<&[u8]>) -> Option<Reservations> {
    read_reservations(Reader(record?.get(8..)?))
}

/// Whether the last of a key's reservations was added just now.
fn is_added(before: Option<&[u8]>, after: Option<&Reservations>, now_us: u64) -> bool {
    let Some(last) = after.and_then(|list| list.0.last()) else { return false };
    let found = read_list(before);
    let was_last = found.as_ref().and_then(|list| list.0.last());
    was_last.is_none_or(|was| was.id != last.id || was.ends_by(now_us) <= now_us)
}

/// Appends a record of reservations or commits after an operation, and returns the time until which its key has to live.
fn put_list(
    form: u8,
    before: Option<&[u8]>,
    after: Option<&Reservations>,
    now_us: u64,
    out: &mut Bytes,
) -> u64 {
    let Some(after) = after.filter(|list| !list.0.is_empty()) else { return 0 };
    let known = before.zip(read_list(before));
    if let Some((record, found)) = &known
        && found == after
    {
        out.extend_from_slice(record);
        return list_lives_until_us(record);
    }
    let from = out.len();
    out.push(form);
    out.extend_from_slice(&Tag::OF_KEY.0);
    put(out, 0, 3);
    write_reservations(after, out);
    // The script does not read all of them for exact bounds where those in front suffice.
    if let Some((record, found)) = known
        && let Some(sums) = Sums::of(record).filter(|sums| sums.suffice(now_us))
    {
        let added = after.0.iter().filter(|one| !found.0.contains(one));
        let (mut made_us, mut first_us, mut last_us) = (sums.made_us, sums.first_us, sums.last_us);
        for one in added {
            made_us = made_us.max(now_us);
            (first_us, last_us) = (first_us.min(one.ends_us), last_us.max(one.ends_us));
        }
        for (at, number) in [(10, made_us), (17, first_us), (24, last_us)] {
            out[from + at..from + at + 7].copy_from_slice(&number.to_be_bytes()[1..]);
        }
    }
    let length = (out.len() - from - 8) as u64;
    out[from + 5..from + 8].copy_from_slice(&length.to_be_bytes()[5..]);
    list_lives_until_us(&out[from..])
}

/// The time until which a key with these reservations lives at least, by the numbers in front of them.
fn list_lives_until_us(record: &[u8]) -> u64 {
    next_multiple(Sums::of(record).map_or(0, |sums| sums.last_us), MIN_EXPIRY_UNIT_US)
}

/// The first multiple of a unit after a time.
fn next_multiple(us: u64, unit_us: u64) -> u64 {
    (us / unit_us).saturating_add(1).saturating_mul(unit_us)
}

/// The time until which a key with this record lives at least. It depends on the record alone, whatever its quota's numbers are now.
fn lives_until_us(quota: &Quota, record: &[u8]) -> u64 {
    let unit_us = quota.period_us().max(MIN_EXPIRY_UNIT_US);
    let read = || {
        let mut record = Reader(record);
        let form = record.byte()?;
        record.bytes(4)?;
        if form == Form::ShortBucket as u8 {
            return Some(next_multiple(record.number(7)? + record.number(5)?, unit_us));
        }
        if form == Form::Bucket as u8 {
            let (at, debt, limit) = (record.number(7)?, record.number(7)?, record.number(5)?);
            let tick_us = 10_u64.checked_pow(record.byte()?.into())?;
            if limit == 0 {
                return None;
            }
            let ticks = at + debt.div_ceil(rate(limit, quota.period_us(), tick_us));
            return Some(next_multiple(ticks.saturating_mul(tick_us), unit_us));
        }
        if form == Form::SteppedBucket as u8 {
            let (used, at_us, limit) = (record.number(6)?, record.number(7)?, record.number(5)?);
            let step = quota.step()?;
            let interval_us = u128::from(step) * u128::from(quota.period_us()) / u128::from(limit.max(1));
            let full_us = u128::from(at_us) + u128::from(used.div_ceil(step)) * interval_us;
            return Some(next_multiple(u64::try_from(full_us).unwrap_or(u64::MAX), unit_us));
        }
        if form == Form::FixedWindow as u8 {
            record.number(6)?;
            return Some(record.number(7)? + quota.period_us());
        }
        if form == Form::SlidingWindow as u8 {
            record.bytes(2)?;
            let (newest, buckets) = (record.number(7)?, u64::from(quota.buckets().unwrap_or(1)));
            let width_us = quota.period_us() / buckets;
            return Some(next_multiple((newest + buckets + 1).saturating_mul(width_us), unit_us));
        }
        None
    };
    read().unwrap_or(0)
}
