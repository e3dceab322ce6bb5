//! The store in this process: sharded, bounded, and cleaned as it goes.
//!
//! - A key belongs to one of many shards, each a hash table under a lock of its own. The hash is seeded at random.
//! - A shard holds its share of `max_keys`. A state that is spent (nothing counts as used any more) may be dropped,
//!   since it cannot be told from one that was never seen; one that is in use never is. Every new key looks at a few
//!   slots and drops what is spent there; a new key that finds its shard full looks at more of them.
//! - When a shard is full of keys in use, new keys share one state a policy, and their decisions say so.

mod entry;
mod key_hash;
mod lock;
mod long_key;
mod overflow;
mod registered;
mod shard;
mod slot;
mod states;
mod sweep;

use std::sync::Arc;

use parking_lot::Mutex;

use self::key_hash::KeyHash;
use self::lock::Lock;
use self::long_key::LongKeys;
use self::overflow::Overflow;
use self::registered::Registered;
use self::shard::Shard;
use super::PolicyId;
use crate::clock::Clock;
use crate::decision::{Decision, Degradation, Usage};
use crate::policy::Policy;
use crate::transition::Operation;

/// Fewer keys than this are not worth a shard of their own.
const MIN_KEYS_PER_SHARD: usize = 1 << 10;
/// More shards than this are made only to keep the shards small.
const ENOUGH_SHARDS: usize = 1 << 6;
/// A table that grows moves all its keys at once, so no shard gets many. This many just fit 2^14 slots, which a table
/// fills to seven eighths.
const MAX_KEYS_PER_SHARD: usize = (1 << 14) / 8 * 7;
const MAX_SHARDS: usize = 1 << 16;

/// Whose states are asked for, and when.
#[derive(Clone, Copy)]
struct Request<'a> {
    id: PolicyId,
    hash: u64,
    key: &'a [u8],
    now_us: u64,
}

#[derive(Debug)]
pub(crate) struct MemoryStore {
    shards: Box<[Padded]>,
    overflow: Mutex<Overflow>,
    key_hash: KeyHash,
    long_keys: LongKeys,
    clock: Clock,
}

/// A shard on cache lines of its own, so that two cores that work on neighbours do not wait for each other.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Lock<Shard>);

impl MemoryStore {
    /// A store of at most `max_keys` keys, which is at least 1.
    pub(crate) fn new(max_keys: usize, clock: Clock) -> Self {
        let key_hash = KeyHash::default();
        let worth = (max_keys / MIN_KEYS_PER_SHARD).min(ENOUGH_SHARDS);
        let count = worth.max(max_keys.div_ceil(MAX_KEYS_PER_SHARD)).clamp(1, MAX_SHARDS);
        // They add up to `max_keys`.
        let keys_of = |at| (max_keys / count) + usize::from(at < max_keys % count);
        let shard = |at| Padded(Lock::new(Shard::new(keys_of(at), key_hash.clone())));
        Self {
            shards: (0..count).map(shard).collect(),
            overflow: Mutex::default(),
            key_hash,
            long_keys: LongKeys::default(),
            clock,
        }
    }

    /// The clock by which it decides.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Registers a policy, or changes its numbers; what was used is kept as far as the quotas' identities stay.
    pub(crate) fn set_policy(&self, id: PolicyId, policy: &Policy) {
        let registered = Arc::new(Registered::new(id, policy));
        let now_us = self.clock.now_us();
        for shard in &self.shards {
            shard.0.lock().set_policy(&registered, now_us);
        }
    }

    /// Checks or peeks.
    #[inline]
    pub(crate) fn decide(&self, id: PolicyId, key: &[u8], operation: Operation, cost: u64) -> Decision {
        self.apply(id, key, operation, cost).0
    }

    /// Takes, charges or refunds.
    pub(crate) fn adjust(&self, id: PolicyId, key: &[u8], operation: Operation, cost: u64) -> Usage {
        let (decision, spent) = self.apply(id, key, operation, cost);
        decision.into_usage(spent)
    }

    /// Applies an operation to the states of a key, and says as well how many units it spent.
    #[inline]
    fn apply(&self, id: PolicyId, key: &[u8], operation: Operation, cost: u64) -> (Decision, u64) {
        let digest = self.long_keys.digest(key);
        let key = digest.as_ref().map_or(key, |digest| digest);
        let hash = self.key_hash.of(id, key);
        let mut shard = self.shard(hash).0.lock();
        // Read under the lock, so that the states of a shard see times in the order of their operations.
        let now_us = self.clock.now_us();
        if let Some(mut known) = shard.known(id, hash, key) {
            let (rules, states) = known.parts();
            let (decision, applied) = rules.decide(states, now_us, operation, cost, None);
            if applied.written {
                known.written(now_us + decision.reset_after_us());
            }
            return (decision, applied.spent);
        }
        let (decision, spent) =
            self.apply_anew(&mut shard, Request { id, hash, key, now_us }, operation, cost);
        (decision.by_fields(), spent)
    }

    /// Applies an operation to a key that is not known, or whose states were written under other numbers.
    #[cold]
    fn apply_anew(
        &self,
        shard: &mut Shard,
        request: Request<'_>,
        operation: Operation,
        cost: u64,
    ) -> (Decision, u64) {
        let mut overflow;
        let (mut slot, degraded) = match shard.slot(request) {
            Ok(slot) => (slot, None),
            Err(current) => {
                overflow = self.overflow.lock();
                (overflow.slot(current), Some(Degradation::StoreFull))
            }
        };
        let now_us = request.now_us;
        let (rules, states) = slot.parts();
        let (decision, applied) = rules.decide(states, now_us, operation, cost, degraded);
        if applied.written {
            slot.keep(now_us, now_us + decision.reset_after_us());
        }
        (decision, applied.spent)
    }

    /// Forgets the key.
    pub(crate) fn reset(&self, id: PolicyId, key: &[u8]) -> Usage {
        let digest = self.long_keys.digest(key);
        let key = digest.as_ref().map_or(key, |digest| digest);
        let hash = self.key_hash.of(id, key);
        let mut shard = self.shard(hash).0.lock();
        shard.forget(id, hash, key);
        shard.current(id).unseen(self.clock.now_us())
    }

    /// How many keys it holds a state for.
    pub(crate) fn keys(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().len()).sum()
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Padded {
        // The table uses the lowest bits and the seven highest; these 32 are others. Multiplying and shifting maps them
        // to any number of shards (Lemire, "Fast random integer generation in an interval", 2019).
        let bits = (hash >> 16) & 0xFFFF_FFFF;
        &self.shards[((bits * self.shards.len() as u64) >> 32) as usize]
    }
}
