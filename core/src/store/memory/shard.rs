//! One shard: a bounded table of keys and the current numbers of every policy.

use std::sync::Arc;

use hashbrown::HashTable;

use super::entry::{Change, Entry, Registered};
use super::key_hash::KeyHash;
use super::states::States;
use super::sweep::Sweep;
use crate::algorithm::State;
use crate::store::PolicyId;
use crate::transition::PolicyRules;

#[derive(Debug)]
pub(super) struct Shard {
    entries: HashTable<Entry>,
    /// The current numbers of the policies, by their ids.
    policies: Vec<Arc<Registered>>,
    max_keys: usize,
    sweep: Sweep,
    key_hash: KeyHash,
}

impl Shard {
    pub(super) fn new(max_keys: usize, key_hash: KeyHash) -> Self {
        Self { entries: HashTable::new(), policies: Vec::new(), max_keys, sweep: Sweep::default(), key_hash }
    }

    pub(super) fn set_policy(&mut self, registered: &Arc<Registered>) {
        match self.policies.get_mut(registered.id.0 as usize) {
            Some(current) => *current = Arc::clone(registered),
            None => self.policies.push(Arc::clone(registered)),
        }
        self.sweep.restart();
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The current numbers of a policy. Ids are given out by the limiter as it registers policies here.
    #[inline]
    pub(super) fn current(&self, id: PolicyId) -> &Arc<Registered> {
        &self.policies[id.0 as usize]
    }

    /// The place of a key: its entry, or where one would go, or none.
    #[inline]
    pub(super) fn slot<'a>(&'a mut self, id: PolicyId, hash: u64, key: &'a [u8], now_us: u64) -> Slot<'a> {
        let current = &self.policies[id.0 as usize];
        let sweep = &mut self.sweep;
        let entries = match self.entries.find_entry(hash, |entry| entry.is(current, key)) {
            Ok(entry) => return Slot::Known(Place { entry: entry.into_mut(), sweep, current }),
            Err(absent) => absent.into_table(),
        };
        let policies = &self.policies;
        let has_room = sweep.make_room(entries, self.max_keys, now_us, |entry| {
            entry.is_spent(&policies[entry.id().0 as usize], now_us)
        });
        if has_room {
            Slot::Unseen(Vacancy { entries, sweep, current, key, hash, key_hash: &self.key_hash })
        } else {
            Slot::Full { current }
        }
    }

    /// Drops the key's entry, if there is one.
    pub(super) fn forget(&mut self, id: PolicyId, hash: u64, key: &[u8]) {
        let current = &self.policies[id.0 as usize];
        if let Ok(entry) = self.entries.find_entry(hash, |entry| entry.is(current, key)) {
            entry.remove();
        }
    }
}

/// Where the states of a key are.
pub(super) enum Slot<'a> {
    /// In its entry.
    Known(Place<'a>),
    /// Nowhere yet; there is room for it.
    Unseen(Vacancy<'a>),
    /// Nowhere; the shard is full of keys in use.
    Full { current: &'a Arc<Registered> },
}

/// The entry of a key.
pub(super) struct Place<'a> {
    entry: &'a mut Entry,
    sweep: &'a mut Sweep,
    current: &'a Arc<Registered>,
}

impl Place<'_> {
    /// Runs an operation on the key's states.
    #[inline]
    pub(super) fn update<Answer>(
        self,
        run: impl FnOnce(&PolicyRules, &mut [State]) -> (Change, Answer),
    ) -> Answer {
        let before_us = self.entry.reset_at_us;
        let answer = self.entry.update(self.current, run);
        if self.entry.reset_at_us < before_us {
            self.sweep.lower(self.entry.reset_at_us);
        }
        answer
    }
}

/// Room for the entry of a key that was not seen.
pub(super) struct Vacancy<'a> {
    entries: &'a mut HashTable<Entry>,
    sweep: &'a mut Sweep,
    current: &'a Arc<Registered>,
    key: &'a [u8],
    hash: u64,
    key_hash: &'a KeyHash,
}

impl Vacancy<'_> {
    /// Runs an operation on fresh states and keeps them if they are in use after it.
    #[inline]
    pub(super) fn update<Answer>(
        self,
        now_us: u64,
        run: impl FnOnce(&PolicyRules, &mut [State]) -> (Change, Answer),
    ) -> Answer {
        let mut states = States::fresh(&self.current.policy);
        let (change, answer) = run(&self.current.rules, states.as_mut_slice());
        if change.written && change.reset_at_us > now_us {
            self.sweep.before_insert(self.entries, change.reset_at_us);
            let entry = Entry::new(self.key, states, self.current, change.reset_at_us);
            self.entries.insert_unique(self.hash, entry, |entry| self.key_hash.of(entry.id(), &entry.key));
        }
        answer
    }
}
