//! The value of a sliding log's key in Redis: read where it is needed, and changed byte for byte as the scripts do
//! (`core/store-redis/src/script/lua/transition/sliding_log.lua`). A log may have millions of entries, so that nothing here reads all of
//! them but a write that has to.
//!
//! Value: origin (7, us), bytes of a total w (1), total before the first entry (w), then for each entry the time since the origin (6, us) and
//! the running total (w). Totals wrap around; only differences count.

use smallvec::SmallVec;

use super::record::{Bytes, Reader, put};
use crate::algorithm::{State, sliding_log};
use crate::general::{KeyOperation, kept};
use crate::history::Change;
use crate::policy::Policy;
use crate::quota::tick::SATURATION;
use crate::quota::{Algorithm, Quota};
use crate::transition::Operation;
use crate::units::MAX_US;

/// A log with fewer bytes is written as a whole.
const SHORT: usize = 4_096;
/// The most units that a log may have: 8 times the largest capacity fits.
const MAX_UNITS: u64 = (1 << 43) - 1;
/// Totals have four bytes where they stay below this.
const MAX_SHORT_TOTAL: u64 = 1 << 31;
/// The time of an entry has six bytes.
const MAX_SINCE_ORIGIN_US: u64 = 1 << 48;
const HEAD: usize = 8;

/// The period of a log, which names its key; `None` for any other quota.
pub fn log_period_us(quota: &Quota) -> Option<u64> {
    (quota.algorithm() == Algorithm::SlidingLog).then(|| quota.period_us())
}

/// What the name of a log's key has after that of the main key.
pub fn suffix(period_us: u64) -> Box<[u8]> {
    format!(":log:{period_us}").into_bytes().into()
}

/// The most keys of an entry that are only deleted.
pub const MAX_DROPPED: usize = 255;

/// The periods of the logs that only other quotas of a policy used, in the order of their keys: the next write deletes them.
pub fn dropped_logs(policy: &Policy, change: Change<'_>) -> Vec<u64> {
    let used: Vec<u64> = policy.quotas().iter().filter_map(log_period_us).collect();
    let mut dropped = Vec::new();
    for period_us in change.others().flat_map(Policy::quotas).filter_map(log_period_us) {
        if !used.contains(&period_us) && !dropped.contains(&period_us) {
            dropped.push(period_us);
        }
    }
    dropped.truncate(MAX_DROPPED);
    dropped
}

/// The log of a key, as it was found, and what an operation changes.
#[derive(Clone, Debug)]
pub struct Log<'a> {
    bytes: &'a [u8],
    width: usize,
    origin_us: u64,
    /// The number of entries.
    length: usize,
    /// The first entry that counts, and the total before it.
    first: usize,
    before: u64,
    /// The units that count, and when the newest of them was spent.
    used: u64,
    newest_us: u64,
    /// How many entries stay as they are, and the last one after them: its time, and the units up to it, from those that count.
    kept: usize,
    tail: Option<(u64, u64)>,
    now_us: u64,
    is_there: bool,
    /// Whether what was found was none of ours, so that everything counts as used.
    is_healed: bool,
    is_written: bool,
    capacity: u64,
    period_us: u64,
}

/// What happens to the key of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogChange {
    /// It stays as it is.
    Nothing,
    /// It is deleted.
    Delete,
    /// It gets another value.
    Set(Bytes),
    /// Bytes are written at a place, the end at most, and follow what is before it.
    Write(usize, Bytes),
}

/// The entries of a log are not in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfOrder;

impl<'a> Log<'a> {
    /// Reads a log; one that is malformed is [full](Self::full). No bytes are a key that is not there.
    pub fn read(quota: &Quota, bytes: &'a [u8], now_us: u64) -> Self {
        if bytes.is_empty() {
            return Self::empty(quota, now_us);
        }
        Self::read_entries(quota, bytes, now_us).unwrap_or_else(|| Self::full(quota, now_us))
    }

