//! An operation on the value of a key: decided by the core's transition, and written byte for byte as the scripts do.

use std::borrow::Cow;

use polylimit_rules::codec::value::Written;
use polylimit_rules::codec::{Bytes, States};
use polylimit_rules::decision::Decision;
use polylimit_rules::general::KeyOperation;
use polylimit_rules::transition::Operation;
use polylimit_rules::units::MAX_US;

use crate::keyspace::{Change, Effect, Expiry, Notice};
use crate::policies::Prepared;

/// The result of an operation.
#[derive(Debug)]
pub struct Transition<'a> {
    /// The units that were spent, by all checks of the entry together.
    pub spent: u64,
    /// Whether the value was none of ours, and was replaced by one in which everything is used.
    pub is_healed: bool,
    /// The value before the operation.
    pub before: Cow<'a, [u8]>,
    /// The decision on the last check.
    pub decision: Decision,
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
        let KeyOperation { now_us, operation, cost, .. } = request;
        // An empty string is none of ours either.
        let read = match found {
            None => Some(self.fresh()),
            Some([]) => None,
            Some(bytes) => self.codec.read(bytes, now_us),
        };
        let is_healed = read.is_none();
        let (mut states, before, mut change) = if let Some(states) = read {
            (states, Cow::Borrowed(found.unwrap_or_default()), Change::Nothing)
        } else {
            let (bytes, change) = self.heal(now_us, is_manual);
            let states = self.codec.read(&bytes, now_us).unwrap_or_else(|| self.fresh());
            (states, Cow::Owned(bytes.into_vec()), change)
        };
        let (mut spent, mut is_written) = (0, false);
        let mut decision = None;
        for _ in 0..count.max(1) {
            let (decided, applied) = self.rules.decide(&mut states, request, None);
            spent += applied.spent;
            is_written |= applied.written;
            let is_denied = !decided.allowed();
            decision = Some(decided);
            if is_denied {
                // All further ones are denied as well: entries of several checks are those whose denials write nothing.
                break;
            }
        }
        if is_written {
            let written = match operation {
                _ if spent > 0 => Written::All,
                Operation::Charge | Operation::Refund if cost > 0 => Written::All,
                Operation::Commit | Operation::Cancel | Operation::Renew => Written::All,
                Operation::Reserve => Written::AllIfReserved,
                _ => Written::Changed,
            };
            if let Some(next) = self.write(&before, &states, written, now_us, is_manual) {
                change = match (change, next) {
                    // What was healed is not there yet.
                    (Change::Set(_, expiry), Change::Overwrite(bytes) | Change::Set(bytes, Expiry::Kept)) => {
                        Change::Set(bytes, expiry)
                    }
                    (_, next) => next,
                };
            }
        }
        let is_blocking = request.hold.is_some_and(|hold| hold.ttl_us > 0);
        let notice = match operation {
            Operation::Refund if cost > 0 => Some(Notice::Released),
            Operation::Block if is_blocking => Some(Notice::Blocked),
            Operation::Block => Some(Notice::Released),
            _ => None,
        };
        let decision = decision.unwrap_or_else(|| self.rules.view(&states, now_us));
        Transition { spent, is_healed, before, decision, effect: Effect { change, notice } }
    }

    /// The value in which everything is used.
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
        states: &States,
        written: Written,
        now_us: u64,
        is_manual: bool,
    ) -> Option<Change> {
        let cut = self.codec.cut(before)?;
        let mut bytes = Bytes::new();
        let until_us = self.codec.write_value(&cut, states, written, now_us, &mut bytes);
        let is_there = !before.is_empty();
        if bytes.is_empty() {
            return is_there.then_some(Change::Delete);
        }
        let lives = is_there && until_us <= self.codec.lives_until_us(&cut);
        Some(if is_there && bytes.len() == before.len() && (is_manual || lives) {
            Change::Overwrite(bytes)
        } else if lives && !is_manual {
            Change::Set(bytes, Expiry::Kept)
        } else {
            Change::Set(bytes, expiry(until_us, is_manual))
        })
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
