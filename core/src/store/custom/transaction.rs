//! The charges of a transaction, and the states of their keys as bytes.
//!
//! A state's name is its policy's name, a zero byte and the key. The state consists of the length of its records (2 bytes), the records,
//! and then logs and reservations, as [`StoredPolicy`] writes them.

use polylimit_rules::codec::{Bytes, States, Unreadable, unknown_until_us};
use polylimit_rules::error::Error;
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::{Action, Charge, StoreAnswers};
use polylimit_store::interface::Change;
use polylimit_store::stored_policy::StoredPolicy;

/// The name of a key's state. A policy's name contains no zero.
pub(super) fn name(policy: &StoredPolicy, key: &[u8]) -> Vec<u8> {
    [policy.policy.name().as_bytes(), b"\0", key].concat()
}

/// What a store's bytes are.
pub(super) struct Read {
    pub(super) states: States,
    /// They were invalid: everything counts as used.
    is_healed: bool,
    /// The records of a later version.
    unknown: Vec<u8>,
}

/// Decodes a store's bytes.
///
/// # Errors
/// When a later version has written the state of a quota.
pub(super) fn read(policy: &StoredPolicy, bytes: Option<&[u8]>, now_us: u64) -> Result<Read, Newer> {
    let mut unknown = Vec::new();
    let Some(bytes) = bytes else { return Ok(Read { states: policy.fresh(), is_healed: false, unknown }) };
    let parts = bytes
        .split_first_chunk()
        .and_then(|(length, rest)| rest.split_at_checked(u16::from_be_bytes(*length).into()));
    let read = match parts {
        Some((records, logs)) => policy.read(records, logs, now_us, &mut unknown),
        None => Err(Unreadable::Malformed),
    };
    match read {
        Ok(states) => Ok(Read { states, is_healed: false, unknown }),
        Err(Unreadable::Newer) => Err(Newer),
        Err(Unreadable::Malformed) => {
            Ok(Read { states: policy.used_up(now_us), is_healed: true, unknown: Vec::new() })
        }
    }
}

/// A later version has written the state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Newer;

fn write(policy: &StoredPolicy, states: &States, unknown: &[u8], until_us: u64) -> Change {
    let mut bytes = Bytes::from_slice(&[0; 2]);
    let (records, logs) = policy.write(states, unknown, &mut bytes);
    if records + logs == 0 {
        return Change::Remove;
    }
    let until_us = until_us.max(unknown_until_us(unknown));
    let length = u16::try_from(records).unwrap_or(u16::MAX);
    bytes[..2].copy_from_slice(&length.to_be_bytes());
    Change::Put { state: bytes.into_vec(), until_us }
}

pub(super) struct Transaction<'a> {
    charges: &'a [(&'a StoredPolicy, Charge<'a>)],
    names: Vec<Vec<u8>>,
    /// For each charge, the index of its name.
    places: Vec<usize>,
}

/// A state during the decision.
struct Entry {
    states: States,
    unknown: Vec<u8>,
    change: Change,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(charges: &'a [(&'a StoredPolicy, Charge<'a>)]) -> Self {
        let (mut names, mut places) = (Vec::with_capacity(charges.len()), Vec::with_capacity(charges.len()));
        for (policy, charge) in charges {
            let name = name(policy, charge.key);
            let known = names.iter().position(|other| *other == name);
            places.push(known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            }));
        }
        Self { charges, names, places }
    }

    pub(super) fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Decides on these states, and returns their changes and the answers. A single charge is applied. Of several, all are applied if every
    /// deciding one is admitted; otherwise only the denied ones are, and the others are answered as a peek. Without an answer a later
    /// version has written the state of a key, and nothing changes.
    pub(super) fn decide(
        &self,
        states: &[Option<Vec<u8>>],
        clock: &Clock,
    ) -> (Vec<Change>, Result<Option<StoreAnswers>, Error>) {
        let keep = || states.iter().map(|_| Change::Keep).collect();
        let now_us = clock.now_us();
        let mut entries = Vec::with_capacity(self.names.len());
        for at in 0..self.names.len() {
            let of_name = self.places.iter().zip(self.charges).find(|(place, _)| **place == at);
            let Some((_, (policy, _))) = of_name else { continue };
            let Ok(read) = read(policy, states.get(at).and_then(Option::as_deref), now_us) else {
                return (keep(), Ok(None));
            };
            let Read { states, is_healed, unknown } = read;
            let change = if is_healed { write(policy, &states, &unknown, u64::MAX) } else { Change::Keep };
            entries.push(Entry { states, unknown, change });
        }
        let answers = self.answers(&mut entries, now_us, clock.manual().is_some());
        let changes = match &answers {
            Ok(_) => entries.into_iter().map(|entry| entry.change).collect(),
            Err(_) => keep(),
        };
        (changes, answers.map(Some))
    }

    fn answers(
        &self,
        entries: &mut [Entry],
        now_us: u64,
        lives_for_ever: bool,
    ) -> Result<StoreAnswers, Error> {
        let (mut admits, mut admitted) = (Vec::with_capacity(self.charges.len()), true);
        if self.charges.len() > 1 {
            for ((policy, charge), place) in self.charges.iter().zip(&self.places) {
                let operation = charge.operation(operation_of(charge)?, now_us);
                let is_admitted = policy.rules.would_admit(&mut entries[*place].states, operation);
                admits.push(is_admitted);
                admitted &= is_admitted || !charge.decides;
            }
        }
        let mut answers = StoreAnswers::with_capacity(self.charges.len());
        for (at, ((policy, charge), place)) in self.charges.iter().zip(&self.places).enumerate() {
            let entry = &mut entries[*place];
            let Action::Apply(operation) = charge.action else {
                *entry = Entry { states: policy.fresh(), unknown: Vec::new(), change: Change::Remove };
                answers.push((policy.rules.view(&entry.states, now_us), 0));
                continue;
            };
            let operation = charge.operation(operation, now_us);
            if !admitted && admits.get(at).is_some_and(|is_admitted| *is_admitted) {
                answers.push((policy.rules.view_admitted(&mut entry.states, operation, None), 0));
                continue;
            }
            let (decision, applied) = policy.rules.decide(&mut entry.states, operation, None);
            if applied.written || entry.change != Change::Keep {
                let until_us =
                    if lives_for_ever { u64::MAX } else { now_us.saturating_add(decision.reset_after_us()) };
                entry.change = write(policy, &entry.states, &entry.unknown, until_us);
            }
            answers.push((decision, applied.spent));
        }
        Ok(answers)
    }
}

fn operation_of(charge: &Charge<'_>) -> Result<Operation, Error> {
    match charge.action {
        Action::Apply(operation) => Ok(operation),
        Action::Reset => Err(Error::no_answer()),
    }
}