    fn empty(quota: &Quota, now_us: u64) -> Self {
        Self {
            bytes: &[],
            width: width_of(quota.capacity()),
            origin_us: now_us,
            length: 0,
            first: 0,
            before: 0,
            used: 0,
            newest_us: 0,
            kept: 0,
            tail: None,
            now_us,
            is_there: false,
            is_healed: false,
            is_written: false,
            capacity: quota.capacity(),
            period_us: quota.period_us(),
        }
    }

    /// The log of a key whose value is none of ours: everything counts as used from now on, and is written.
    pub fn full(quota: &Quota, now_us: u64) -> Self {
        let used = quota.capacity();
        Self {
            used,
            newest_us: now_us,
            tail: Some((now_us, used)),
            is_there: true,
            is_healed: true,
            is_written: true,
            ..Self::empty(quota, now_us)
        }
    }

    fn read_entries(quota: &Quota, bytes: &'a [u8], now_us: u64) -> Option<Self> {
        let mut head = Reader(bytes);
        let (origin_us, width) = (head.number(7)?, head.length(1)?);
        if (width != 4 && width != 6) || origin_us > MAX_US {
            return None;
        }
        let before = head.number(width)?;
        let (entries, size) = (head.0.len(), 6 + width);
        let length = entries / size;
        if length == 0 || entries % size > 0 {
            return None;
        }
        let log =
            Self { bytes, width, origin_us, length, before, is_there: true, ..Self::empty(quota, now_us) };
        let (newest_us, total) = log.entry(length - 1)?;
        // What has expired for the newest entry stays so, though it may still be stored, when the clock goes back.
        let expired_us = now_us.max(newest_us).checked_sub(quota.period_us());
        let first = match expired_us {
            Some(expired_us) if newest_us <= expired_us => length,
            Some(expired_us) => log.first_where(0, length - 1, |log, at| log.us_of(at) > expired_us),
            None => 0,
        };
        let before = if first > 0 { log.entry(first - 1)?.1 } else { before };
        let used = total.wrapping_sub(before) & log.mask();
        let is_malformed = first < length && (used == 0 || used > MAX_UNITS || newest_us < log.us_of(first));
        let log = Self { first, before, used, newest_us, kept: length, ..log };
        (!is_malformed && newest_us <= MAX_US).then_some(log)
    }

    fn mask(&self) -> u64 {
        (1 << (8 * self.width)) - 1
    }

    /// When an entry was, and the total up to and including it.
    fn entry(&self, at: usize) -> Option<(u64, u64)> {
        let mut entry = Reader(self.bytes.get(self.place(at)..)?);
        Some((self.origin_us + entry.number(6)?, entry.number(self.width)?))
    }

    /// Where an entry begins.
    fn place(&self, at: usize) -> usize {
        HEAD + self.width + at * (6 + self.width)
    }

    fn us_of(&self, at: usize) -> u64 {
        self.entry(at).map_or(0, |(at_us, _)| at_us)
    }

    /// The units up to and including an entry, from those that count.
    fn units_of(&self, at: usize) -> u64 {
        self.entry(at).map_or(0, |(_, total)| total.wrapping_sub(self.before) & self.mask())
    }

