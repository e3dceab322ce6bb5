//! The file in one process: decisions under the lock of a shard.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind};
use crate::rules::codec::States;
use crate::rules::decision::{Decision, Degradation};
use crate::rules::transition::Operation;
use crate::runtime::clock::Clock;
use crate::runtime::fork::ProcessGeneration;
use crate::store::request::Answer;
use crate::store::shared_file::file::OpenFile;
use crate::store::shared_file::location::SharedFileOptions;
use crate::store::shared_file::lock::{self, Kept, Taken};
use crate::store::shared_file::owner;
use crate::store::shared_file::policies::PolicyList;
use crate::store::shared_file::policies::{SharedFilePolicy, spent_at_us};
use crate::store::shared_file::recovery::recover;
use crate::store::shared_file::shard::{Broken, Bytes, Shard, head};
use crate::store::shared_file::{sweep, tidy};

/// The allowed difference between the clocks of two processes: they are read with an error of some microseconds, and a
/// coarse clock is some milliseconds late. A clock that is behind the latest recorded time by less than this uses the
/// recorded time.
const APART_US: u64 = 10_000;
/// How often the store checks whether the file still exists.
const LOOK_US: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct MappedStore {
    file: OpenFile,
    generation: ProcessGeneration,
    /// When the store next checks whether the file still exists.
    look_at_us: AtomicU64,
}

impl Drop for MappedStore {
    fn drop(&mut self) {
        // Closing the descriptor does not give the place back while a forked child has a copy of it. A child does not
        // give back its parent's place.
        if self.generation.is_here() {
            let OpenFile { file, mapping, layout, token, .. } = &self.file;
            owner::leave(file, *token, || tidy::note(mapping.words(), *layout));
        }
    }
}

/// An operation on a key of a policy.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) policies: &'a PolicyList,
    pub(crate) policy: &'a Arc<SharedFilePolicy>,
    pub(crate) key: &'a [u8],
    pub(crate) cost: u64,
}

/// A shard while its lock is held.
struct Held<'a> {
    shard: Shard<'a>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock::give(self.shard.lock().0);
    }
}

/// The lookup data of a key's entry.
struct Place<'a> {
    shard: &'a Shard<'a>,
    hash: u64,
    key: &'a [u8],
    now_us: u64,
}

/// The result of an attempt to apply an operation.
enum Outcome {
    Answered(Answer),
    /// The key has no entry, or its entry would grow, and there is no room.
    Full,
}

impl MappedStore {
    pub(crate) fn open(options: &SharedFileOptions, path: &Path) -> Result<Self, Error> {
        let file = OpenFile::open(options, path)?;
        Ok(Self { file, generation: ProcessGeneration::here(), look_at_us: AtomicU64::new(0) })
    }

    /// Whether another limiter of this process may use it, too: the path still leads to this file. Reports the same
    /// errors as opening the file does.
    pub(crate) fn is_good_for(&self, options: &SharedFileOptions) -> Result<bool, Error> {
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
        self.is_of_this_process() && self.look_at_us.load(Ordering::Relaxed) != u64::MAX
    }

    pub(crate) fn apply(
        &self,
        clock: &Clock,
        asked: Asked<'_>,
        operation: Operation,
    ) -> Result<Answer, Error> {
        let key = self.file.secret.key(asked.policy.policy.name(), asked.key);
        let hash = self.file.secret.hash(&key);
        let held = self.hold(self.shard_of(hash))?;
        let now_us = self.now_us(clock, &held.shard);
        let place = Place { shard: &held.shard, hash, key: &key, now_us };
        match self.in_order(&held.shard, || decide(&place, &asked, operation, None))? {
            Outcome::Answered(answer) => Ok(answer),
            Outcome::Full => self.apply_in_overflow(clock, asked, operation),
        }
    }

    /// Applies an operation to the state that keys without an entry share.
    #[cold]
    fn apply_in_overflow(
        &self,
        clock: &Clock,
        asked: Asked<'_>,
        operation: Operation,
    ) -> Result<Answer, Error> {
        let key = self.file.secret.key(asked.policy.policy.name(), &[]);
        let hash = self.file.secret.hash(&key);
        // No deadlock: a holder of this lock waits for no other lock.
        let held = self.hold(self.file.layout.shards)?;
        // Operations of other shards may have recorded a later time here since the time was read.
        let now_us = self.now_us(clock, &held.shard);
        let place = Place { shard: &held.shard, hash, key: &key, now_us };
        match self
            .in_order(&held.shard, || decide(&place, &asked, operation, Some(Degradation::StoreFull)))?
        {
            Outcome::Answered(answer) => Ok(answer),
            Outcome::Full => Err(self.failed(
                "it is full of what counts, and so is what keys share then: make it with a larger size",
            )),
        }
    }

    pub(crate) fn reset(&self, clock: &Clock, asked: Asked<'_>) -> Result<Decision, Error> {
        let key = self.file.secret.key(asked.policy.policy.name(), asked.key);
        let hash = self.file.secret.hash(&key);
        let held = self.hold(self.shard_of(hash))?;
        let now_us = self.now_us(clock, &held.shard);
        self.in_order(&held.shard, || {
            if let Some(found) = held.shard.find(hash, &key, &mut Bytes::new())? {
                held.shard.remove(found.from, found.block)?;
            }
            Ok(asked.policy.unseen(now_us))
        })
    }

