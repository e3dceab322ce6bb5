//! Keys that are denied, answered here until they may be admitted again: a flood on a denied key costs the store nothing.
//!
//! The store's reply to a denied check says in which states it found the key. Until somebody gives something back, use only
//! grows, so whatever those states do not admit the store does not admit either. The decision is made of them again at the
//! time it is then: retry and reset count down, and a cost that has come to fit is asked of the store.
//!
//! The time is that of the store's reply and what has passed since the request was made, by a monotonic clock. The request
//! arrived later than it was made, so this is never behind the store's own time, and no denial outlasts the store's.
//!
//! What this process gives back or resets is forgotten here, and so is every denial when numbers change. What another process
//! gives back is heard over a [channel](crate::store::redis) of the server; when that fails, it is seen after `denial_cache_max`.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::rules::algorithm::State;
use crate::rules::decision::{Decision, Source};
use crate::rules::quota::Algorithm;
use crate::rules::transition::{Applied, Operation};
use crate::runtime::clock::Clock;
use crate::runtime::lock::Lock;
use crate::runtime::monotonic;
use crate::store::redis::script::call::PolicyCall;
use crate::store::redis::script::reply::Denied;
use crate::store::request::{Action, PolicyId, StoreRequest};
use crate::units::micros;

const SHARDS: usize = 64;
/// So many keys are known to be denied at a time in each.
const MAX_IN_SHARD: usize = 1024;

#[derive(Debug)]
pub(crate) struct DenialCache {
    shards: Box<[Lock<Shard>]>,
    /// How many keys are known; where there are none, nobody looks for one.
    known: AtomicUsize,
    seed: RandomState,
    clock: Clock,
    /// A denial is believed for so long at most; never where it is 0.
    longest: Duration,
}

#[derive(Debug, Default)]
struct Shard {
    table: HashTable<Known>,
    /// How often something was forgotten because it may no longer hold.
    changes: u64,
    /// What was asked before this may not hold: something that was given back may still arrive at the store.
    unsure_until: Option<quanta::Instant>,
    answered: u64,
}

#[derive(Debug)]
struct Known {
    id: PolicyId,
    key: Box<[u8]>,
    hash: u64,
    call: Arc<PolicyCall>,
    denied: Arc<Denied>,
    cost: u64,
    asked: quanta::Instant,
}

