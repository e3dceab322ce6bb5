//! The file in one process: decisions under the lock of a shard.

mod listing;
#[cfg(test)]
mod tests;
mod together;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::{Failure, failed, unavailable};
use crate::file::OpenFile;
use crate::location::SharedFileOptions;
use crate::lock::{self, Acquisition, HolderWatch, Lock, NotAcquired};
use crate::owner;
use crate::patience::Patience;
use crate::policies::expiry;
use crate::recovery::{record_order, recover};
use crate::shard::{Broken, Bytes, Found, Lengths, Shard, head};
use crate::sweep;
use polylimit_rules::codec::{States, Unreadable};
use polylimit_rules::decision::Degradation;
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::fork::ProcessGeneration;
use polylimit_store::charge::{Action, Charge, StoreAnswer};
use polylimit_store::stored_policy::{StoredPolicies, StoredPolicy};

/// The allowed difference between the clocks of two processes: they are read with an error of some microseconds, and a
/// coarse clock is some milliseconds late. A clock that is behind the latest recorded time by less than this uses the
/// recorded time.
const APART_US: u64 = 10_000;
/// How often the store checks whether the file still exists.
const CHECK_US: u64 = 1_000_000;

const NEWER: &str = "a newer version of polylimit has written the state of this key, and this version cannot read it: upgrade this \
                     process, or reset the key";
const FULL: &str = "it is full of what counts, and so is what keys share then: make it with a larger size";

#[derive(Debug)]
pub(crate) struct MappedStore {
    file: OpenFile,
    generation: ProcessGeneration,
    /// When the store next checks whether the file still exists.
    check_at_us: AtomicU64,
    /// What is known of the holder of each shard's lock.
    holders: Box<[HolderWatch]>,
}

impl Drop for MappedStore {
    fn drop(&mut self) {
        // Closing the descriptor does not release the owner's place while a forked child has a copy of it. A child does not give back its
        // parent's place.
        if self.generation.is_here() {
            let OpenFile { file, mapping, layout, token, .. } = &self.file;
            owner::leave(file, *token, || record_order(mapping.words(), *layout));
        }
    }
}

/// Why an operation was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Broken,
    /// A later version has written the state of the key.
    Newer,
}

impl From<Broken> for Stop {
    fn from(Broken: Broken) -> Self {
        Self::Broken
    }
}

/// A shard while its lock is held.
struct LockedShard<'a>(Shard<'a>);

impl Drop for LockedShard<'_> {
    fn drop(&mut self) {
        lock::release(self.0.lock().0);
    }
}

/// The lookup data of a key's entry.
struct Place<'a> {
    shard: &'a Shard<'a>,
    hash: u64,
    key: &'a [u8],
    now_us: u64,
}

impl MappedStore {
    pub(crate) fn open(
        options: &SharedFileOptions,
        path: &Path,
        patience: Patience,
    ) -> Result<Self, Failure> {
        let file = OpenFile::open(options, path, patience)?;
        let holders = (0..=file.layout.shards).map(|_| HolderWatch::default()).collect();
        Ok(Self { file, generation: ProcessGeneration::here(), check_at_us: AtomicU64::new(0), holders })
    }

    /// Whether another limiter of this process may use it, too: the path still leads to this file. Reports the same
    /// errors as opening the file does.
    pub(crate) fn is_good_for(&self, options: &SharedFileOptions) -> Result<bool, Failure> {
        self.file.is_good_for(options)
    }

