//! The store in this process: sharded, bounded, and cleaned as it goes.
//!
//! - A key belongs to one of many shards, each a hash table under a lock of its own. The hash is seeded at random.
//! - A shard holds its share of `max_keys`. A state that is spent (nothing counts as used any more) may be dropped,
//!   since it cannot be told from one that was never seen; one that is in use never is. Every new key looks at a few
//!   slots and drops what is spent there; a new key that finds its shard full looks at more of them.
//! - When a shard is full of keys in use, new keys share one state a policy, and their decisions say so.
//! - Denials that hold for a while are posted, so that who asks again need not take the lock.

mod entry;
mod key_hash;
mod long_key;
mod overflow;
pub(crate) mod recent_denials;
mod registered;
mod shard;
mod slot;
mod states;
mod sweep;

use std::sync::Arc;

use parking_lot::Mutex;

use self::key_hash::KeyHash;
use self::long_key::LongKeys;
use self::overflow::Overflow;
use self::registered::Registered;
use self::shard::{KeyRequest, Shard};
use self::slot::Known;
use crate::rules::algorithm::State;
use crate::rules::decision::{Decision, Degradation};
use crate::rules::history::History;
use crate::rules::policy::Policy;
use crate::rules::transition::{Operation, PolicyRules};
use crate::runtime::clock::Clock;
use crate::runtime::lock::Lock;
use crate::store::memory::recent_denials::RecentDenials;
use crate::store::request::{Action, Answer, PolicyId, StoreRequest};

/// Fewer keys than this are not worth a shard of their own.
const MIN_KEYS_PER_SHARD: usize = 1 << 10;
/// More shards than this are made only to keep the shards small.
const ENOUGH_SHARDS: usize = 1 << 6;
/// A table that grows moves all its keys at once, so no shard gets many. This many just fit 2^14 slots, which a table
/// fills to seven eighths.
const MAX_KEYS_PER_SHARD: usize = (1 << 14) / 8 * 7;
const MAX_SHARDS: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct MemoryStore {
    shards: Box<[Padded]>,
    overflow: Mutex<Overflow>,
    key_hash: KeyHash,
    long_keys: LongKeys,
    clock: Clock,
    max_keys: usize,
}

/// A shard on cache lines of its own, so that two cores that work on neighbours do not wait for each other.
#[derive(Debug)]
#[repr(C, align(128))]
struct Padded {
    shard: Lock<Shard>,
    /// Denials of keys of this shard, which need no lock.
    recent_denials: RecentDenials,
}

const _: () = assert!(size_of::<Padded>() == 128);

impl MemoryStore {
    /// A store of at most `max_keys` keys, which is at least 1.
    pub(crate) fn new(max_keys: usize, clock: Clock) -> Self {
        let key_hash = KeyHash::default();
        let worth = (max_keys / MIN_KEYS_PER_SHARD).min(ENOUGH_SHARDS);
        let count = worth.max(max_keys.div_ceil(MAX_KEYS_PER_SHARD)).clamp(1, MAX_SHARDS);
        // They add up to `max_keys`.
        let keys_of = |at| (max_keys / count) + usize::from(at < max_keys % count);
        let shard = |at| Padded {
            shard: Lock::new(Shard::new(keys_of(at))),
            recent_denials: RecentDenials::default(),
        };
        Self {
            shards: (0..count).map(shard).collect(),
            overflow: Mutex::default(),
            key_hash,
            long_keys: LongKeys::default(),
            clock,
            max_keys,
        }
    }

    /// An empty store for a process that was forked from the one that uses this: a lock of this one may be held by a
    /// thread that is not there.
    pub(crate) fn after_fork(&self) -> Self {
        Self::new(self.max_keys, self.clock.clone())
    }

    /// The clock by which it decides.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Registers a policy, or changes its numbers; what was used is kept as far as the quotas' identities stay.
    pub(crate) fn set_policy(&self, id: PolicyId, policy: &Policy) {
        let history = {
            let shard = self.shards[0].shard.lock();
            let before = shard.registered(id);
            before.map_or_else(History::default, |before| before.superseded_at(self.clock.now_us()))
        };
        let registered = Arc::new(Registered::new(id, policy, history));
        for Padded { shard, recent_denials } in &self.shards {
            let mut shard = shard.lock();
            recent_denials.withdraw_all();
            shard.set_policy(&registered);
        }
    }

    /// Answers a request, at once.
    pub(crate) fn answer(&self, request: StoreRequest<'_>) -> Answer {
        let StoreRequest { id, key, action, cost } = request;
        match action {
            Action::Apply(Operation::Check) => match self.check_known(id, key, cost) {
                Some(decision) => {
                    let spent = if decision.allowed { cost } else { 0 };
                    (decision, spent)
                }
                None => self.apply(id, key, Operation::Check, cost),
            },
            Action::Apply(operation) => self.apply(id, key, operation, cost),
            Action::Reset => (self.reset(id, key), 0),
        }
    }

