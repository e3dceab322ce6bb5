//! The store in the memory of this process: sharded, bounded and cleaned incrementally.
//!
//! - A key belongs to one of many shards, each a hash table with its own lock. The hash is seeded at random.
//! - A shard holds its share of `max_keys`. An expired state may be dropped, since it equals the state of a key that
//!   was never seen; a state that is not expired is never dropped. Each new key inspects a few slots and drops expired
//!   entries; a new key that finds its shard full inspects more slots.
//! - When a shard is full of entries that are not expired, new keys share one state for each policy, and their
//!   decisions are marked as degraded.
//! - Denials that stay valid for a while are published, so that further requests of the same key need no lock.

mod entry;
#[doc(hidden)]
pub mod fallback;
mod key;
mod listing;
#[doc(hidden)]
pub mod made_reservations;
mod recent_denials;
mod shard;
mod sweep;

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::{SmallVec, smallvec};

use self::entry::{RegisteredPolicy, States};
use self::key::{KeyHash, LongKeys};
use self::recent_denials::RecentDenials;
use self::shard::{KeyRequest, KnownEntry, NoSlot, Overflow, Shard, Slot};
use polylimit_rules::decision::{Decision, Degradation};
use polylimit_rules::error::Error;
use polylimit_rules::general::{KeyOperation, KeyStates};
use polylimit_rules::history::History;
use polylimit_rules::policy::Policy;
use polylimit_rules::transition::{Operation, PolicyRules};
use polylimit_runtime::clock::Clock;
use polylimit_runtime::lock::Lock;
use polylimit_store::charge::{Action, Charge, PolicyId, PreparedQuotas, StoreAnswer, StoreAnswers};

/// A shard for fewer keys than this is not worthwhile.
const MIN_KEYS_PER_SHARD: usize = 1 << 10;
/// More shards than this are created only to keep the shards small.
const ENOUGH_SHARDS: usize = 1 << 6;
/// A growing table moves all its keys at once, so the number of keys in a shard is bounded. This many keys exactly fit
/// 2^14 slots at the table's maximum load of seven eighths.
const MAX_KEYS_PER_SHARD: usize = (1 << 14) / 8 * 7;
const MAX_SHARDS: usize = 1 << 16;

/// The store in the memory of this process.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[PaddedShard]>,
    overflow: Mutex<Overflow>,
    key_hash: KeyHash,
    long_keys: LongKeys,
    clock: Clock,
    max_keys: usize,
}

/// A shard on its own cache lines, so that cores that work on neighbouring shards do not contend.
#[derive(Debug)]
#[repr(C, align(128))]
struct PaddedShard {
    shard: Lock<Shard>,
    /// Denials of keys of this shard that can be read without a lock.
    recent_denials: RecentDenials,
}

#[cfg(not(polylimit_loom))]
const _: () = assert!(size_of::<PaddedShard>() == 128);

