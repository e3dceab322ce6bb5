//! The value of a key's main string in Redis: read and written byte for byte as the scripts do.
//!
//! The value has the records of the quotas in their order, then the reservations, the blocks, the remembered commits, and what a
//! later version wrote. What an operation does not change stays as it was found.

use std::ops::Range;

use smallvec::SmallVec;

use super::log::log_period_us;
use super::record::{
    Bytes, COMMITS, Form, RESERVATIONS, Reader, Record, Tag, put, read_blocks, read_reservations,
    write_blocks, write_reservations,
};
use super::{PolicyCodec, QuotaCodec, States, Unreadable, write_long_bucket, write_state};
use crate::algorithm::State;
use crate::general::KeyOperation;
use crate::quota::tick::rate;
use crate::quota::{Algorithm, Quota};
use crate::reservation::list::{AS_RESERVED, Held, Hold, MAX_RESERVATIONS, Reservations, end_of};
use crate::transition::{Operation, PolicyRules};
use crate::units::MAX_US;

/// Keys live until a multiple of their quota's period or of this, whichever is longer, so that their time to live is rarely renewed.
const MIN_EXPIRY_UNIT_US: u64 = 10_000_000;
/// The bytes of a record of reservations before the first of them.
const HEAD: usize = 38;
/// Where a reservation has the length of its id, and the bytes of one at least.
const ID_LENGTH_AT: usize = 22;
const MIN_ENTRY: usize = 24;

/// The record of a quota, if there is one, and its form.
type QuotaRecord<'a> = Option<(Form, &'a [u8])>;

