//! Refunds of leased units: when they expire, before an operation other than a check, when a policy's quotas change, and when the limiter
//! is closed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use hashbrown::HashTable;

use crate::keys::channel::ChannelSet;
use crate::lease::grant::Grant;
use crate::lease::key_lease::{KeyLease, LeaseKey};
use crate::lease::{Leases, REFUND};
use crate::policies::RedisPolicy;
use crate::routing::listener::LeasedKeys;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Algorithm;
use polylimit_rules::units::micros;
use polylimit_runtime::{monotonic, park};
use polylimit_store::charge::{Charge, PolicyId};
use polylimit_store::lease_size::Lease;

/// How often expired units are collected.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The maximum number of concurrent refunds: one or two batches, and no more than half of the permitted pending
/// operations, so that callers are not refused because of refunds.
const MAX_CONCURRENT: usize = 256;

impl Leases {
    /// Refunds the held units of a key by the deadline `until`, before another operation uses the key.
    pub(crate) async fn give_back(&self, charge: Charge<'_>, until: Instant) {
        // Units of a take in flight are refunded as well, if its reply arrives in time. Takes for other keys do not
        // matter here: with many leased keys, some take is in flight at any time.
        let landed = self.landed(|| !self.with_lease(charge, |holding| holding.takes()).unwrap_or(false));
        let _ = tokio::time::timeout_at(until.into(), landed).await;
        let held = self.with_lease(charge, KeyLease::give_up).unwrap_or_default();
        let lease_key = LeaseKey::of(charge, self.hash(charge));
        self.refund_all(held.into_iter().map(|held| (lease_key.clone(), held)), || until).await;
    }

    /// A policy has new quotas: units that were taken under the old ones are no longer spent. They are refunded in the background if a unit
    /// is worth the same under the new quotas. Otherwise they are lost, since a refund would give back units of other processes.
    pub(crate) fn renumbered(self: &Arc<Self>, id: PolicyId, before: &Policy, after: &RedisPolicy) {
        if self.keys_held.load(Ordering::Relaxed) == 0 {
            return;
        }
        let most = after.lease.map_or(0, |lease| lease.most_units(&after.policy));
        let is_same = keeps_units(before, &after.policy);
        let mut returned = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut void = 0;
            for holding in shard.table.iter_mut().filter(|holding| holding.lease_key.id == id) {
                let held = holding.renew(most);
                if is_same {
                    returned.extend(held.into_iter().map(|held| (holding.lease_key.clone(), held)));
                } else {
                    void += held.iter().map(Grant::units).sum::<u64>();
                }
            }
            shard.lost += void;
        }
        if !returned.is_empty() {
            let leases = Arc::clone(self);
            // The thread existed when the units were taken, so this does not fail.
            let _ = self.spawn(async move { leases.refund_all(returned, || leases.deadline()).await });
        }
    }

    /// Starts no more takes, refunds all units, and waits for the refunds: at most for the deadline of one decision.
    pub(crate) fn give_back_all(self: &Arc<Self>) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            let until = self.deadline();
            let refunding = async {
                self.landed(|| self.taking.load(Ordering::Acquire) == 0).await;
                let mut all = Vec::new();
                for shard in &self.shards {
                    for holding in &mut shard.lock().table {
                        all.extend(
                            holding.give_up().into_iter().map(|held| (holding.lease_key.clone(), held)),
                        );
                    }
                }
                self.refund_all(all, || until).await;
            };
            // Refunds that have not arrived by then count as lost.
            let _ = park::block_on_for(self.deps.access.deadline, refunding);
        }
        for shard in &self.shards {
            shard.lock().table = HashTable::new();
        }
        self.keys_held.store(0, Ordering::Relaxed);
    }

    /// Refunds all of the grants, with bounded concurrency.
    async fn refund_all(
        &self,
        all: impl IntoIterator<Item = (LeaseKey, Grant)>,
        until: impl Fn() -> Instant,
    ) {
        let refunds = all.into_iter().map(|(lease_key, held)| {
            let until = &until;
            async move { self.refund(&lease_key, held, until()).await }
        });
        let most = MAX_CONCURRENT.min(self.deps.access.member.most_operations / 2).max(1);
        stream::iter(refunds).buffer_unordered(most).collect::<()>().await;
    }

    /// Refunds units that are certainly the ones that were taken.
    async fn refund(&self, lease_key: &LeaseKey, held: Grant, until: Instant) {
        let left_us = micros(until.saturating_duration_since(monotonic::now()));
        let lease = self.deps.policies.get(lease_key.id).and_then(|policy| policy.lease);
        let max_age = lease.map_or(Lease::LONGEST, |lease| lease.max_age());
        let units = held.refundable(self.now_us().saturating_add(left_us), micros(max_age));
        let returned = units > 0
            && match self.submit(lease_key, REFUND, units, until) {
                Ok(submitted) => self.counted(lease_key, submitted.await, REFUND, units).is_ok(),
                Err(_) => false,
            };
        let mut shard = self.shard(lease_key.hash).lock();
        if returned {
            shard.returned += units;
        } else {
            shard.lost += held.units();
        }
    }

    /// Refunds expired units until the store is gone. Leases of idle keys are dropped.
    pub(crate) async fn refund_expired(leases: Weak<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Some(leases) = leases.upgrade() else { return };
            leases.refund_all(leases.over(), || leases.deadline()).await;
        }
    }

    pub(super) fn over(&self) -> Vec<(LeaseKey, Grant)> {
        if self.keys_held.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let now_us = self.now_us();
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for holding in &mut shard.table {
                if let Some(held) = holding.over(now_us) {
                    all.push((holding.lease_key.clone(), held));
                }
            }
            self.make_room(&mut shard, now_us);
            if shard.table.len() < shard.table.capacity() / 4 {
                let used = shard.table.len();
                shard.table.shrink_to(2 * used, |holding| holding.lease_key.hash);
            }
        }
        all
    }
}

impl LeasedKeys for Leases {
    fn channels(&self) -> ChannelSet {
        self.leased_channels()
    }

    /// Refunds the units of these keys in the background. Units of a take in flight, which may have preceded the block, are lost.
    fn block_where(self: Arc<Self>, id: PolicyId, is_one: &dyn Fn(&[u8]) -> bool) {
        if self.keys_held.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut returned = Vec::new();
        for shard in &self.shards {
            for holding in &mut shard.lock().table {
                if holding.lease_key.id == id && is_one(&holding.lease_key.key) {
                    let held = holding.block();
                    returned.extend(held.into_iter().map(|held| (holding.lease_key.clone(), held)));
                }
            }
        }
        if !returned.is_empty() {
            let leases = Arc::clone(&self);
            // The thread existed when the units were taken, so this does not fail.
            let _ = self.spawn(async move { leases.refund_all(returned, || leases.deadline()).await });
        }
    }
}

/// Whether units taken under the old quotas are the same number of units under the new ones. This requires that every quota was debited,
/// and that the repayment rate of each bucket is unchanged, since a unit of a bucket is worth the time that its repayment takes.
pub(super) fn keeps_units(before: &Policy, after: &Policy) -> bool {
    after.quotas().iter().all(|quota| {
        let is_time = quota.algorithm() == Algorithm::TokenBucket && quota.step().is_none();
        let mut past = before.quotas().iter().filter(|past| past.identity() == quota.identity());
        past.any(|past| !is_time || past.limit() == quota.limit())
    })
}