impl MemoryStore {
    /// Creates a store of at most `max_keys` keys, which is at least 1.
    pub fn new(max_keys: usize, clock: Clock) -> Self {
        let key_hash = KeyHash::default();
        let worth = (max_keys / MIN_KEYS_PER_SHARD).min(ENOUGH_SHARDS);
        let count = worth.max(max_keys.div_ceil(MAX_KEYS_PER_SHARD)).clamp(1, MAX_SHARDS);
        // The shares add up to `max_keys`.
        let keys_of = |at| (max_keys / count) + usize::from(at < max_keys % count);
        let shard = |at| PaddedShard {
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

    /// An empty store for a forked child: a lock of the parent's store may be held by a thread that does not exist in
    /// the child.
    #[must_use]
    pub fn after_fork(&self) -> Self {
        Self::new(self.max_keys, self.clock.clone())
    }

    /// The clock by which it decides.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Registers a policy or changes its quotas. Usage is kept where the quota's identity stays the same.
    pub fn set_policy(&self, id: PolicyId, policy: &Policy) {
        let before = self.shards[0].shard.lock().registered(id).map(Arc::clone);
        let history =
            before.as_ref().map_or_else(History::default, |before| before.superseded_at(self.clock.now_us()));
        let registered = Arc::new(RegisteredPolicy::new(id, policy, history));
        for PaddedShard { shard, recent_denials } in &self.shards {
            let mut shard = shard.lock();
            if before.is_some() {
                recent_denials.invalidate_all();
            }
            shard.set_policy(&registered);
        }
    }

    /// Whether a key has a state under the policy, including expired ones that were not removed yet.
    pub fn has_states(&self, id: PolicyId) -> bool {
        // Each entry holds the policy, and so does each shard.
        self.shards[0]
            .shard
            .lock()
            .registered(id)
            .is_some_and(|policy| Arc::strong_count(policy) > self.shards.len())
    }

    /// Forgets a policy with the states of its keys.
    pub fn forget_policy(&self, id: PolicyId) {
        let has_states = self.has_states(id);
        for PaddedShard { shard, .. } in &self.shards {
            shard.lock().forget_policy(id, has_states);
        }
        self.overflow.lock().forget_policy(id);
    }

    /// Prepares the effective quotas of some keys of a policy.
    pub fn prepare_quotas(id: PolicyId, policy: &Policy) -> PreparedQuotas {
        PreparedQuotas::new(Arc::new(RegisteredPolicy::of_keys(id, policy)))
    }

    /// # Errors
    /// `Internal` for a policy that was forgotten.
    pub fn answer(&self, charge: Charge<'_>) -> Result<StoreAnswer, Error> {
        let Charge { id, key, action, cost, headroom, effective, .. } = charge;
        match action {
            Action::Apply(Operation::Check) if headroom == 0 && effective.is_none() => {
                match self.check_known(id, key, cost) {
                    Some(decision) => {
                        let spent = if decision.allowed { cost } else { 0 };
                        Ok((decision, spent))
                    }
                    None => self.apply(charge, Operation::Check),
                }
            }
            Action::Apply(operation) => self.apply(charge, operation),
            Action::Reset => self.reset(charge).map(|decision| (decision, 0)),
        }
    }

    /// Answers a check of a short, known key. This is the shortest path: for a policy with a single token bucket it is
    /// compiled into the caller, with every number in a register.
    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than deciding"
    )]
    #[inline(always)]
    pub fn check_known(&self, id: PolicyId, key: &[u8], cost: u64) -> Option<Decision> {
        if LongKeys::is_long(key) {
            return None;
        }
        // Read before the lock is taken, since reading the clock takes as long as all the rest.
        let read_us = self.clock.now_us();
        let hash = self.key_hash.of(id, key);
        let PaddedShard { shard, recent_denials } = self.shard(hash);
        if cost == 1
            && let Some(denial) = recent_denials.denial(id, hash, key, read_us)
        {
            return Some(denial);
        }
        let mut shard = shard.lock();
        let now_us = shard.time(read_us, &self.clock);
        let KnownEntry { current, entry, sweep } = shard.known(id, hash, key)?;
        let states = entry.states.as_mut_slice();
        let Some((decision, written)) = current.rules.check_bucket(states, now_us, cost) else {
            // A check where reservations are counted is refused by the caller.
            if current.rules.slots.is_some() {
                return None;
            }
            let (decision, written) = check_others(&current.rules, &mut entry.states, now_us, cost);
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

    /// Applies an operation to the states of a key; returns the decision and the number of units spent.
    #[inline(never)]
    fn apply(&self, charge: Charge<'_>, operation: Operation) -> Result<StoreAnswer, Error> {
        let digest = self.long_keys.digest(charge.key);
        let key = digest.as_ref().map_or(charge.key, |digest| digest);
        let hash = self.key_hash.of(charge.id, key);
        let mut shard = self.shard(hash).shard.lock();
        let now_us = shard.time(self.clock.now_us(), &self.clock);
        let placed = Placed { charge, key, hash, now_us };
        self.apply_locked(&mut shard, &mut None, placed, charge.operation(operation, now_us))
    }

    /// As [`apply`](Self::apply), in a shard whose lock is held.
    fn apply_locked<'a>(
        &'a self,
        shard: &mut Shard,
        overflow: &mut Option<MutexGuard<'a, Overflow>>,
        placed: Placed<'_>,
        operation: KeyOperation<'_>,
    ) -> Result<StoreAnswer, Error> {
        let (mut slot, degraded) = self.slot(shard, overflow, placed)?;
        let (rules, states) = slot.parts();
        let (decision, applied) = rules.decide(states, operation, degraded);
        if applied.written {
            self.shard(placed.hash).recent_denials.invalidate(placed.hash);
            slot.keep(placed.now_us, placed.now_us + decision.reset_after_us());
        }
        Ok((decision, applied.spent))
    }

    /// The states of a key, or the shared ones if there is no room for it.
    fn slot<'s, 'a: 's>(
        &'a self,
        shard: &'s mut Shard,
        overflow: &'s mut Option<MutexGuard<'a, Overflow>>,
        Placed { charge, key, hash, now_us }: Placed<'s>,
    ) -> Result<(Slot<'s>, Option<Degradation>), Error> {
        let recent_denials = &self.shard(hash).recent_denials;
        let effective = quotas_of(charge.effective);
        let wanted = KeyRequest { id: charge.id, hash, key, now_us, effective };
        match shard.slot(recent_denials, &self.key_hash, wanted) {
            Ok(slot) => Ok((slot, None)),
            Err(NoSlot::Full(current)) => {
                let overflow = overflow.get_or_insert_with(|| self.overflow.lock());
                Ok((overflow.slot(current, now_us), Some(Degradation::StoreFull)))
            }
            Err(NoSlot::Unknown) => Err(Error::unknown_to_store()),
        }
    }