/// A value that was found, cut into its records.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    /// The record of each quota.
    quotas: SmallVec<[QuotaRecord<'a>; 4]>,
    reservations: Option<&'a [u8]>,
    blocks: Option<&'a [u8]>,
    commits: Option<&'a [u8]>,
    /// What a later version wrote.
    unknown: SmallVec<[&'a [u8]; 1]>,
    /// Until when the key has to live for that.
    unknown_until_us: u64,
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

impl Value<'_> {
    /// Whether another value has the same records, in whichever order.
    pub fn has_records_of(&self, other: &Value<'_>) -> bool {
        self.quotas.iter().eq(other.quotas.iter())
            && (self.reservations, self.blocks, self.commits)
                == (other.reservations, other.blocks, other.commits)
            && self.unknown.iter().eq(other.unknown.iter())
    }

    /// Whether the key has reservations.
    pub fn has_reservations(&self) -> bool {
        self.reservations.is_some()
    }
}

impl Written {
    /// What an operation of this cost has written that has spent this number of units, if it has written anything.
    pub fn by(operation: Operation, spent: u64, cost: u64) -> Self {
        match operation {
            _ if spent > 0 => Self::All,
            Operation::Charge | Operation::Refund if cost > 0 => Self::All,
            Operation::Commit | Operation::Cancel | Operation::Renew => Self::All,
            Operation::Reserve => Self::AllIfReserved,
            _ => Self::Changed,
        }
    }
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

    /// Whether a record may have these numbers in front.
    fn fit(&self, record: &[u8]) -> bool {
        let (most, least) = (MAX_RESERVATIONS as u64, HEAD as u64 + MIN_ENTRY as u64 * self.number);
        (1..=most).contains(&self.number) && self.last_us <= MAX_US && record.len() as u64 >= least
    }
}

impl PolicyCodec {
    /// Cuts a value.
    ///
    /// # Errors
    /// When it is malformed, or a later version has written the state of a quota.
    pub fn cut<'a>(&self, bytes: &'a [u8]) -> Result<Value<'a>, Unreadable> {
        let mut is_newer = false;
        let value = self.cut_records(bytes, &mut is_newer);
        if is_newer { Err(Unreadable::Newer) } else { value.ok_or(Unreadable::Malformed) }
    }

    fn cut_records<'a>(&self, bytes: &'a [u8], is_newer: &mut bool) -> Option<Value<'a>> {
        let mut value = Value {
            quotas: SmallVec::from_elem(None, self.quotas.len()),
            reservations: None,
            blocks: None,
            commits: None,
            unknown: SmallVec::new(),
            unknown_until_us: 0,
        };
        let mut rest = Reader(bytes);
        while !rest.is_empty() {
            let from = bytes.len() - rest.0.len();
            let record = rest.record()?;
            let whole = &bytes[from..bytes.len() - rest.0.len()];
            match record {
                Record::OfQuota(form, tag, _) => {
                    let of_tag = self.quotas.iter().position(|quota| quota.tag == tag);
                    // A log has a key of its own.
                    let of_tag = of_tag.filter(|at| log_period_us(&self.policy.quotas()[*at]).is_none());
                    if let Some(place) = of_tag.filter(|at| value.quotas[*at].is_none()) {
                        value.quotas[place] = Some((form, whole));
                    }
                }
                // Of another policy: what groups share is not decided here.
                Record::OfGroups(..) => {}
                Record::Reservations(_) => value.reservations = Some(whole),
                Record::Commits(_) => value.commits = Some(whole),
                Record::Blocks(_) => value.blocks = Some(whole),
                Record::Unknown(record) => {
                    *is_newer |= self.quotas.iter().any(|quota| quota.tag == record.tag);
                    value.unknown_until_us = value.unknown_until_us.max(record.until_us);
                    value.unknown.push(whole);
                }
            }
        }
        Some(value)
    }

    /// The states in a value, as [`read`](Self::read) reads them; `None` when one is malformed.
    pub fn states(&self, value: &Value<'_>, now_us: u64) -> Option<States> {
        let mut states = self.states_of_quotas(value, now_us)?;
        if let Some(record) = value.reservations {
            states.push(State::Reservations(Box::new(read_list(record)?)));
        }
        if let Some(record) = value.commits {
            states.push(State::Commits(Box::new(read_list(record)?)));
        }
        if let Some(record) = value.blocks {
            states.push(State::Block(Box::new(read_blocks(Reader(record.get(8..)?))?)));
        }
        Some(states)
    }

    fn states_of_quotas(&self, value: &Value<'_>, now_us: u64) -> Option<States> {
        let superseded_at = self.superseded_at(now_us);
        let mut states = States::new();
        for ((quota, codec), record) in self.each().zip(&value.quotas) {
            states.push(match record {
                Some((form, record)) if quota.algorithm() != Algorithm::SlidingLog => {
                    codec.read(*form, Reader(record.get(5..)?), quota, superseded_at)?
                }
                _ => State::fresh(quota),
            });
        }
        Some(states)
    }

    /// The time until which a key with this value lives at least: with every quota that has a record.
    pub fn lives_until_us(&self, value: &Value<'_>) -> u64 {
        let records = self.each().zip(&value.quotas);
        let quotas =
            records.filter_map(|((quota, codec), record)| Some(lives_until_us(quota, codec, (*record)?.1)));
        let lists = [value.reservations, value.commits].into_iter().flatten().map(list_lives_until_us);
        quotas.chain(lists).fold(value.unknown_until_us, u64::max)
    }

    /// Decides a check, a reserve or a commit of a key with reservations by the numbers in front of them, which spares reading them all, and
    /// appends the value that it leaves. Returns the units spent, and the time until which the key has to live. `None`, and nothing is
    /// appended, for everything else: what is denied, what these numbers do not suffice for, and ids that are or are not there.
    pub fn change_held(
        &self,
        rules: &PolicyRules,
        value: &Value<'_>,
        request: KeyOperation<'_>,
        out: &mut Bytes,
    ) -> Option<(u64, u64)> {
        let KeyOperation { now_us, operation, cost, headroom, hold } = request;
        let record = value.reservations?;
        let is_alone = value.blocks.is_none() && value.commits.is_none() && value.unknown.is_empty();
        let is_plain = self.policy.penalty().is_none() && self.policy.groups().is_none() && headroom == 0;
        let sums = Sums::of(record).filter(|sums| sums.suffice(now_us) && sums.fit(record))?;
        if !is_alone || !is_plain {
            return None;
        }
        let mut states = self.states_of_quotas(value, now_us)?;
        let set_aside = Held { from_us: now_us, units: sums.units, alive: sums.number };
        let entries = &record[HEAD..];
        let mut next = sums;
        let (mut spent, mut added, mut gone) = (0, Bytes::new(), entries.len()..entries.len());
        match (operation, hold) {
            (Operation::Check, None) if cost > 0 => {
                if !rules.admits_beside(&states, now_us, cost, set_aside, false) {
                    return None;
                }
                rules.spend_each(&mut states, now_us, cost);
                spent = cost;
            }
            (Operation::Reserve, Some(hold)) => {
                let is_there = find_entry(entries, hold.id.as_bytes()).ok()?.is_some();
                if is_there || !rules.admits_beside(&states, now_us, cost, set_aside, true) {
                    return None;
                }
                rules.spend_each(&mut states, now_us, 0);
                let ends_us = end_of(now_us, hold.ttl_us);
                put_entry(hold, ends_us, cost, &mut added);
                next = Sums {
                    number: sums.number + 1,
                    made_us: sums.made_us.max(now_us),
                    first_us: sums.first_us.min(ends_us),
                    last_us: sums.last_us.max(ends_us),
                    units: sums.units + cost,
                };
            }
            (Operation::Commit, Some(hold)) => {
                let found = find_entry(entries, hold.id.as_bytes()).ok()??;
                let mut numbers = Reader(&entries[found.start + 12..]);
                let (reserved, remembered) = (numbers.number(5)?, numbers.number(5)?);
                if remembered > 0 {
                    return None;
                }
                let units = if cost == AS_RESERVED { reserved } else { cost };
                rules.settle_each(&mut states, now_us, units);
                next = Sums { number: sums.number - 1, units: sums.units.checked_sub(reserved)?, ..sums };
                gone = found;
            }
            _ => return None,
        }
        let mut until_us = self.write_quotas(value, &states, out);
        if next.number > 0 {
            out.push(RESERVATIONS);
            out.extend_from_slice(&Tag::OF_KEY.0);
            let length = HEAD - 8 + entries.len() - gone.len() + added.len();
            put(out, length as u64, 3);
            put(out, next.number, 2);
            for number in [next.made_us, next.first_us, next.last_us, next.units] {
                put(out, number, 7);
            }
            out.extend_from_slice(&entries[..gone.start]);
            out.extend_from_slice(&entries[gone.end..]);
            out.extend_from_slice(&added);
            until_us = until_us.max(next_multiple(next.last_us, MIN_EXPIRY_UNIT_US));
        }
        Some((spent, until_us))
    }

    /// Appends the records of all quotas, and returns the time until which their key has to live.
    fn write_quotas(&self, before: &Value<'_>, states: &States, out: &mut Bytes) -> u64 {
        let mut until_us = 0;
        for (at, (quota, record)) in self.policy.quotas().iter().zip(&before.quotas).enumerate() {
            let from = out.len();
            if quota.limit() == 0 && quota.algorithm().is_rate() {
                out.extend_from_slice(record.map_or(&[], |(_, record)| record));
            } else {
                self.write_record(at, &states[at], out);
            }
            until_us = until_us.max(lives_until_us(quota, &self.quotas[at], &out[from..]));
        }
        until_us
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
        let found = if is_all { None } else { self.states(before, now_us) };
        let mut until_us = before.unknown_until_us;
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
                out.extend_from_slice(record.map_or(&[], |(_, record)| record));
            }
            until_us = until_us.max(lives_until_us(quota, &self.quotas[at], &out[from..]));
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
fn read_list(record: &[u8]) -> Option<Reservations> {
    read_reservations(Reader(record.get(8..)?))
}