    pub(crate) fn keys(&self) -> usize {
        let keys = |number| self.shard(number).get(head::KEYS);
        (0..self.file.layout.shards).map(keys).map(|keys| usize::try_from(keys).unwrap_or(0)).sum()
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
    fn hold(&self, number: usize) -> Result<Held<'_>, Error> {
        let shard = self.shard(number);
        let (word, count) = shard.lock();
        let is_gone = |token| owner::is_gone(&self.file.file, self.file.mapping.words(), token);
        match lock::take(word, count, self.file.token, is_gone) {
            Ok(Taken::Freely) => Ok(Held { shard }),
            Ok(Taken::Over) => {
                let held = Held { shard };
                self.recover(&held.shard);
                Ok(held)
            }
            Err(kept) => Err(self.kept(kept)),
        }
    }

    #[cold]
    fn kept(&self, Kept(token): Kept) -> Error {
        let process = owner::process_of(self.file.mapping.words(), token);
        let path = self.file.path.display();
        Error::new(
            ErrorKind::StoreUnavailable,
            format!("the local store {path}: process {process} keeps a part of it locked: is it stopped?"),
        )
    }

    #[cold]
    fn recover(&self, shard: &Shard<'_>) {
        recover(shard, |key| self.file.secret.hash(key));
    }

    /// Works on a shard; a shard that turns out to be broken is repaired first.
    #[inline]
    fn in_order<T>(&self, shard: &Shard<'_>, work: impl Fn() -> Result<T, Broken>) -> Result<T, Error> {
        let worked = work().or_else(|Broken| {
            self.recover(shard);
            work()
        });
        worked
            .map_err(|Broken| self.failed("what is in it makes no sense: remove it when no process uses it"))
    }

    #[cold]
    fn failed(&self, why: &str) -> Error {
        let path = self.file.path.display();
        Error::new(ErrorKind::StoreFailed, format!("the local store {path}: {why}"))
    }

    /// The time for a shard, read under its lock so that its states see times in the order of their operations.
    #[inline]
    fn now_us(&self, clock: &Clock, shard: &Shard<'_>) -> u64 {
        let shown_us = clock.now_us();
        if clock.manual().is_some() {
            return shown_us;
        }
        let look_at_us = self.look_at_us.load(Ordering::Relaxed);
        if shown_us >= look_at_us || shown_us + 2 * LOOK_US < look_at_us {
            self.look(shown_us);
        }
        let last_us = shard.get(head::LAST_US);
        if shown_us < last_us && last_us - shown_us < APART_US {
            return last_us;
        }
        shard.set(head::LAST_US, shown_us);
        shown_us
    }

    #[cold]
    fn look(&self, now_us: u64) {
        let next_us = if self.file.is_there() { now_us + LOOK_US } else { u64::MAX };
        self.look_at_us.store(next_us, Ordering::Relaxed);
    }
}

/// Applies an operation to the states of a key.
fn decide(
    place: &Place<'_>,
    asked: &Asked<'_>,
    operation: Operation,
    degraded: Option<Degradation>,
) -> Result<Outcome, Broken> {
    let Place { shard, hash, key, now_us } = *place;
    let policy = asked.policy;
    let mut bytes = Bytes::new();
    let found = shard.find(hash, key, &mut bytes)?;
    let of_known = |bytes: &[u8], lengths, at_us| spent_at_us(asked.policies, bytes, lengths, at_us);
    let mut healed = false;
    let mut states: States = if let Some(found) = found {
        let value = bytes.get(key.len()..).unwrap_or_default();
        policy.read(value, found.lengths).unwrap_or_else(|| {
            healed = true;
            policy.used_up(now_us)
        })
    } else {
        if degraded.is_none() && !sweep::make_room(shard, 1, now_us, of_known)? {
            return Ok(Outcome::Full);
        }
        policy.fresh()
    };
    let (decision, applied) = policy.rules.decide(&mut states, now_us, operation, asked.cost, degraded);
    let reset_at_us = now_us.saturating_add(decision.reset_after_us());
    // Expired states are not stored, since they equal those of a key that was never seen.
    if (applied.written || healed) && (found.is_some() || reset_at_us > now_us) {
        bytes = Bytes::from_slice(key);
        let lengths = policy.write(&states, &mut bytes);
        if let Some(found) = found
            && lengths.records == 0
            && lengths.logs == 0
        {
            shard.remove(found.from, found.block)?;
        } else if !shard.put(found, hash, lengths, &bytes, reset_at_us)? {
            let has_room = sweep::make_room(shard, lengths.blocks(), now_us, of_known)?;
            // The entry may have moved or have been dropped as expired.
            let found = shard.find(hash, key, &mut Bytes::new())?;
            if !has_room || !shard.put(found, hash, lengths, &bytes, reset_at_us)? {
                return Ok(Outcome::Full);
            }
        }
        sweep::lower(shard, reset_at_us);
    }
    Ok(Outcome::Answered((decision, applied.spent)))
}