    /// Applies charges, each for a different key or policy.
    #[doc(hidden)]
    pub fn start(&self, charges: &[Charge<'_>]) -> Result<StoreAnswers, Error> {
        match charges {
            [charge] => Ok(smallvec![self.answer(*charge)?]),
            _ => self.answer_together(charges),
        }
    }

    /// Applies all charges of a request if every deciding one is admitted, otherwise only the denied ones. The others are answered as a
    /// peek.
    fn answer_together(&self, charges: &[Charge<'_>]) -> Result<StoreAnswers, Error> {
        let digest = |charge: &Charge<'_>| self.long_keys.digest(charge.key);
        let digests: Few<_> = charges.iter().map(digest).collect();
        let mut placed = Few::new();
        for (charge, digest) in charges.iter().zip(&digests) {
            let Action::Apply(operation) = charge.action else { return Err(Error::no_answer()) };
            let key = digest.as_ref().map_or(charge.key, |digest| digest);
            let hash = self.key_hash.of(charge.id, key);
            placed.push((Placed { charge: *charge, key, hash, now_us: 0 }, operation));
        }
        // Locked in ascending order, so that no two threads wait for each other.
        let mut numbers: Few<_> = placed.iter().map(|(placed, _)| self.shard_number(placed.hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut shards: Few<_> = numbers.iter().map(|number| self.shards[*number].shard.lock()).collect();
        let at = |hash| numbers.partition_point(|number| *number < self.shard_number(hash));
        let read_us = self.clock.now_us();
        let now_us = shards.iter_mut().map(|shard| shard.time(read_us, &self.clock)).max().unwrap_or(read_us);
        let mut overflow = None;
        let mut of_overflow = Vec::new();
        let (mut admits, mut admitted) = (Few::new(), true);
        for (placed, operation) in &mut placed {
            placed.now_us = now_us;
            let charge = placed.charge;
            let (mut slot, degraded) = self.slot(&mut shards[at(placed.hash)], &mut overflow, *placed)?;
            let (rules, states) = slot.parts();
            let operation = charge.operation(*operation, now_us);
            let is_admitted = if degraded.is_none() {
                rules.would_admit(states, operation)
            } else {
                // Several keys of the request may share these states.
                let states = known_or(&mut of_overflow, charge.id, || states.clone());
                rules.decide(states, operation, degraded).0.allowed
            };
            admits.push(is_admitted);
            admitted &= is_admitted || !charge.decides;
        }
        let mut answers = StoreAnswers::with_capacity(placed.len());
        for ((placed, operation), is_admitted) in placed.into_iter().zip(admits) {
            let shard = &mut shards[at(placed.hash)];
            let operation = placed.charge.operation(operation, now_us);
            answers.push(if admitted || !is_admitted {
                self.apply_locked(shard, &mut overflow, placed, operation)?
            } else {
                let (mut slot, degraded) = self.slot(shard, &mut overflow, placed)?;
                let (rules, states) = slot.parts();
                (rules.view_admitted(states, operation, degraded), 0)
            });
        }
        Ok(answers)
    }

    fn reset(&self, charge: Charge<'_>) -> Result<Decision, Error> {
        let Charge { id, key, .. } = charge;
        let digest = self.long_keys.digest(key);
        let key = digest.as_ref().map_or(key, |digest| digest);
        let hash = self.key_hash.of(id, key);
        let PaddedShard { shard, recent_denials } = self.shard(hash);
        let mut shard = shard.lock();
        recent_denials.invalidate(hash);
        shard.forget(id, hash, key);
        let effective = quotas_of(charge.effective).or_else(|| shard.registered(id));
        Ok(effective.ok_or_else(Error::unknown_to_store)?.unseen(self.clock.now_us()))
    }

    /// Drops all keys and frees their memory.
    pub fn clear(&self) {
        for PaddedShard { shard, recent_denials } in &self.shards {
            let mut shard = shard.lock();
            recent_denials.invalidate_all();
            shard.clear();
        }
        *self.overflow.lock() = Overflow::default();
    }

    /// The maximum number of keys with states of their own.
    pub fn keys_capacity(&self) -> usize {
        self.max_keys
    }

    /// The number of keys that have a state.
    pub fn keys(&self) -> usize {
        self.shards.iter().map(|padded| padded.shard.lock().len()).sum()
    }

    #[inline]
    fn shard(&self, hash: u64) -> &PaddedShard {
        &self.shards[self.shard_number(hash)]
    }

    #[inline]
    fn shard_number(&self, hash: u64) -> usize {
        // The table uses the lowest bits and the seven highest; these 32 are others. Multiplying and shifting maps them
        // to any number of shards (Lemire, "Fast random integer generation in an interval", 2019).
        let bits = (hash >> 16) & 0xFFFF_FFFF;
        ((bits * self.shards.len() as u64) >> 32) as usize
    }
}

/// What a request over several policies needs for each of its charges, without allocating for the usual number of them.
type Few<T> = SmallVec<[T; 4]>;

/// An operation on its key in the store.
#[derive(Clone, Copy)]
struct Placed<'a> {
    charge: Charge<'a>,
    /// The key, or the digest that is stored in its place.
    key: &'a [u8],
    hash: u64,
    now_us: u64,
}

/// The tentative states of a policy's keys that have no room, while a request is tried.
pub fn known_or<T>(shared: &mut Vec<(PolicyId, T)>, id: PolicyId, states: impl FnOnce() -> T) -> &mut T {
    let at = shared.iter().position(|(of, _)| *of == id).unwrap_or_else(|| {
        shared.push((id, states()));
        shared.len() - 1
    });
    &mut shared[at].1
}

/// The effective quotas of a request, if they are not its policy's own.
fn quotas_of(effective: Option<&PreparedQuotas>) -> Option<&Arc<RegisteredPolicy>> {
    effective.and_then(PreparedQuotas::of::<Arc<RegisteredPolicy>>)
}

/// Checks policies other than a single token bucket; also returns whether the states were written.
#[inline(never)]
fn check_others(rules: &PolicyRules, states: &mut States, now_us: u64, cost: u64) -> (Decision, bool) {
    let check = KeyOperation { now_us, operation: Operation::Check, cost, headroom: 0, hold: None };
    let (decision, applied) = rules.decide(states, check, None);
    (decision, applied.written)
}

#[cfg(test)]
mod tests {
    use polylimit_test_servers::Row;

    use super::*;

    /// An attacker cannot find such keys, since the hash is seeded at random. They share a shard all the same.
    #[test]
    fn keys_that_collide_in_one_shard_take_no_more_than_its_share_and_no_key_out_of_it() {
        const MAX_KEYS: usize = 64 << 10;
        let store = MemoryStore::new(MAX_KEYS, Clock::system());
        let id = PolicyId(0);
        store.set_policy(id, &Policy::parse("api", "1/day token_bucket").unwrap());
        let check = |key: &str| {
            let (key, action) = (key.as_bytes(), Action::Apply(Operation::Check));
            store.answer(Charge::new(id, key, action, 1)).unwrap().0
        };
        assert!(check("limited").allowed);
        let shard_of = |key: &str| std::ptr::from_ref(store.shard(store.key_hash.of(id, key.as_bytes())));
        let shard = shard_of("limited");
        let mut colliding = (0_u64..).map(|number| format!("{number}")).filter(|key| shard_of(key) == shard);
        let held = MAX_KEYS / store.shards.len();
        for key in colliding.by_ref().take(4 * held) {
            let _ = check(&key);
            assert!(!check("limited").allowed);
        }
        assert_eq!(store.keys(), held);
        // Keys of other shards find room.
        let other =
            (0_u64..1_000).map(|number| format!("{number}")).find(|key| shard_of(key) != shard).unwrap();
        assert!(check(&other).allowed && !check(&other).allowed && store.keys() == held + 1);
        Row::new("S3", "keys that collide in one shard of the memory store")
            .decisions(4 * held as u64)
            .bound(1, 1)
            .measured(format!("{held} keys held of {}; a limited key stayed limited", 4 * held))
            .record();
    }
}
