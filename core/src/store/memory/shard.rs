//! One shard: a bounded table of keys and the current numbers of every policy.

use std::sync::Arc;

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::Request;
use super::entry::Entry;
use super::key_hash::KeyHash;
use super::notice::Notices;
use super::registered::Registered;
use super::slot::{Known, Place, Slot, Vacancy};
use super::states::States;
use super::sweep::Sweep;
use crate::store::PolicyId;

/// In this order what finds a key is in the cache line of the lock.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard {
    entries: HashTable<Entry>,
    /// The current numbers of the policies, by their ids; few enough to be at hand in most limiters.
    policies: SmallVec<[Arc<Registered>; 2]>,
    max_keys: usize,
    sweep: Sweep,
    key_hash: KeyHash,
}

impl Shard {
    pub(super) fn new(max_keys: usize, key_hash: KeyHash) -> Self {
        Self {
            entries: HashTable::new(),
            policies: SmallVec::new(),
            max_keys,
            sweep: Sweep::default(),
            key_hash,
        }
    }

    pub(super) fn set_policy(&mut self, registered: &Arc<Registered>, now_us: u64) {
        match self.policies.get_mut(registered.id.0 as usize) {
            Some(current) => {
                current.superseded(now_us);
                *current = Arc::clone(registered);
            }
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

    /// The states of a key that is known, if they were written under the current numbers.
    #[inline]
    pub(super) fn known(&mut self, id: PolicyId, hash: u64, key: &[u8]) -> Option<Known<'_>> {
        let current = &self.policies[id.0 as usize];
        let entry = self.entries.find_mut(hash, |entry| entry.is(current, key))?;
        Arc::ptr_eq(&entry.under, current).then_some(Known { current, entry, sweep: &mut self.sweep })
    }

    /// The states of a key; or, when it is not known and there is no room for it, the numbers of its policy.
    pub(super) fn slot<'a>(
        &'a mut self,
        notices: &Notices,
        request: Request<'a>,
    ) -> Result<Slot<'a>, &'a Arc<Registered>> {
        let Request { id, hash, key, now_us } = request;
        let current = &self.policies[id.0 as usize];
        let sweep = &mut self.sweep;
        let entries = match self.entries.find_entry(hash, |entry| entry.is(current, key)) {
            Ok(entry) => return Ok(Slot::of_entry(entry.into_mut(), current, Some(sweep))),
            Err(absent) => absent.into_table(),
        };
        let policies = &self.policies;
        let key_hash = &self.key_hash;
        let spent_after_us =
            |entry: &Entry, at_us| entry.spent_after_us(&policies[entry.under.id.0 as usize], at_us);
        // What is dropped is not denied any more, also when the clock goes back.
        let dropped = |entry: &Entry| notices.withdraw(key_hash.of(entry.under.id, &entry.key));
        let has_room = sweep.make_room(entries, self.max_keys, now_us, spent_after_us, dropped);
        if !has_room {
            return Err(current);
        }
        let vacancy = Vacancy { entries, sweep, key, hash, key_hash: &self.key_hash };
        Ok(Slot { current, place: Place::Unseen { vacancy, states: States::fresh(&current.policy) } })
    }

    /// Drops the key's entry, if there is one.
    pub(super) fn forget(&mut self, id: PolicyId, hash: u64, key: &[u8]) {
        let current = &self.policies[id.0 as usize];
        if let Ok(entry) = self.entries.find_entry(hash, |entry| entry.is(current, key)) {
            entry.remove();
        }
    }
}