    /// Whether this process opened the file, rather than the process that it was forked from.
    #[inline]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.generation.is_here()
    }

    /// Whether this process may use it: it opened the file, and the last check found the file in place.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        self.is_of_this_process() && !self.is_removed()
    }

    /// Whether the last check found that the path leads to no file or to another one.
    #[inline]
    pub(crate) fn is_removed(&self) -> bool {
        self.check_at_us.load(Ordering::Relaxed) == u64::MAX
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    pub(crate) fn answer(
        &self,
        clock: &Clock,
        policies: &StoredPolicies,
        policy: &StoredPolicy,
        charge: Charge<'_>,
        patience: Patience,
    ) -> Result<StoreAnswer, Failure> {
        let Charge { key, action, .. } = charge;
        let Action::Apply(operation) = action else { return self.reset(clock, policy, key, patience) };
        let decide =
            |place: &Place<'_>, degraded| decide(place, (policies, policy), operation, charge, degraded);
        if let Some(answer) = self.work(clock, policy, (key, false), patience, |place| decide(place, None))? {
            return Ok(answer);
        }
        let degraded = |place: &Place<'_>| decide(place, Some(Degradation::StoreFull));
        self.answer_in_overflow(clock, policy, patience, degraded)
    }

    /// Applies an operation to the state that keys without an entry share.
    #[cold]
    fn answer_in_overflow(
        &self,
        clock: &Clock,
        policy: &StoredPolicy,
        patience: Patience,
        decide: impl Fn(&Place<'_>) -> Result<Option<StoreAnswer>, Stop>,
    ) -> Result<StoreAnswer, Failure> {
        // No deadlock: a holder of this lock waits for no other lock. The time is read again, since operations of other
        // shards may have recorded a later one here.
        self.work(clock, policy, (&[], true), patience, decide)?
            .ok_or_else(|| unavailable(&self.file.path, Degradation::StoreFull, FULL))
    }

    fn reset(
        &self,
        clock: &Clock,
        policy: &StoredPolicy,
        key: &[u8],
        patience: Patience,
    ) -> Result<StoreAnswer, Failure> {
        self.work(clock, policy, (key, false), patience, |&Place { shard, hash, key, now_us }| {
            if let Some(found) = shard.find(hash, key, &mut Bytes::new())? {
                shard.remove(found.from, found.block)?;
            }
            Ok((policy.rules.view(&policy.fresh(), now_us), 0))
        })
    }

    /// Works on the entry of a key, in its shard or in the overflow, while the lock is held. A shard that turns out to be broken is
    /// repaired first.
    #[inline]
    fn work<T>(
        &self,
        clock: &Clock,
        policy: &StoredPolicy,
        (key, is_overflow): (&[u8], bool),
        patience: Patience,
        work: impl Fn(&Place<'_>) -> Result<T, Stop>,
    ) -> Result<T, Failure> {
        let key = self.file.secret.key(policy.policy.name(), key);
        self.work_on(clock, (&key, is_overflow), patience, work)
    }

    /// The same for an encoded key.
    #[inline]
    fn work_on<T>(
        &self,
        clock: &Clock,
        (key, is_overflow): (&[u8], bool),
        patience: Patience,
        work: impl Fn(&Place<'_>) -> Result<T, Stop>,
    ) -> Result<T, Failure> {
        let OpenFile { layout, secret, .. } = &self.file;
        let hash = secret.hash(key);
        let locked = self.lock(if is_overflow { layout.shards } else { self.shard_of(hash) }, patience)?;
        let shard = &locked.0;
        // Read under the lock, so that the shard's states see times in the order of their operations.
        let now_us = self.now_us(clock, shard);
        let place = Place { shard, hash, key, now_us };
        self.repaired(shard, || work(&place))
    }

    /// The result of an operation on a shard, which is repaired first if it turns out to be broken.
    #[inline]
    fn repaired<T>(
        &self,
        shard: &Shard<'_>,
        mut work: impl FnMut() -> Result<T, Stop>,
    ) -> Result<T, Failure> {
        let mut worked = work();
        if matches!(worked, Err(Stop::Broken)) {
            self.recover(shard);
            worked = work();
        }
        worked.map_err(|stop| match stop {
            Stop::Broken => {
                failed(&self.file.path, "what is in it makes no sense: remove it when no process uses it")
            }
            Stop::Newer => unavailable(&self.file.path, Degradation::NewerFormat, NEWER),
        })
    }

    pub(crate) fn keys(&self) -> usize {
        let keys = |number| self.shard(number).get(head::KEYS);
        (0..self.file.layout.shards).map(keys).map(|keys| usize::try_from(keys).unwrap_or(0)).sum()
    }

    /// How many keys fit if each takes as many blocks as the existing ones on average; without keys, if each takes one.
    pub(crate) fn keys_capacity(&self) -> usize {
        let shards = (0..self.file.layout.shards).map(|number| self.shard(number));
        let (mut all, mut used) = (0, 0);
        for shard in shards {
            // No new key takes one of the spare blocks.
            let room = shard.blocks().saturating_sub(shard.spare());
            all += room;
            used += room.saturating_sub(shard.free().saturating_sub(shard.spare()));
        }
        let keys = self.keys();
        if keys == 0 || used == 0 {
            return all;
        }
        let capacity = all as u128 * keys as u128 / used as u128;
        usize::try_from(capacity).unwrap_or(usize::MAX).max(keys)
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        // The buckets use the lowest bits, tags the high half; shards mostly others. See the memory store.
        let bits = (hash >> 16) & 0xFFFF_FFFF;
        usize::try_from((bits * self.file.layout.shards as u64) >> 32).unwrap_or(0)
    }

    #[inline]
    fn shard(&self, number: usize) -> Shard<'_> {
        Shard::new(&self.file.mapping.words()[self.file.layout.shard(number)])
    }

    /// Acquires the lock of a shard.
    #[inline]
    fn lock(&self, number: usize, patience: Patience) -> Result<LockedShard<'_>, Failure> {
        let shard = self.shard(number);
        let ((word, count), token) = (shard.lock(), self.file.token);
        let state_of = |token| owner::state_of(&self.file.file, self.file.mapping.words(), token);
        let lock = Lock { word, count, watch: &self.holders[number], token, state_of };
        let acquisition = lock.acquire(patience).map_err(|held| self.not_acquired(held))?;
        let locked = LockedShard(shard);
        if acquisition == Acquisition::Takeover {
            self.recover(&locked.0);
        }
        Ok(locked)
    }

    #[cold]
    fn not_acquired(&self, held: NotAcquired) -> Failure {
        let NotAcquired::HeldBy(token) = held else {
            return Failure {
                is_busy: true,
                ..unavailable(&self.file.path, Degradation::Busy, "it is locked")
            };
        };
        let process = owner::process_of(self.file.mapping.words(), token);
        let why = format!("process {process} keeps a part of it locked: is it stopped?");
        unavailable(&self.file.path, Degradation::Busy, &why)
    }

    #[cold]
    fn recover(&self, shard: &Shard<'_>) {
        recover(shard, |key| self.file.secret.hash(key));
    }

    /// The time for a shard whose lock is held.
    #[inline]
    fn now_us(&self, clock: &Clock, shard: &Shard<'_>) -> u64 {
        let shown_us = clock.now_us();
        if clock.manual().is_some() {
            return shown_us;
        }
        let check_at_us = self.check_at_us.load(Ordering::Relaxed);
        if shown_us >= check_at_us || shown_us + 2 * CHECK_US < check_at_us {
            self.check_file(shown_us);
        }
        let last_us = shard.get(head::LAST_US);
        if shown_us < last_us && last_us - shown_us < APART_US {
            return last_us;
        }
        shard.set(head::LAST_US, shown_us);
        shown_us
    }

    #[cold]
    fn check_file(&self, now_us: u64) {
        let next_us = if self.file.is_there() { now_us + CHECK_US } else { u64::MAX };
        self.check_at_us.store(next_us, Ordering::Relaxed);
    }
}

/// The states of a key as they were found, and where.
struct Loaded {
    states: States,
    found: Option<Found>,
    /// Whether the stored state was invalid: everything counts as used.
    healed: bool,
    /// The records of a later version.
    unknown: Vec<u8>,
}

impl Loaded {
    /// `None`: the key has no entry, and there is no room for one.
    fn of(
        &Place { shard, hash, key, now_us }: &Place<'_>,
        policies: &StoredPolicies,
        policy: &StoredPolicy,
        degraded: Option<Degradation>,
    ) -> Result<Option<Self>, Stop> {
        let mut bytes = Bytes::new();
        let found = shard.find(hash, key, &mut bytes)?;
        let (mut healed, mut unknown) = (false, Vec::new());
        let states = if let Some(found) = found {
            let value = bytes.get(key.len()..).unwrap_or_default();
            match found.lengths.read(policy, value, now_us, &mut unknown) {
                Ok(states) => states,
                Err(Unreadable::Newer) => return Err(Stop::Newer),
                Err(Unreadable::Malformed) => {
                    healed = true;
                    unknown.clear();
                    policy.used_up(now_us)
                }
            }
        } else {
            let of_known = |bytes: &[u8], lengths, at_us| expiry(policies, bytes, lengths, at_us);
            if degraded.is_none() && !sweep::make_room(shard, 1, now_us, of_known)? {
                return Ok(None);
            }
            policy.fresh()
        };
        Ok(Some(Self { states, found, healed, unknown }))
    }
}

/// Applies an operation with its cost to the states of a key. `None`: the key has no entry, or its entry would grow, and
/// there is no room.
fn decide(
    place: &Place<'_>,
    (policies, policy): (&StoredPolicies, &StoredPolicy),
    operation: Operation,
    charge: Charge<'_>,
    degraded: Option<Degradation>,
) -> Result<Option<StoreAnswer>, Stop> {
    let Place { shard, hash, key, now_us } = *place;
    let Some(Loaded { mut states, found, healed, unknown }) = Loaded::of(place, policies, policy, degraded)?
    else {
        return Ok(None);
    };
    let (decision, applied) = policy.rules.decide(&mut states, charge.operation(operation, now_us), degraded);
    let reset_at_us = now_us.saturating_add(decision.reset_after_us());
    // Expired states are not stored, since they equal those of a key that was never seen.
    if (applied.written || healed) && (found.is_some() || reset_at_us > now_us) {
        let mut bytes = Bytes::from_slice(key);
        let lengths = Lengths::write(policy, &states, &unknown, &mut bytes);
        if let Some(found) = found
            && lengths.records == 0
            && lengths.logs == 0
        {
            shard.remove(found.from, found.block)?;
        } else if !shard.put(found, hash, lengths, &bytes, reset_at_us)? {
            let of_known = |bytes: &[u8], lengths, at_us| expiry(policies, bytes, lengths, at_us);
            let has_room = sweep::make_room(shard, lengths.blocks(), now_us, of_known)?;
            // The entry may have moved or have been dropped as expired.
            let found = shard.find(hash, key, &mut Bytes::new())?;
            if !has_room || !shard.put(found, hash, lengths, &bytes, reset_at_us)? {
                return Ok(None);
            }
        }
        sweep::lower(shard, reset_at_us);
    }
    Ok(Some((decision, applied.spent)))
}
