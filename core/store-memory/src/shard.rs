//! One shard: a bounded table of keys, the current quotas of every policy, and access to the states of a key while an operation works on
//! them.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::entry::{Entry, RegisteredPolicy, States};
use crate::key::KeyHash;
use crate::recent_denials::RecentDenials;
use crate::sweep::Sweep;
use polylimit_rules::explanation::Expiry;
use polylimit_rules::transition::PolicyRules;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::PolicyId;

/// The key and policy of the operation, and its time.
#[derive(Clone, Copy)]
pub(crate) struct KeyRequest<'a> {
    pub(crate) id: PolicyId,
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    pub(crate) now_us: u64,
    /// The effective quotas, if they are not the policy's own.
    pub(crate) effective: Option<&'a Arc<RegisteredPolicy>>,
}

/// The field order puts what a lookup reads and what each operation writes into the cache line of the lock. The rest is
/// rarely written, so cores can share it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    entries: HashTable<Entry>,
    /// The time of the last operation.
    last_us: u64,
    sweep: Sweep,
    /// The policies with their current quotas, by slot.
    policies: Vec<Option<Arc<RegisteredPolicy>>>,
    max_keys: usize,
}

impl Shard {
    pub(crate) fn new(max_keys: usize) -> Self {
        Self {
            entries: HashTable::new(),
            last_us: 0,
            sweep: Sweep::default(),
            policies: Vec::new(),
            max_keys,
        }
    }

    /// A policy with its current quotas, if it is known.
    pub(crate) fn registered(&self, id: PolicyId) -> Option<&Arc<RegisteredPolicy>> {
        current_of(&self.policies, id)
    }

    pub(crate) fn set_policy(&mut self, registered: &Arc<RegisteredPolicy>) {
        let slot = registered.id.slot();
        if self.policies.len() <= slot {
            self.policies.resize_with(slot + 1, || None);
        }
        let before = self.policies[slot].replace(Arc::clone(registered));
        if before.is_some() {
            // Entries may expire at other times under the changed quotas.
            self.sweep.restart();
        }
    }

    /// Forgets a policy. Its entries count as expired from now on.
    pub(crate) fn forget_policy(&mut self, id: PolicyId, has_entries: bool) {
        if self.registered(id).is_some() {
            self.policies[id.slot()] = None;
            if has_entries {
                self.sweep.restart();
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The time of an operation that read the clock before it took the lock. The states of a shard see times in the
    /// order of their operations: if another operation has seen a later time meanwhile, the clock is read again, and if
    /// it still shows an earlier time, the clock has gone back.
    #[inline]
    pub(crate) fn time(&mut self, read_us: u64, clock: &Clock) -> u64 {
        let now_us = if read_us < self.last_us { clock.now_us() } else { read_us };
        self.last_us = now_us;
        now_us
    }

    /// The states of a known key, if they were written under the current quotas.
    #[expect(clippy::inline_always, reason = "a call takes longer than finding it")]
    #[inline(always)]
    pub(crate) fn known(&mut self, id: PolicyId, hash: u64, key: &[u8]) -> Option<KnownEntry<'_>> {
        let current = current_of(&self.policies, id)?;
        let entry = self.entries.find_mut(hash, |entry| entry.is(current, key))?;
        Arc::ptr_eq(&entry.under, current).then_some(KnownEntry { current, entry, sweep: &mut self.sweep })
    }

    /// The states of a key.
    pub(crate) fn slot<'a>(
        &'a mut self,
        recent_denials: &RecentDenials,
        key_hash: &'a KeyHash,
        request: KeyRequest<'a>,
    ) -> Result<Slot<'a>, NoSlot<'a>> {
        let KeyRequest { id, hash, key, now_us, effective } = request;
        let current = effective.or_else(|| current_of(&self.policies, id)).ok_or(NoSlot::Unknown)?;
        let sweep = &mut self.sweep;
        let entries = match self.entries.find_entry(hash, |entry| entry.is(current, key)) {
            Ok(entry) => return Ok(Slot::of_entry(entry.into_mut(), current, Some(sweep), now_us)),
            Err(absent) => absent.into_table(),
        };
        let policies = &self.policies;
        let expiry = |entry: &Entry, at_us| {
            let current = current_of(policies, entry.under.id);
            current.map_or_else(Expiry::default, |current| entry.expiry(current, at_us))
        };
        // The denial of a dropped key is withdrawn, since it would be wrong if the clock went back.
        let dropped = |entry: &Entry| recent_denials.invalidate(key_hash.of(entry.under.id, &entry.key));
        if !sweep.make_room(entries, self.max_keys, now_us, &expiry, &dropped) {
            return Err(NoSlot::Full(current));
        }
        let vacancy = Vacancy { entries, sweep, key, hash, key_hash };
        Ok(Slot { current, place: Place::Unseen { vacancy, states: States::fresh(&current.policy) } })
    }

    pub(crate) fn clear(&mut self) {
        self.entries = HashTable::new();
        self.sweep.restart_moved();
    }

    /// Passes the entries in some slots to `each`. Returns the slot after them, if there is one. If entries have moved since `moves`, this
    /// begins with the first slot; also returns the current count of moves.
    pub(crate) fn visit(
        &self,
        (mut slot, moves): (usize, u16),
        slots: usize,
        mut each: impl FnMut(&Entry),
    ) -> (Option<usize>, u16) {
        if moves != self.sweep.moves() {
            slot = 0;
        }
        let all = self.entries.num_buckets();
        let end = slot.saturating_add(slots).min(all);
        for at in slot..end {
            if let Some(entry) = self.entries.get_bucket(at) {
                each(entry);
            }
        }
        ((end < all).then_some(end), self.sweep.moves())
    }

    pub(crate) fn forget(&mut self, id: PolicyId, hash: u64, key: &[u8]) {
        if let Some(current) = current_of(&self.policies, id)
            && let Ok(entry) = self.entries.find_entry(hash, |entry| entry.is(current, key))
        {
            entry.remove();
        }
    }
}

/// A policy with its current quotas, unless it was forgotten.
#[inline]
fn current_of(policies: &[Option<Arc<RegisteredPolicy>>], id: PolicyId) -> Option<&Arc<RegisteredPolicy>> {
    policies.get(id.slot())?.as_ref().filter(|current| current.id == id)
}

/// Why a key has no slot.
pub(crate) enum NoSlot<'a> {
    /// The key is unknown, and there is no room for it. This is the policy with its effective quotas.
    Full(&'a Arc<RegisteredPolicy>),
    /// Its policy was forgotten.
    Unknown,
}

/// The states of one key that were written under the current quotas of its policy: the common case.
pub(crate) struct KnownEntry<'a> {
    pub(crate) current: &'a RegisteredPolicy,
    pub(crate) entry: &'a mut Entry,
    pub(crate) sweep: &'a mut Sweep,
}

