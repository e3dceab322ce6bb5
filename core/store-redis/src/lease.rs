//! Leases: units of busy keys that are taken from the store ahead of time and spent in this process.
//!
//! A key with repeated requests gets a [`KeyLease`]. A take in the background fills it, and the next take starts before it is empty, so
//! that callers never wait. Units leave it in three ways: a check spends them; they are refunded when they expire or when an operation
//! other than a check uses the key; or they are lost, if a refund could give back units of other processes, as in a window that has moved
//! on.

pub(crate) mod grant;
pub(crate) mod key_lease;
mod refund;
#[cfg(test)]
mod tests;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[cfg(not(feature = "testing"))]
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::denial_cache::DenialCache;
use crate::keys::KeyEncoder;
use crate::keys::channel::{Channel, ChannelSet};
use crate::lease::grant::repaid_us;
use crate::lease::key_lease::{KeyLease, LeaseKey, Take};
use crate::pipeline::pending::{OperationResult, PendingReply};
use crate::policies::{Policies, RedisPolicy};
use crate::routing::hub::{Access, Until};
use crate::transport::failure::{Class, Failure};
use polylimit_rules::decision::{Decision, Degradation};
use polylimit_rules::error::Error;
use polylimit_rules::transition::Operation;
use polylimit_rules::units::micros;
use polylimit_runtime::monotonic;
#[cfg(feature = "testing")]
use polylimit_runtime::simulation::RandomState;
use polylimit_store::charge::{Action, Charge};
use polylimit_store::outage::Outage;
use polylimit_store_memory::fallback::Fallback;

const SHARDS: usize = 64;
/// The maximum number of leased keys in a shard; other keys go to the server one request at a time.
const MAX_IN_SHARD: usize = 1024;
const TAKE: Action = Action::Apply(Operation::Take);
const REFUND: Action = Action::Apply(Operation::Refund);

/// The parts of the store that leases use.
#[derive(Clone, Debug)]
pub(crate) struct LeaseDeps {
    pub(crate) access: Arc<Access>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) keys: KeyEncoder,
    pub(crate) outage: Arc<Fallback>,
    pub(crate) denial_cache: Arc<DenialCache>,
}

#[derive(Debug)]
pub(crate) struct Leases {
    deps: LeaseDeps,
    shards: Box<[Mutex<Shard>]>,
    /// The number of leased keys; the lookup is skipped when it is 0.
    keys_held: AtomicUsize,
    seed: RandomState,
    started: Duration,
    /// Whether the task that refunds expired units runs.
    returning: AtomicBool,
    closed: AtomicBool,
    /// The number of takes in flight; `landed` signals the end of each.
    taking: AtomicUsize,
    landed: Notify,
}

#[derive(Debug, Default)]
struct Shard {
    table: HashTable<KeyLease>,
    /// Checks that leased units paid for.
    answered: u64,
    returned: u64,
    lost: u64,
}

/// The units of all leases, by outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseStats {
    pub(crate) answered: u64,
    pub(crate) held: u64,
    pub(crate) returned: u64,
    pub(crate) lost: u64,
}

