//! The denial cache: denied keys are answered in-process until they admit again, so that a flood of requests for a denied key costs the
//! store nothing. docs/internals/denial-cache-and-leases.md explains why no denial lasts longer here than in the store.
//!
//! The store's reply to a denied check contains the states that it found for the key. Each decision is computed from these states at the
//! current time: retry and reset count down, and a cost that fits by now is sent to the store. Where the store counts denials, only the
//! denial of a blocked key is cached, because it is not counted, and only until the block ends.
//!
//! Refunds and resets of this process remove a key from the cache, and a change of a policy's quotas clears the cache. Refunds and resets
//! of other processes arrive over the invalidation channels; if that fails, they take effect after `denial_cache_max`.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(not(feature = "testing"))]
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::keys::channel::{Channel, ChannelSet};
use crate::policies::RedisQuotas;
use crate::script::call::PolicyCall;
use crate::script::reply::SeenStates;
use polylimit_rules::algorithm::State;
use polylimit_rules::decision::{Decision, Source};
use polylimit_rules::general::KeyOperation;
use polylimit_rules::transition::{Applied, Operation};
use polylimit_rules::units::micros;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::lock::Lock;
use polylimit_runtime::monotonic;
#[cfg(feature = "testing")]
use polylimit_runtime::simulation::RandomState;
use polylimit_store::charge::{Action, Charge, PolicyId, PreparedQuotas};

const SHARDS: usize = 64;
const MAX_IN_SHARD: usize = 1024;

#[derive(Debug)]
pub(crate) struct DenialCache {
    shards: Box<[Lock<Shard>]>,
    /// The number of cached denials; the lookup is skipped when it is 0.
    known: AtomicUsize,
    seed: RandomState,
    clock: Clock,
    /// The maximum age of a cached denial; 0 disables the cache.
    longest: Duration,
}

#[derive(Debug, Default)]
struct Shard {
    table: HashTable<Known>,
    /// The number of invalidations.
    changes: u64,
    /// Denials of requests made before this are not cached: a refund or reset may still arrive at the store.
    unsure_until: Option<Duration>,
    answered: u64,
}

#[derive(Debug)]
struct Known {
    id: PolicyId,
    key: Box<[u8]>,
    hash: u64,
    /// The channel on which other processes announce refunds and resets.
    channel: Channel,
    call: Arc<PolicyCall>,
    denied: Arc<SeenStates>,
    cost: u64,
    headroom: u8,
    asked: Duration,
}

/// The cache's version before the request is sent: a denial is cached only if no invalidation happened since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadVersion {
    hash: u64,
    changes: u64,
    at: Duration,
}