    /// The answer to a check that is answered in the shortest way: of a short key that is known. Where a token bucket is the
    /// policy's only quota all of it is compiled into the caller, with every number in a register.
    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than deciding"
    )]
    #[inline(always)]
    pub(crate) fn check_known(&self, id: PolicyId, key: &[u8], cost: u64) -> Option<Decision> {
        if LongKeys::is_long(key) {
            return None;
        }
        // Read before the lock is taken, since reading it takes as long as all the rest.
        let read_us = self.clock.now_us();
        let hash = self.key_hash.of(id, key);
        let Padded { shard, recent_denials } = self.shard(hash);
        if cost == 1
            && let Some(denial) = recent_denials.denial(id, hash, key, read_us)
        {
            return Some(denial);
        }
        let mut shard = shard.lock();
        let now_us = shard.time(read_us, &self.clock);
        let Known { current, entry, sweep } = shard.known(id, hash, key)?;
        let states = entry.states.as_mut_slice();
        let Some((decision, written)) = current.rules.check_bucket(states, now_us, cost) else {
            let (decision, written) = check_others(&current.rules, states, now_us, cost);
            if written {
                recent_denials.invalidate(hash);
                sweep.lower(now_us + decision.reset_after_us());
            }
            return Some(decision.by_fields());
        };
        if written {
            recent_denials.invalidate(hash);
            sweep.lower(now_us + decision.reset_after_us());
        } else if cost == 1 {
            recent_denials.publish(id, hash, key, now_us, decision.wait_us, decision.total);
        }
        Some(decision)
    }

    /// Applies an operation to the states of a key, and says as well how many units it spent.
    #[inline(never)]
    fn apply(&self, id: PolicyId, key: &[u8], operation: Operation, cost: u64) -> (Decision, u64) {
        let digest = self.long_keys.digest(key);
        let key = digest.as_ref().map_or(key, |digest| digest);
        let hash = self.key_hash.of(id, key);
        let Padded { shard, recent_denials } = self.shard(hash);
        let mut shard = shard.lock();
        let now_us = shard.time(self.clock.now_us(), &self.clock);
        let mut overflow;
        let (mut slot, degraded) =
            match shard.slot(recent_denials, &self.key_hash, KeyRequest { id, hash, key, now_us }) {
                Ok(slot) => (slot, None),
                Err(current) => {
                    overflow = self.overflow.lock();
                    (overflow.slot(current), Some(Degradation::StoreFull))
                }
            };
        let (rules, states) = slot.parts();
        let (decision, applied) = rules.decide(states, now_us, operation, cost, degraded);
        if applied.written {
            recent_denials.invalidate(hash);
            slot.keep(now_us, now_us + decision.reset_after_us());
        }
        (decision, applied.spent)
    }

    /// Forgets the key.
    fn reset(&self, id: PolicyId, key: &[u8]) -> Decision {
        let digest = self.long_keys.digest(key);
        let key = digest.as_ref().map_or(key, |digest| digest);
        let hash = self.key_hash.of(id, key);
        let Padded { shard, recent_denials } = self.shard(hash);
        let mut shard = shard.lock();
        recent_denials.invalidate(hash);
        shard.forget(id, hash, key);
        shard.current(id).unseen(self.clock.now_us())
    }

    /// Forgets every key, and gives their memory back.
    pub(crate) fn clear(&self) {
        for Padded { shard, recent_denials } in &self.shards {
            let mut shard = shard.lock();
            recent_denials.withdraw_all();
            shard.clear();
        }
        *self.overflow.lock() = Overflow::default();
    }

    /// How many keys it holds a state for.
    pub(crate) fn keys(&self) -> usize {
        self.shards.iter().map(|padded| padded.shard.lock().len()).sum()
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Padded {
        // The table uses the lowest bits and the seven highest; these 32 are others. Multiplying and shifting maps them
        // to any number of shards (Lemire, "Fast random integer generation in an interval", 2019).
        let bits = (hash >> 16) & 0xFFFF_FFFF;
        &self.shards[((bits * self.shards.len() as u64) >> 32) as usize]
    }
}

/// Checks by whatever is not one token bucket, and says as well whether it wrote them.
#[inline(never)]
fn check_others(rules: &PolicyRules, states: &mut [State], now_us: u64, cost: u64) -> (Decision, bool) {
    let (decision, applied) = rules.decide(states, now_us, Operation::Check, cost, None);
    (decision, applied.written)
}