/// The states of one key under the current quotas of its policy, wherever they are stored. Changes persist when the slot is
/// [kept](Self::keep).
pub(crate) struct Slot<'a> {
    current: &'a Arc<RegisteredPolicy>,
    place: Place<'a>,
}

enum Place<'a> {
    /// In an entry.
    Entry { entry: &'a mut Entry, sweep: Option<&'a mut Sweep> },
    /// In an entry that was written under other quotas. The operation works on a copy, so that the old quotas can be restored without loss
    /// as long as no operation writes.
    Moved { entry: &'a mut Entry, sweep: Option<&'a mut Sweep>, states: States },
    /// Not stored yet; there is room for an entry.
    Unseen { vacancy: Vacancy<'a>, states: States },
}

/// Room for the entry of an unseen key.
struct Vacancy<'a> {
    entries: &'a mut HashTable<Entry>,
    sweep: &'a mut Sweep,
    key: &'a [u8],
    hash: u64,
    key_hash: &'a KeyHash,
}

impl<'a> Slot<'a> {
    fn of_entry(
        entry: &'a mut Entry,
        current: &'a Arc<RegisteredPolicy>,
        sweep: Option<&'a mut Sweep>,
        now_us: u64,
    ) -> Self {
        let place = if Arc::ptr_eq(&entry.under, current) {
            Place::Entry { entry, sweep }
        } else {
            let states = current.states_of(&entry.under, &entry.states, now_us);
            Place::Moved { entry, sweep, states }
        };
        Self { current, place }
    }

    pub(crate) fn parts(&mut self) -> (&PolicyRules, &mut States) {
        let states = match &mut self.place {
            Place::Entry { entry, .. } => &mut entry.states,
            Place::Moved { states, .. } | Place::Unseen { states, .. } => states,
        };
        (&self.current.rules, states)
    }

    /// Stores what an operation wrote. The states expire at `reset_at_us` or later: nothing counts as used from then on, and the
    /// key is not blocked.
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
    fn fill(self, states: States, current: &Arc<RegisteredPolicy>, reset_at_us: u64) {
        self.sweep.before_insert(self.entries, reset_at_us);
        let entry = Entry::new(self.key, states, current);
        let hash_of = |entry: &Entry| self.key_hash.of(entry.under.id, &entry.key);
        self.entries.insert_unique(self.hash, entry, hash_of);
    }
}

/// The shared states of keys for which the table has no room: one state per policy.
#[derive(Debug, Default)]
pub(crate) struct Overflow {
    /// One entry per policy, created on first use; the entries' keys are empty.
    entries: HashMap<PolicyId, Entry>,
}

impl Overflow {
    /// The shared states of the policy.
    pub(crate) fn slot<'a>(&'a mut self, current: &'a Arc<RegisteredPolicy>, now_us: u64) -> Slot<'a> {
        let unseen = || Entry::new(&[], States::fresh(&current.policy), current);
        Slot::of_entry(self.entries.entry(current.id).or_insert_with(unseen), current, None, now_us)
    }

    pub(crate) fn forget_policy(&mut self, id: PolicyId) {
        self.entries.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylimit_runtime::clock::ManualClock;

    #[test]
    fn later_operation_has_no_earlier_time_unless_the_clock_goes_back() {
        let manual = ManualClock::new(20).unwrap();
        let clock = Clock::from(manual.clone());
        let mut shard = Shard::new(1);
        assert_eq!(shard.time(10, &clock), 10);
        assert_eq!(shard.time(9, &clock), 20);
        assert_eq!(shard.time(20, &clock), 20);
        manual.set(3).unwrap();
        assert_eq!(shard.time(3, &clock), 3);
    }
}