impl DenialCache {
    pub(crate) fn new(longest: Duration, clock: Clock) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Lock::new(Shard::default())).collect(),
            known: AtomicUsize::new(0),
            seed: RandomState::default(),
            clock,
            longest,
        }
    }

    /// The same cache for a forked child, empty.
    pub(crate) fn after_fork(&self) -> Self {
        Self::new(self.longest, self.clock.clone())
    }

    /// The decision on a check whose denial is cached.
    #[inline]
    pub(crate) fn answer(&self, charge: Charge<'_>) -> Option<Decision> {
        if self.known.load(Ordering::Relaxed) == 0 || !is_check(charge) {
            return None;
        }
        self.look_up(charge)
    }

    /// Whether a cached denial would answer a check now. For people, so it is not counted as an answer.
    pub(crate) fn denies(&self, charge: Charge<'_>) -> bool {
        if self.known.load(Ordering::Relaxed) == 0 || !is_check(charge) {
            return false;
        }
        let hash = self.hash(charge);
        let shard = self.shard(hash).lock();
        let known = shard.table.find(hash, |known| known.is_of(charge) && known.is_by_quotas_of(charge));
        known.is_some_and(|known| {
            let now_us = known.now_us(&self.clock, self.longest);
            now_us.is_some_and(|now_us| {
                matches!(known.decide(now_us, charge.cost, charge.headroom), Ok(Some(_)))
            })
        })
    }

    /// Read before the request is sent; `None` when a denial of it would not be cached.
    pub(crate) fn read_version(&self, charge: Charge<'_>) -> Option<ReadVersion> {
        if self.longest.is_zero() || !is_check(charge) {
            return None;
        }
        self.version_at(self.hash(charge), monotonic::ticks())
    }

    /// The version for a request that is made at that time.
    fn version_at(&self, hash: u64, at: Duration) -> Option<ReadVersion> {
        let shard = self.shard(hash).lock();
        (shard.unsure_until.is_none_or(|until| until < at)).then_some(ReadVersion {
            hash,
            changes: shard.changes,
            at,
        })
    }

    /// Caches the store's denial of a key on that channel. Returns whether it is cached.
    pub(crate) fn learn(
        &self,
        charge: Charge<'_>,
        look: ReadVersion,
        channel: Channel,
        call: &Arc<PolicyCall>,
        denied: Arc<SeenStates>,
    ) -> bool {
        // The states of a log show only when a single unit fits, and not how much of an excess is in use while it does.
        if call.has_log()
            && (charge.cost > 1 || is_blocked(&denied.states, denied.now_us) && call.has_excess())
        {
            return false;
        }
        let mut shard = self.shard(look.hash).lock();
        if shard.changes != look.changes {
            return false;
        }
        if shard.table.len() >= MAX_IN_SHARD {
            self.make_room(&mut shard, look.at);
        }
        let known = Known {
            id: charge.id,
            key: charge.key.into(),
            hash: look.hash,
            channel,
            call: Arc::clone(call),
            denied,
            cost: charge.cost,
            headroom: charge.headroom,
            asked: look.at,
        };
        match shard.table.entry(look.hash, |known| known.is_of(charge), |known| known.hash) {
            Entry::Occupied(mut there) => {
                if there.get().asked <= known.asked {
                    *there.get_mut() = known;
                }
            }
            Entry::Vacant(place) => {
                place.insert(known);
                self.known.fetch_add(1, Ordering::Relaxed);
            }
        }
        true
    }

    /// More units were spent: the cached denial still holds, but the store has newer states.
    #[inline]
    pub(crate) fn outdated(&self, charge: Charge<'_>) {
        if self.known.load(Ordering::Relaxed) > 0 {
            let hash = self.hash(charge);
            self.remove(&mut self.shard(hash).lock(), hash, charge);
        }
    }

    /// Removes a key after a refund or reset. If that may not have reached the store yet, denials of requests made
    /// within `unsure` are not cached.
    pub(crate) fn forget(&self, charge: Charge<'_>, unsure: Option<Duration>) {
        if self.longest.is_zero() {
            return;
        }
        let hash = self.hash(charge);
        let mut shard = self.shard(hash).lock();
        shard.changes += 1;
        if let Some(unsure) = unsure {
            let until = monotonic::ticks() + unsure;
            shard.unsure_until = shard.unsure_until.max(Some(until));
        }
        self.remove(&mut shard, hash, charge);
    }

    /// Clears the cache, because quotas have changed.
    pub(crate) fn forget_all(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.changes += 1;
            self.known.fetch_sub(shard.table.len(), Ordering::Relaxed);
            shard.table = HashTable::new();
        }
    }

    /// Removes the keys for which `is_one` is true, because one of them had a refund or reset.
    pub(crate) fn forget_where(&self, is_one: impl Fn(&[u8]) -> bool) {
        self.remove_where(|known| is_one(&known.key));
    }

    /// Removes the keys of some channels, because messages on these may have been missed.
    pub(crate) fn forget_channels(&self, channels: ChannelSet) {
        self.remove_where(|known| channels.contains(known.channel));
    }

    fn remove_where(&self, is_one: impl Fn(&Known) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.table.len();
            shard.changes += 1;
            shard.table.retain(|known| !is_one(known));
            self.known.fetch_sub(before - shard.table.len(), Ordering::Relaxed);
        }
    }

    /// The channels of all cached denials. Drops those that are too old.
    pub(crate) fn channels(&self) -> ChannelSet {
        let (now, mut channels) = (monotonic::ticks(), ChannelSet::default());
        for shard in &self.shards {
            let mut shard = shard.lock();
            self.drop_old(&mut shard, now);
            shard.table.iter().for_each(|known| channels.insert(known.channel));
        }
        channels
    }

    pub(crate) fn answered(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().answered).sum()
    }

    fn look_up(&self, charge: Charge<'_>) -> Option<Decision> {
        let hash = self.hash(charge);
        let mut shard = self.shard(hash).lock();
        let known = shard.table.find(hash, |known| known.is_of(charge) && known.is_by_quotas_of(charge))?;
        let decision = match known.now_us(&self.clock, self.longest) {
            Some(now_us) => known.decide(now_us, charge.cost, charge.headroom),
            None => Err(Over),
        };
        match decision {
            Ok(Some(decision)) => {
                shard.answered += 1;
                Some(decision)
            }
            Ok(None) => None,
            Err(Over) => {
                self.remove(&mut shard, hash, charge);
                None
            }
        }
    }

    fn remove(&self, shard: &mut Shard, hash: u64, charge: Charge<'_>) {
        if let Ok(known) = shard.table.find_entry(hash, |known| known.is_of(charge)) {
            known.remove();
            self.known.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops denials that no longer hold, and half of the rest if that is not enough.
    fn make_room(&self, shard: &mut Shard, now: Duration) {
        self.drop_old(shard, now);
        let before = shard.table.len();
        if before > MAX_IN_SHARD / 2 {
            let mut keep = false;
            shard.table.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.known.fetch_sub(before - shard.table.len(), Ordering::Relaxed);
    }

    fn drop_old(&self, shard: &mut Shard, now: Duration) {
        let before = shard.table.len();
        shard.table.retain(|known| now.saturating_sub(known.asked) < self.longest);
        self.known.fetch_sub(before - shard.table.len(), Ordering::Relaxed);
    }

    fn shard(&self, hash: u64) -> &Lock<Shard> {
        // The table uses the other bits.
        &self.shards[(hash >> 48) as usize % SHARDS]
    }

    fn hash(&self, charge: Charge<'_>) -> u64 {
        self.seed.hash_one((charge.id, charge.key))
    }
}

fn is_check(charge: Charge<'_>) -> bool {
    charge.action == Action::Apply(Operation::Check) && charge.cost > 0
}

/// The denial no longer holds.
struct Over;

impl Known {
    fn is_of(&self, charge: Charge<'_>) -> bool {
        self.id == charge.id && *self.key == *charge.key
    }

    /// Whether the denial was decided by the effective quotas of the request.
    fn is_by_quotas_of(&self, charge: Charge<'_>) -> bool {
        let effective = charge.effective.and_then(PreparedQuotas::of::<RedisQuotas>);
        effective.is_none_or(|effective| Arc::ptr_eq(&effective.policy.call, &self.call))
    }

    /// The store's current time or a later one; `None` when the denial is older than allowed.
    fn now_us(&self, clock: &Clock, longest: Duration) -> Option<u64> {
        let passed = monotonic::ticks().saturating_sub(self.asked);
        if passed >= longest {
            return None;
        }
        match clock.manual() {
            Some(manual) => Some(manual.now_us()).filter(|now_us| *now_us >= self.denied.now_us),
            None => Some(self.denied.now_us.saturating_add(micros(passed))),
        }
    }

    /// The denial of a cost at that time, if these states deny it.
    fn decide(&self, now_us: u64, cost: u64, headroom: u8) -> Result<Option<Decision>, Over> {
        let SeenStates { states, .. } = &*self.denied;
        let rules = &self.call.rules;
        if (cost, headroom) != (self.cost, self.headroom) && self.call.has_log() {
            return Ok(None);
        }
        if self.call.counts_denied && !is_blocked(states, now_us) {
            return Err(Over);
        }
        // Most policies have a single bucket, and deciding it directly is faster than a peek and a decision.
        let denial = if headroom > 0 || rules.needs_general(states) {
            let operation = Operation::Peek;
            let peek = KeyOperation { now_us, operation, cost, headroom, hold: None };
            let (decision, _) = rules.decide(&mut states.clone(), peek, None);
            (!decision.allowed).then_some(decision)
        } else if let [State::TokenBucket(bucket)] = states.as_slice()
            && let Some((decision, _)) = rules.check_bucket(&mut [State::TokenBucket(*bucket)], now_us, cost)
        {
            (!decision.allowed).then_some(decision)
        } else if rules.admits(states, now_us, cost) {
            None
        } else {
            let denied = Applied { allowed: false, spent: 0, written: false };
            Some(rules.explain(states, now_us, cost, denied, None))
        };
        match denial {
            Some(decision) => Ok(Some(Decision { source: Source::DenialCache, ..decision })),
            None if cost >= self.cost && headroom >= self.headroom => Err(Over),
            None => Ok(None),
        }
    }
}

/// Whether the key with these states is blocked.
fn is_blocked(states: &[State], now_us: u64) -> bool {
    let is_blocked =
        |state: &State| matches!(state, State::Block(record) if record.blocked_for_us(now_us) > 0);
    states.iter().any(is_blocked)
}

#[cfg(test)]
mod tests;