/// A look before the store is asked: what it denies is believed if nothing was given back since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadVersion {
    hash: u64,
    changes: u64,
    at: quanta::Instant,
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

    /// The same, in a process that was forked from the one that uses this: nothing is known there.
    pub(crate) fn after_fork(&self) -> Self {
        Self::new(self.longest, self.clock.clone())
    }

    /// The decision on a check that is known to be denied.
    #[inline]
    pub(crate) fn answer(&self, request: StoreRequest<'_>) -> Option<Decision> {
        if self.known.load(Ordering::Relaxed) == 0 || !is_check(request) {
            return None;
        }
        self.look_up(request)
    }

    /// To be had before the store is asked; `None` when no denial of it would be believed.
    pub(crate) fn read_version(&self, request: StoreRequest<'_>) -> Option<ReadVersion> {
        if self.longest.is_zero() || !is_check(request) {
            return None;
        }
        let hash = self.hash(request);
        let at = monotonic::ticks();
        let shard = self.shard(hash).lock();
        (shard.unsure_until.is_none_or(|until| until < at)).then_some(ReadVersion {
            hash,
            changes: shard.changes,
            at,
        })
    }

    /// Learns of a denial by the store.
    pub(crate) fn learn(
        &self,
        request: StoreRequest<'_>,
        look: ReadVersion,
        call: &Arc<PolicyCall>,
        denied: Arc<Denied>,
    ) {
        let is_log = |quota: &crate::rules::quota::Quota| quota.algorithm() == Algorithm::SlidingLog;
        // Of a log only what one unit needs is known.
        if request.cost > 1 && call.policy.quotas().iter().any(is_log) {
            return;
        }
        let mut shard = self.shard(look.hash).lock();
        if shard.changes != look.changes {
            return;
        }
        if shard.table.len() >= MAX_IN_SHARD {
            self.make_room(&mut shard, look.at);
        }
        let known = Known {
            id: request.id,
            key: request.key.into(),
            hash: look.hash,
            call: Arc::clone(call),
            denied,
            cost: request.cost,
            asked: look.at,
        };
        match shard.table.entry(look.hash, |known| known.is_of(request), |known| known.hash) {
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
    }

    /// More was used: what is known still holds, and the store knows better.
    #[inline]
    pub(crate) fn outdated(&self, request: StoreRequest<'_>) {
        if self.known.load(Ordering::Relaxed) > 0 {
            let hash = self.hash(request);
            self.remove(&mut self.shard(hash).lock(), hash, request);
        }
    }

    /// Something was given back. If it may not have arrived yet, no denial is believed that is asked for within `unsure`.
    pub(crate) fn forget(&self, request: StoreRequest<'_>, unsure: Option<Duration>) {
        if self.longest.is_zero() {
            return;
        }
        let hash = self.hash(request);
        let mut shard = self.shard(hash).lock();
        shard.changes += 1;
        if let Some(unsure) = unsure {
            let until = monotonic::ticks() + unsure;
            shard.unsure_until = shard.unsure_until.max(Some(until));
        }
        self.remove(&mut shard, hash, request);
    }

    /// Numbers have changed.
    pub(crate) fn forget_all(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.changes += 1;
            self.known.fetch_sub(shard.table.len(), Ordering::Relaxed);
            shard.table = HashTable::new();
        }
    }

    /// Something was given back under one of those keys.
    pub(crate) fn forget_where(&self, is_one: impl Fn(&[u8]) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.table.len();
            shard.changes += 1;
            shard.table.retain(|known| !is_one(&known.key));
            self.known.fetch_sub(before - shard.table.len(), Ordering::Relaxed);
        }
    }

    /// How many checks were answered here.
    pub(crate) fn answered(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().answered).sum()
    }

    fn look_up(&self, request: StoreRequest<'_>) -> Option<Decision> {
        let hash = self.hash(request);
        let mut shard = self.shard(hash).lock();
        let known = shard.table.find(hash, |known| known.is_of(request))?;
        let decision = match known.now_us(&self.clock, self.longest) {
            Some(now_us) => known.decide(now_us, request.cost),
            None => Err(Over),
        };
        match decision {
            Ok(Some(decision)) => {
                shard.answered += 1;
                Some(decision)
            }
            Ok(None) => None,
            Err(Over) => {
                self.remove(&mut shard, hash, request);
                None
            }
        }
    }

    fn remove(&self, shard: &mut Shard, hash: u64, request: StoreRequest<'_>) {
        if let Ok(known) = shard.table.find_entry(hash, |known| known.is_of(request)) {
            known.remove();
            self.known.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops what no longer holds, and half of the rest if that is not enough.
    fn make_room(&self, shard: &mut Shard, now: quanta::Instant) {
        let before = shard.table.len();
        shard.table.retain(|known| now.saturating_duration_since(known.asked) < self.longest);
        if shard.table.len() > MAX_IN_SHARD / 2 {
            let mut keep = false;
            shard.table.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.known.fetch_sub(before - shard.table.len(), Ordering::Relaxed);
    }

    fn shard(&self, hash: u64) -> &Lock<Shard> {
        // The table uses the other bits.
        &self.shards[(hash >> 48) as usize % SHARDS]
    }

    fn hash(&self, request: StoreRequest<'_>) -> u64 {
        self.seed.hash_one((request.id, request.key))
    }
}

fn is_check(request: StoreRequest<'_>) -> bool {
    request.action == Action::Apply(Operation::Check) && request.cost > 0
}

/// A denial that no longer holds.
struct Over;

impl Known {
    fn is_of(&self, request: StoreRequest<'_>) -> bool {
        self.id == request.id && *self.key == *request.key
    }

    /// What time it is for the store, or later; `None` when that cannot be told any more.
    fn now_us(&self, clock: &Clock, longest: Duration) -> Option<u64> {
        let passed = monotonic::ticks().saturating_duration_since(self.asked);
        if passed >= longest {
            return None;
        }
        match clock.manual() {
            Some(manual) => Some(manual.now_us()).filter(|now_us| *now_us >= self.denied.now_us),
            None => Some(self.denied.now_us.saturating_add(micros(passed))),
        }
    }

    /// The denial of so many units at that time, if these states deny them.
    fn decide(&self, now_us: u64, cost: u64) -> Result<Option<Decision>, Over> {
        let Denied { states, .. } = &*self.denied;
        let rules = &self.call.rules;
        if cost != self.cost
            && self.call.policy.quotas().iter().any(|quota| quota.algorithm() == Algorithm::SlidingLog)
        {
            return Ok(None);
        }
        // Most policies are a single bucket, whose decision takes less time than looking at it twice.
        let denial = if let [State::TokenBucket(bucket)] = states.as_slice()
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
            None if cost >= self.cost => Err(Over),
            None => Ok(None),
        }
    }
}
