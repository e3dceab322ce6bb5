//! Access to the states of a key while an operation works on them.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::rules::algorithm::State;
use crate::rules::transition::PolicyRules;
use crate::store::memory::entry::Entry;
use crate::store::memory::key_hash::KeyHash;
use crate::store::memory::registered::Registered;
use crate::store::memory::states::States;
use crate::store::memory::sweep::Sweep;

/// The states of one key that were written under the current numbers of its policy: the common case.
pub(crate) struct Known<'a> {
    pub(crate) current: &'a Registered,
    pub(crate) entry: &'a mut Entry,
    pub(crate) sweep: &'a mut Sweep,
}

/// The states of one key under the current numbers of its policy, wherever they are stored. Changes persist when the
/// slot is [kept](Self::keep).
pub(crate) struct Slot<'a> {
    pub(crate) current: &'a Arc<Registered>,
    pub(crate) place: Place<'a>,
}

pub(crate) enum Place<'a> {
    /// In an entry.
    Entry { entry: &'a mut Entry, sweep: Option<&'a mut Sweep> },
    /// In an entry that was written under other numbers. The operation works on a copy, so that the old numbers can be
    /// restored without loss as long as no operation writes.
    Moved { entry: &'a mut Entry, sweep: Option<&'a mut Sweep>, states: States },
    /// Not stored yet; there is room for an entry.
    Unseen { vacancy: Vacancy<'a>, states: States },
}

/// Room for the entry of an unseen key.
pub(crate) struct Vacancy<'a> {
    pub(crate) entries: &'a mut HashTable<Entry>,
    pub(crate) sweep: &'a mut Sweep,
    pub(crate) key: &'a [u8],
    pub(crate) hash: u64,
    pub(crate) key_hash: &'a KeyHash,
}

impl<'a> Slot<'a> {
    pub(crate) fn of_entry(
        entry: &'a mut Entry,
        current: &'a Arc<Registered>,
        sweep: Option<&'a mut Sweep>,
    ) -> Self {
        let place = if Arc::ptr_eq(&entry.under, current) {
            Place::Entry { entry, sweep }
        } else {
            let states = current.states_of(&entry.under, &entry.states);
            Place::Moved { entry, sweep, states }
        };
        Self { current, place }
    }

    pub(crate) fn parts(&mut self) -> (&PolicyRules, &mut [State]) {
        let states = match &mut self.place {
            Place::Entry { entry, .. } => &mut entry.states,
            Place::Moved { states, .. } | Place::Unseen { states, .. } => states,
        };
        (&self.current.rules, states.as_mut_slice())
    }

    /// Stores what an operation wrote; the states expire at `reset_at_us`.
    pub(crate) fn keep(self, now_us: u64, reset_at_us: u64) {
        let sweep = match self.place {
            Place::Entry { sweep, .. } => sweep,
            Place::Moved { entry, sweep, states } => {
                entry.under = Arc::clone(self.current);
                entry.states = states;
                sweep
            }
            // Expired states are not stored, since they equal those of a key that was never seen.
            Place::Unseen { .. } if reset_at_us <= now_us => None,
            Place::Unseen { vacancy, states } => {
                vacancy.fill(states, self.current, reset_at_us);
                None
            }
        };
        if let Some(sweep) = sweep {
            sweep.lower(reset_at_us);
        }
    }
}

impl Vacancy<'_> {
    fn fill(self, states: States, current: &Arc<Registered>, reset_at_us: u64) {
        self.sweep.before_insert(self.entries, reset_at_us);
        let entry = Entry::new(self.key, states, current);
        let hash_of = |entry: &Entry| self.key_hash.of(entry.under.id, &entry.key);
        self.entries.insert_unique(self.hash, entry, hash_of);
    }
}