    /// The first entry from `low` on for which a condition holds, which holds from some entry on; `high` where it holds for none before.
    fn first_where(&self, mut low: usize, mut high: usize, holds: impl Fn(&Self, usize) -> bool) -> usize {
        while low < high {
            let middle = usize::midpoint(low, high);
            if holds(self, middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// The first entry that counts with which there are this number of units.
    fn entry_with(&self, units: u64) -> usize {
        self.first_where(self.first, self.length.saturating_sub(1), |log, at| log.units_of(at) >= units)
    }

    /// Whether what was found was none of ours.
    pub fn is_healed(&self) -> bool {
        self.is_healed
    }

    /// Whether it changes.
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// The state that a transition needs: the units that count, as if all of them were spent when the newest was.
    pub fn state(&self) -> sliding_log::State {
        let newest = (self.used > 0).then_some((self.newest_us, self.used));
        sliding_log::State::of_parts(newest)
    }

    /// Changes the log as an operation has changed its [state](Self::state). A refund gives back `refunded` units, and everything else
    /// spends some, or moves back what is ahead of the clock.
    pub fn follow(&mut self, state: &sliding_log::State, refunded: Option<u64>) {
        if !state.is_written() {
            return;
        }
        self.is_written = true;
        self.rewind();
        match refunded {
            Some(units) => self.refund(units),
            None => self.spend(state.units().saturating_sub(self.used)),
        }
    }

    /// Moves what is ahead of the clock back to it.
    fn rewind(&mut self) {
        let now_us = self.now_us;
        if self.length > 0 && self.newest_us > now_us {
            self.kept = self.first_where(self.first, self.length - 1, |log, at| log.us_of(at) >= now_us);
            self.tail = Some((now_us, self.used));
        }
    }

    fn spend(&mut self, units: u64) {
        let now_us = self.now_us;
        if self.tail.is_none() && self.length > self.first && self.newest_us == now_us {
            self.kept = self.length - 1;
            self.tail = Some((now_us, self.used));
        } else if self.tail.is_none() && units > 0 {
            self.tail = Some((now_us, self.used));
        }
        if let Some((_, tail)) = &mut self.tail {
            *tail += units;
        }
    }

    fn refund(&mut self, units: u64) {
        let left = self.used.saturating_sub(units);
        if left == 0 {
            (self.kept, self.tail) = (self.first, None);
            return;
        }
        let found = if self.length == 0 { 0 } else { self.entry_with(left) };
        if self.length > 0 && found < self.kept {
            (self.kept, self.tail) = (found, Some((self.us_of(found), left)));
        } else if let Some((_, tail)) = &mut self.tail {
            *tail = left;
        }
    }

    /// The units whose entries the explanation of an operation needs, ascending, from the states after it: how many have to go until a denied
    /// cost, with what is kept for others, fits in addition to each amount that is set aside by then, and where a refund ends.
    pub fn wanted(
        &self,
        states: &[State],
        after: &sliding_log::State,
        request: KeyOperation<'_>,
        is_allowed: bool,
    ) -> SmallVec<[u64; 4]> {
        let KeyOperation { now_us, operation, cost, headroom, .. } = request;
        let decides = matches!(operation, Operation::Check | Operation::Peek | Operation::Reserve);
        if cost > 0 && operation == Operation::Refund && cost < self.used {
            return SmallVec::from_slice(&[self.used - cost]);
        }
        if !decides || is_allowed || cost == 0 {
            return SmallVec::new();
        }
        let used = if after.is_written() { after.units() } else { self.used };
        let cost = cost + kept(self.capacity, headroom);
        let reservations = states.iter().find_map(|state| match state {
            State::Reservations(list) => Some(list.walk(now_us)),
            _ => None,
        });
        let held = match &reservations {
            Some(steps) => steps.iter().rev().map(|held| held.units).collect(),
            None => SmallVec::<[u64; 4]>::from_slice(&[0]),
        };
        let fits = held.into_iter().filter(|held| cost + held <= self.capacity);
        fits.filter_map(|held| (used + cost + held).checked_sub(self.capacity)).collect()
    }

    /// Appends what the explanation of a log needs: how much counts (6), since when the newest does (7), and the entries with which there are as
    /// many units as `wanted` lists, ascending: how many (2), and of each the time (7) and the units (6).
    ///
    /// # Errors
    /// When the entries are not in their order.
    pub fn put_view(&self, wanted: impl IntoIterator<Item = u64>, out: &mut Bytes) -> Result<(), OutOfOrder> {
        let newest_us = if self.used > 0 { self.newest_us } else { 0 };
        let mut entries = Bytes::new();
        let (mut number, mut known) = (0, 0);
        for units in wanted {
            // An entry that was found before may have as many.
            if units <= known || units > self.used {
                continue;
            }
            let (at_us, found) = if self.length == 0 {
                (self.now_us, self.used)
            } else {
                let at = self.entry_with(units);
                (self.us_of(at), self.units_of(at))
            };
            if found < units || found > self.used || at_us > newest_us {
                return Err(OutOfOrder);
            }
            put(&mut entries, at_us, 7);
            put(&mut entries, found, 6);
            (number, known) = (number + 1, found);
        }
        put(out, self.used, 6);
        put(out, newest_us, 7);
        put(out, number, 2);
        out.extend_from_slice(&entries);
        Ok(())
    }

    /// The change of the key, and until when it has to live where that is longer than before.
    pub fn change(&self) -> (LogChange, Option<u64>) {
        let Self { length, first, kept, .. } = *self;
        let live = kept.saturating_sub(first);
        let is_long = self.bytes.len() >= SHORT;
        let is_mostly_live = first.saturating_mul(4) <= length;
        if !self.is_written {
            return (LogChange::Nothing, None);
        }
        let newest_us = match self.tail {
            Some((at_us, _)) => at_us,
            None if live == 0 => {
                return (if self.is_there { LogChange::Delete } else { LogChange::Nothing }, None);
            }
            None if kept == length && is_long && is_mostly_live => return (LogChange::Nothing, None),
            None => self.us_of(kept - 1),
        };
        let expires_us = |newest_us: u64| newest_us - newest_us % self.period_us + 2 * self.period_us;
        let before_us = if length > 0 { expires_us(self.newest_us) } else { 0 };
        let until_us = Some(expires_us(newest_us)).filter(|until_us| !self.is_there || *until_us > before_us);
        (self.written(newest_us, live, is_long && is_mostly_live), until_us)
    }

    fn written(&self, newest_us: u64, live: usize, is_in_place: bool) -> LogChange {
        let Self { length, first, kept, origin_us, .. } = *self;
        let needed = width_of(self.capacity);
        let has_long_tail = self.tail.is_some_and(|(_, units)| units >= MAX_SHORT_TOTAL);
        let width = if live > 0 || has_long_tail { needed.max(self.width) } else { needed };
        let origin_us = if live == 0 { newest_us } else { origin_us };
        let since_origin_us = newest_us.checked_sub(origin_us).filter(|since| *since < MAX_SINCE_ORIGIN_US);
        let mut out = Bytes::new();
        let Some(since_origin_us) = since_origin_us.filter(|_| live == 0 || width == self.width) else {
            // Everything is counted anew.
            let origin_us = self.us_of(first);
            put_head(&mut out, origin_us, width, 0);
            for at in first..kept {
                put_entry(&mut out, self.us_of(at).wrapping_sub(origin_us), self.units_of(at), width);
            }
            if let Some((at_us, units)) = self.tail {
                put_entry(&mut out, at_us.wrapping_sub(origin_us), units, width);
            }
            return LogChange::Set(out);
        };
        let before = if live == 0 { 0 } else { self.before };
        let mut tail = Bytes::new();
        if let Some((_, units)) = self.tail {
            put_entry(&mut tail, since_origin_us, before.wrapping_add(units), width);
        }
        // Entries that have expired may stay only while the newest entry, which is spent now, says that they have.
        let is_spent_now =
            self.newest_us <= self.now_us && self.tail.is_some_and(|(at_us, _)| at_us == self.now_us);
        let is_in_place = is_in_place && self.is_there && live > 0 && (first == 0 || is_spent_now);
        if is_in_place && self.tail.is_some() && kept + 1 >= length {
            return LogChange::Write(self.place(kept), tail);
        }
        put_head(&mut out, origin_us, width, before);
        if live > 0 {
            out.extend_from_slice(self.bytes.get(self.place(first)..self.place(kept)).unwrap_or_default());
        }
        out.extend_from_slice(&tail);
        LogChange::Set(out)
    }
}

/// How many bytes the totals of a log have whose units reach 8 times this capacity.
fn width_of(capacity: u64) -> usize {
    if SATURATION * capacity < MAX_SHORT_TOTAL { 4 } else { 6 }
}

fn put_head(out: &mut Bytes, origin_us: u64, width: usize, before: u64) {
    put(out, origin_us, 7);
    put(out, width as u64, 1);
    put(out, before, width);
}

fn put_entry(out: &mut Bytes, since_origin_us: u64, total: u64, width: usize) {
    put(out, since_origin_us, 6);
    put(out, total, width);
}

#[cfg(test)]
mod tests;
