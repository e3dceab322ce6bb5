//! An operation on the value of a key: decided by the core's transition, and written byte for byte as the scripts do.

use std::borrow::Cow;

use polylimit_rules::codec::value::{Value, Written};
use polylimit_rules::codec::{Bytes, States, Unreadable};
use polylimit_rules::decision::Decision;
use polylimit_rules::general::KeyOperation;
use polylimit_rules::transition::{Applied, Operation};
use polylimit_rules::units::MAX_US;

use crate::keyspace::{Change, Effect, Expiry, Notice};
use crate::policies::Prepared;

/// The result of an operation.
#[derive(Debug)]
pub struct Transition<'a> {
    /// The units that were spent, by all checks of the entry together.
    pub spent: u64,
    /// Why the value could not be read. A malformed one was replaced by one in which everything is used; that of a later version stays.
    pub unreadable: Option<Unreadable>,
    /// The value before the operation.
    pub before: Cow<'a, [u8]>,
    /// What happens to the key.
    pub effect: Effect,
}

impl Prepared {
    /// Applies an operation, or as many equal checks, to a value. With a manual clock keys live for ever.
    pub fn apply<'a>(
        &self,
        found: Option<&'a [u8]>,
        request: KeyOperation<'_>,
        count: u16,
        is_manual: bool,
    ) -> Transition<'a> {
        if let Some(transition) = self.apply_to_held(found, request, count, is_manual) {
            return transition;
        }
        let applied = |states: &mut States| {
            let Applied { spent, written, .. } = self.apply_checks(states, request, count);
            (spent, written)
        };
        self.change(found, request, is_manual, applied)
    }

    /// Applies an operation, or as many equal checks, to states.
    pub(crate) fn apply_checks(&self, states: &mut States, request: KeyOperation<'_>, count: u16) -> Applied {
        let mut all = Applied { allowed: true, spent: 0, written: false };
        // Entries of several checks are those of which a denial changes nothing, so that all after the first one are denied as well.
        for _ in 0..count.max(1) {
            let Applied { allowed, spent, written } = self.rules.apply_alone(states, request);
            all = Applied { allowed, spent: all.spent + spent, written: all.written | written };
            if !allowed {
                break;
            }
        }
        all
    }

    /// Applies an operation to a key with reservations by the numbers in front of them, where these suffice.
    fn apply_to_held<'a>(
        &self,
        found: Option<&'a [u8]>,
        request: KeyOperation<'_>,
        count: u16,
        is_manual: bool,
    ) -> Option<Transition<'a>> {
        let before = found.filter(|_| count == 1 && self.logs.is_empty())?;
        let value = self.codec.cut(before).ok().filter(Value::has_reservations)?;
        let mut bytes = Bytes::new();
        let (spent, until_us) = self.codec.change_held(&self.rules, &value, request, &mut bytes)?;
        let change = self.changed(before, &value, bytes, until_us, is_manual);
        let effect = Effect { change, notice: None };
        Some(Transition { spent, unreadable: None, before: Cow::Borrowed(before), effect })
    }

    /// Applies an operation to a value by the server's clock, and explains it.
    pub fn decide<'a>(
        &self,
        found: Option<&'a [u8]>,
        request: KeyOperation<'_>,
    ) -> (Transition<'a>, Decision) {
        let mut decision = None;
        let applied = |states: &mut States| {
            let (decided, Applied { spent, written, .. }) = self.rules.decide(states, request, None);
            decision = Some(decided);
            (spent, written)
        };
        let transition = self.change(found, request, false, applied);
        let decision = decision.unwrap_or_else(|| self.rules.view(&self.fresh(), request.now_us));
        (transition, decision)
    }

    /// Changes the states in a value by `apply`, which returns the units spent, and whether any state was written.
    pub(crate) fn change<'a>(
        &self,
        found: Option<&'a [u8]>,
        request: KeyOperation<'_>,
        is_manual: bool,
        apply: impl FnOnce(&mut States) -> (u64, bool),
    ) -> Transition<'a> {
        let KeyOperation { now_us, operation, cost, hold, .. } = request;
        let notice = match operation {
            Operation::Refund if cost > 0 => Some(Notice::Released),
            Operation::Block if hold.is_some_and(|hold| hold.ttl_us > 0) => Some(Notice::Blocked),
            Operation::Block => Some(Notice::Released),
            _ => None,
        };
        // An empty string is none of ours either.
        let read = match found {
            Some([]) => Err(Unreadable::Malformed),
            found => self.cut(found.unwrap_or_default(), now_us),
        };
        if read.as_ref().is_err_and(|cause| *cause == Unreadable::Newer) {
            let (unreadable, effect) = (Some(Unreadable::Newer), Effect::default());
            return Transition { spent: 0, unreadable, before: Cow::Borrowed(&[]), effect };
        }
        if let Ok((value, mut states)) = read {
            let (spent, is_written) = apply(&mut states);
            let before = found.unwrap_or_default();
            let change = if is_written {
                self.write(before, &value, &states, Written::by(operation, spent, cost), now_us, is_manual)
            } else {
                Change::Nothing
            };
            let effect = Effect { change, notice };
            return Transition { spent, unreadable: None, before: Cow::Borrowed(before), effect };
        }
        let (before, mut change) = self.heal(now_us, is_manual);
        let (mut spent, read) = (0, self.cut(&before, now_us));
        if let Ok((value, mut states)) = read {
            let (units, is_written) = apply(&mut states);
            spent = units;
            let next = if is_written {
                self.write(&before, &value, &states, Written::by(operation, spent, cost), now_us, is_manual)
            } else {
                Change::Nothing
            };
            change = match (change, next) {
                (healed, Change::Nothing) => healed,
                // What was healed is not there yet.
                (Change::Set(_, expiry), Change::Overwrite(bytes) | Change::Set(bytes, Expiry::Kept)) => {
                    Change::Set(bytes, expiry)
                }
                (_, next) => next,
            };
        }
        let effect = Effect { change, notice };
        Transition {
            spent,
            unreadable: Some(Unreadable::Malformed),
            before: Cow::Owned(before.to_vec()),
            effect,
        }
    }

    fn cut<'a>(&self, bytes: &'a [u8], now_us: u64) -> Result<(Value<'a>, States), Unreadable> {
        let value = self.codec.cut(bytes)?;
        let states = self.codec.states(&value, now_us).ok_or(Unreadable::Malformed)?;
        Ok((value, states))
    }

    /// The value in which everything is used, and the change to it.
    fn heal(&self, now_us: u64, is_manual: bool) -> (Bytes, Change) {
        let mut bytes = Bytes::new();
        let states = self.used_up(now_us);
        let until_us = self
            .codec
            .cut(&[])
            .map_or(0, |nothing| self.codec.write_value(&nothing, &states, Written::All, now_us, &mut bytes));
        if bytes.is_empty() {
            return (bytes, Change::Delete);
        }
        (bytes.clone(), Change::Set(bytes, expiry(until_us, is_manual)))
    }

    /// The change that leaves these states in place of a value.
    fn write(
        &self,
        before: &[u8],
        value: &Value<'_>,
        states: &States,
        written: Written,
        now_us: u64,
        is_manual: bool,
    ) -> Change {
        let mut bytes = Bytes::new();
        let until_us = self.codec.write_value(value, states, written, now_us, &mut bytes);
        // A denial may be counted by a log alone: then the other records stay, in the order in which they were found.
        let is_of_logs = !self.logs.is_empty() && written != Written::All && bytes.len() == before.len();
        if is_of_logs && self.codec.cut(&bytes).is_ok_and(|after| after.has_records_of(value)) {
            return Change::Nothing;
        }
        self.changed(before, value, bytes, until_us, is_manual)
    }

    /// The change that leaves these bytes in place of a value.
    fn changed(
        &self,
        before: &[u8],
        value: &Value<'_>,
        bytes: Bytes,
        until_us: u64,
        is_manual: bool,
    ) -> Change {
        let is_there = !before.is_empty();
        if bytes.is_empty() {
            return if is_there { Change::Delete } else { Change::Nothing };
        }
        let lives = is_there && until_us <= self.codec.lives_until_us(value);
        if !self.logs.is_empty() && *bytes == *before && (is_manual || lives) {
            // The operation has changed logs alone.
            return Change::Nothing;
        }
        if is_there && bytes.len() == before.len() && (is_manual || lives) {
            Change::Overwrite(bytes)
        } else if lives && !is_manual {
            Change::Set(bytes, Expiry::Kept)
        } else {
            Change::Set(bytes, expiry(until_us, is_manual))
        }
    }
}

/// When a key expires that has to live until this time.
fn expiry(until_us: u64, is_manual: bool) -> Expiry {
    if is_manual {
        return Expiry::Never;
    }
    // The server counts in milliseconds, in 64 bits.
    let until_us = if until_us > MAX_US + 1 { (MAX_US + 1) * 1_000 } else { until_us };
    Expiry::At(until_us.div_ceil(1_000) + 1)
}