impl Leases {
    pub(crate) fn new(deps: LeaseDeps) -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Arc::new(Self {
            deps,
            shards,
            keys_held: AtomicUsize::new(0),
            seed: RandomState::default(),
            started: monotonic::ticks(),
            returning: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            taking: AtomicUsize::new(0),
            landed: Notify::new(),
        })
    }

    /// The decision on a check that leased units pay for.
    #[inline]
    pub(crate) fn answer(self: &Arc<Self>, charge: Charge<'_>) -> Option<Decision> {
        if self.keys_held.load(Ordering::Relaxed) == 0
            || charge.action != Action::Apply(Operation::Check)
            || charge.cost == 0
            || charge.headroom > 0
        {
            return None;
        }
        self.spend(charge)
    }

    fn spend(self: &Arc<Self>, charge: Charge<'_>) -> Option<Decision> {
        let hash = self.hash(charge);
        let mut shard = self.shard(hash).lock();
        let holding = shard.table.find_mut(hash, |holding| holding.is_of(charge))?;
        let (decision, take) = holding.spend(charge.cost, self.now_us())?;
        shard.answered += 1;
        drop(shard);
        if let Some(take) = take {
            self.take(LeaseKey::of(charge, hash), take);
        }
        Some(decision)
    }

    /// The store admitted a check for which there was no lease. A key for which this happens often gets a lease. Returns the channel
    /// on which other processes announce blocks, if the key has or may get a lease.
    pub(crate) fn admitted(
        self: &Arc<Self>,
        charge: Charge<'_>,
        policy: &RedisPolicy,
        decision: &Decision,
        asked_us: u64,
    ) -> Option<Channel> {
        let lease = policy.lease.as_ref()?;
        let most = lease.most_units(&policy.policy);
        if most == 0 {
            return None;
        }
        let repaid_us = repaid_us(policy.policy.quotas(), decision, asked_us);
        let hash = self.hash(charge);
        let now_us = self.now_us();
        let mut shard = self.shard(hash).lock();
        if let Some(holding) = shard.table.find_mut(hash, |holding| holding.is_of(charge)) {
            let channel = holding.channel;
            let take = holding.missed(charge.cost, decision.remaining(), repaid_us, now_us);
            drop(shard);
            if let Some(take) = take {
                self.take(LeaseKey::of(charge, hash), take);
            }
            Some(channel)
        } else if shard.table.len() < MAX_IN_SHARD || self.make_room(&mut shard, now_us) {
            let (max_age_us, quotas) = (micros(lease.max_age()), policy.policy.quotas());
            let channel = self.deps.keys.channel(&policy.key_prefix, charge.key);
            let lease_key = LeaseKey::of(charge, hash);
            let mut holding = KeyLease::new(lease_key, channel, most, max_age_us, quotas, now_us);
            holding.has_spent(charge.cost, now_us);
            shard.table.insert_unique(hash, holding, |holding| holding.lease_key.hash);
            self.keys_held.fetch_add(1, Ordering::Relaxed);
            Some(channel)
        } else {
            None
        }
    }

    /// Whether units of a key are held in-process or are being taken.
    pub(crate) fn holds(&self, charge: Charge<'_>) -> bool {
        self.keys_held.load(Ordering::Relaxed) > 0
            && self.with_lease(charge, |holding| holding.has_or_takes()).unwrap_or(false)
    }

    /// The channels of the keys that are leased.
    fn leased_channels(&self) -> ChannelSet {
        let (now_us, mut channels) = (self.now_us(), ChannelSet::default());
        for shard in &self.shards {
            let shard = shard.lock();
            let leased = shard.table.iter().filter(|holding| !holding.is_idle(now_us));
            leased.for_each(|holding| channels.insert(holding.channel));
        }
        channels
    }

    /// The number of units of a key that are held in-process.
    pub(crate) fn units(&self, charge: Charge<'_>) -> u64 {
        self.with_lease(charge, |holding| holding.units()).unwrap_or(0)
    }

    /// Drops the units of a key that is reset, since the store drops their debt as well.
    pub(crate) fn forget(&self, charge: Charge<'_>) {
        let hash = self.hash(charge);
        let mut shard = self.shard(hash).lock();
        if let Some(holding) = shard.table.find_mut(hash, |holding| holding.is_of(charge)) {
            let void = holding.reset(self.now_us());
            shard.lost += void;
        }
    }

    /// Units of the key were refunded, so a bucket no longer repays them.
    pub(crate) fn spent_nothing(&self, charge: Charge<'_>) {
        self.with_lease(charge, |holding| holding.has_spent_nothing(self.now_us()));
    }

    /// Applies a function to the key's lease, if there is one.
    fn with_lease<T>(&self, charge: Charge<'_>, apply: impl FnOnce(&mut KeyLease) -> T) -> Option<T> {
        let hash = self.hash(charge);
        let mut shard = self.shard(hash).lock();
        shard.table.find_mut(hash, |holding| holding.is_of(charge)).map(apply)
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        let mut stats = LeaseStats::default();
        for shard in &self.shards {
            let shard = shard.lock();
            stats.answered += shard.answered;
            stats.returned += shard.returned;
            stats.lost += shard.lost;
            stats.held += shard.table.iter().map(KeyLease::units).sum::<u64>();
        }
        stats
    }

    /// Takes units in the background.
    fn take(self: &Arc<Self>, lease_key: LeaseKey, take: Take) {
        if !self.returning.swap(true, Ordering::Relaxed)
            && self.spawn(Self::refund_expired(Arc::downgrade(self))).is_err()
        {
            // Without a thread the take fails, too; the next take tries again.
            self.returning.store(false, Ordering::Relaxed);
        }
        self.taking.fetch_add(1, Ordering::AcqRel);
        if self.closed.load(Ordering::Acquire) {
            return self.has_landed();
        }
        let asked_us = self.now_us();
        let Ok(submitted) = self.submit(&lease_key, TAKE, take.units, self.deadline()) else {
            // The system provides no thread: the key's requests go to the server one by one.
            self.taken(&lease_key, take, Err(Failure::not_applied(Degradation::NoResources)), asked_us);
            return self.has_landed();
        };
        let leases = Arc::clone(self);
        let taking = async move {
            let reply = leases.counted(&lease_key, submitted.await, TAKE, take.units);
            leases.taken(&lease_key, take, reply, asked_us);
            leases.has_landed();
        };
        if self.spawn(taking).is_err() {
            // The thread existed a moment ago, so this does not happen.
            self.has_landed();
        }
    }

    /// Runs a future on the thread of the connections.
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        self.deps.access.hub()?.runtimes.spawn(future)
    }

    /// The limiter has moved to other connections: the next take starts the refunding task on their thread.
    pub(crate) fn moved(&self) {
        self.returning.store(false, Ordering::Relaxed);
    }

    fn has_landed(&self) {
        self.taking.fetch_sub(1, Ordering::AcqRel);
        self.landed.notify_waiters();
    }

    /// Waits until the condition is true, which is checked whenever a take ends.
    async fn landed(&self, is_so: impl Fn() -> bool) {
        loop {
            let mut landed = std::pin::pin!(self.landed.notified());
            // Registered before the check, so that no signal is missed.
            landed.as_mut().enable();
            if is_so() {
                return;
            }
            landed.await;
        }
    }

    fn taken(&self, lease_key: &LeaseKey, take: Take, reply: OperationResult, asked_us: u64) {
        let policy = self.deps.policies.get(lease_key.id);
        let mut shard = self.shard(lease_key.hash).lock();
        let holding = shard.table.find_mut(lease_key.hash, |holding| holding.lease_key == *lease_key);
        let lost = match (reply, holding, policy) {
            (Ok(replied), Some(holding), Some(policy)) => {
                holding.granted(take, &replied, &policy.policy, asked_us, self.now_us())
            }
            (Ok(replied), ..) => replied.spent,
            (Err(failure), holding, _) => {
                if let Some(holding) = holding {
                    holding.refused();
                }
                // A take that was sent may have been applied.
                if failure.class == Class::Unknown { take.units } else { 0 }
            }
        };
        shard.lost += lost;
    }

    /// The deadline of an operation submitted now.
    fn deadline(&self) -> Instant {
        monotonic::now() + self.deps.access.deadline
    }

    fn submit(
        &self,
        lease_key: &LeaseKey,
        action: Action,
        units: u64,
        until: Instant,
    ) -> Result<PendingReply, Error> {
        let LeaseDeps { access, policies, keys, .. } = &self.deps;
        let topology = access.hub()?.runtimes.of_own()?;
        let policy = policies.known(lease_key.id)?;
        let mut key = Vec::new();
        keys.write(&policy.key_prefix, &lease_key.key, &mut key);
        let until = Until::Deadline(until);
        Ok(access.submit(&topology, &policy.call, key, (action, units, 0, None), until))
    }

    /// Counts the outcome of an operation, and forwards it to the fallback store and the denial cache.
    fn counted(
        &self,
        lease_key: &LeaseKey,
        reply: OperationResult,
        action: Action,
        cost: u64,
    ) -> OperationResult {
        let LeaseDeps { access, policies, outage, denial_cache, .. } = &self.deps;
        let charge = Charge::new(lease_key.id, &lease_key.key, action, cost);
        if action == REFUND {
            denial_cache.forget(charge, reply.is_err().then_some(2 * access.deadline));
        }
        match &reply {
            Ok(replied) => {
                access.member.counters.applied.add(1);
                if policies.get(lease_key.id).is_some_and(|policy| policy.outage == Outage::Fallback) {
                    outage.follow(charge, &replied.decision, replied.spent);
                }
            }
            Err(failure) => failure.class.count(&access.member.counters),
        }
        reply
    }

    /// Drops leases of idle keys; returns whether that made room for one more.
    fn make_room(&self, shard: &mut Shard, now_us: u64) -> bool {
        let before = shard.table.len();
        shard.table.retain(|holding| !holding.is_idle(now_us));
        self.keys_held.fetch_sub(before - shard.table.len(), Ordering::Relaxed);
        shard.table.len() < before
    }

    /// The time by which units expire: the time of a manual clock, by which the store decides as well, or the time
    /// since the start.
    pub(crate) fn now_us(&self) -> u64 {
        match self.deps.access.clock.manual() {
            Some(clock) => clock.now_us(),
            None => micros(monotonic::ticks().saturating_sub(self.started)),
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The table uses the other bits.
        &self.shards[(hash >> 48) as usize % SHARDS]
    }

    fn hash(&self, charge: Charge<'_>) -> u64 {
        self.seed.hash_one((charge.id, charge.key))
    }
}
