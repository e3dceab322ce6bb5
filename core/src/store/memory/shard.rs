//! One shard: a bounded table of keys and the current numbers of every policy.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::runtime::clock::Clock;
use crate::store::memory::entry::Entry;
use crate::store::memory::key_hash::KeyHash;
use crate::store::memory::recent_denials::RecentDenials;
use crate::store::memory::registered::Registered;
use crate::store::memory::slot::{Known, Place, Slot, Vacancy};
use crate::store::memory::states::States;
use crate::store::memory::sweep::Sweep;
use crate::store::request::PolicyId;

/// The key and policy of the operation, and its time.
#[derive(Clone, Copy)]
pub(crate) struct KeyRequest<'a> {
    pub(crate) id: PolicyId,
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    pub(crate) now_us: u64,
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
    /// The current numbers of the policies, by their ids.
    policies: Vec<Arc<Registered>>,
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

    /// The current numbers of a policy, if it is known.
    pub(crate) fn registered(&self, id: PolicyId) -> Option<&Arc<Registered>> {
        self.policies.get(id.0 as usize)
    }

    pub(crate) fn set_policy(&mut self, registered: &Arc<Registered>) {
        match self.policies.get_mut(registered.id.0 as usize) {
            Some(current) => *current = Arc::clone(registered),
            None => self.policies.push(Arc::clone(registered)),
        }
        self.sweep.restart();
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

    /// The current numbers of a policy. The limiter hands out ids as it registers policies here.
    #[inline]
    pub(crate) fn current(&self, id: PolicyId) -> &Arc<Registered> {
        &self.policies[id.0 as usize]
    }

    /// The states of a known key, if they were written under the current numbers.
    #[expect(clippy::inline_always, reason = "a call takes longer than finding it")]
    #[inline(always)]
    pub(crate) fn known(&mut self, id: PolicyId, hash: u64, key: &[u8]) -> Option<Known<'_>> {
        let current = &self.policies[id.0 as usize];
        let entry = self.entries.find_mut(hash, |entry| entry.is(current, key))?;
        Arc::ptr_eq(&entry.under, current).then_some(Known { current, entry, sweep: &mut self.sweep })
    }

    /// The states of a key. If the key is unknown and there is no room for it, the numbers of its policy.
    pub(crate) fn slot<'a>(
        &'a mut self,
        recent_denials: &RecentDenials,
        key_hash: &'a KeyHash,
        request: KeyRequest<'a>,
    ) -> Result<Slot<'a>, &'a Arc<Registered>> {
        let KeyRequest { id, hash, key, now_us } = request;
        let current = &self.policies[id.0 as usize];
        let sweep = &mut self.sweep;
        let entries = match self.entries.find_entry(hash, |entry| entry.is(current, key)) {
            Ok(entry) => return Ok(Slot::of_entry(entry.into_mut(), current, Some(sweep))),
            Err(absent) => absent.into_table(),
        };
        let policies = &self.policies;
        let spent_after_us =
            |entry: &Entry, at_us| entry.spent_after_us(&policies[entry.under.id.0 as usize], at_us);
        // The denial of a dropped key is withdrawn, since it would be wrong if the clock went back.
        let dropped = |entry: &Entry| recent_denials.invalidate(key_hash.of(entry.under.id, &entry.key));
        let has_room = sweep.make_room(entries, self.max_keys, now_us, spent_after_us, dropped);
        if !has_room {
            return Err(current);
        }
        let vacancy = Vacancy { entries, sweep, key, hash, key_hash };
        Ok(Slot { current, place: Place::Unseen { vacancy, states: States::fresh(&current.policy) } })
    }

    pub(crate) fn clear(&mut self) {
        self.entries = HashTable::new();
        self.sweep.restart();
    }

    pub(crate) fn forget(&mut self, id: PolicyId, hash: u64, key: &[u8]) {
        let current = &self.policies[id.0 as usize];
        if let Ok(entry) = self.entries.find_entry(hash, |entry| entry.is(current, key)) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock::ManualClock;

    #[test]
    fn who_comes_second_is_not_earlier_unless_the_clock_goes_back() {
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