/// The bytes are not those of reservations.
struct Malformed;

/// Where the reservation with this id is among the bytes of all.
fn find_entry(entries: &[u8], id: &[u8]) -> Result<Option<Range<usize>>, Malformed> {
    let mut at = 0;
    while at < entries.len() {
        let length = usize::from(*entries.get(at + ID_LENGTH_AT).ok_or(Malformed)?);
        let end = at + ID_LENGTH_AT + 1 + length;
        if entries.get(at + ID_LENGTH_AT + 1..end).ok_or(Malformed)? == id {
            return Ok(Some(at..end));
        }
        at = end;
    }
    Ok(None)
}

/// Appends the bytes of a reservation, as `write_reservations` does.
fn put_entry(hold: &Hold, ends_us: u64, units: u64, out: &mut Bytes) {
    put(out, ends_us, 7);
    put(out, hold.ttl_us, 5);
    put(out, units, 5);
    put(out, hold.remember_us, 5);
    put(out, hold.id.as_bytes().len() as u64, 1);
    out.extend_from_slice(hold.id.as_bytes());
}

/// Whether the last of a key's reservations was added just now.
fn is_added(before: Option<&[u8]>, after: Option<&Reservations>, now_us: u64) -> bool {
    let Some(last) = after.and_then(|list| list.0.last()) else { return false };
    let found = before.and_then(read_list);
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
    let known = before.and_then(|record| Some((record, read_list(record)?)));
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

/// The time until which a key with this record lives at least; 0 without a record. It depends on the record alone, whatever its quota's
/// numbers are now.
fn lives_until_us(quota: &Quota, codec: &QuotaCodec, record: &[u8]) -> u64 {
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
            let start_us = record.number(7)?;
            return Some(match &codec.window_us {
                Some(window_us) if start_us < window_us.start => window_us.start,
                Some(window_us) => window_us.end,
                None => start_us + quota.period_us(),
            });
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

#[cfg(test)]
mod tests;
