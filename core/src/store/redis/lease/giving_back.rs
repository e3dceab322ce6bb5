//! Refunds of leased units: before an operation other than a check, when a policy's numbers change, and when the
//! limiter is closed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hashbrown::HashTable;

use crate::rules::policy::Policy;
use crate::rules::quota::Algorithm;
use crate::store::redis::lease::grant::Grant;
use crate::store::redis::lease::key_lease::KeyLease;
use crate::store::redis::lease::{LeaseKey, Leases};
use crate::store::redis::policies::RedisPolicy;
use crate::store::request::{PolicyId, StoreRequest};

impl Leases {
    /// Refunds the held units of a key by the deadline `until`, before another operation uses the key.
    pub(crate) async fn give_back(&self, request: StoreRequest<'_>, until: Instant) {
        let hash = self.hash(request);
        // Units of a take in flight are refunded as well, if its reply arrives in time. Takes for other keys do not
        // matter here: with many leased keys, some take is in flight at any time.
        let landed = self.landed(|| {
            let shard = self.shard(hash).lock();
            !shard.table.find(hash, |holding| holding.is_of(request)).is_some_and(KeyLease::takes)
        });
        let _ = tokio::time::timeout_at(until.into(), landed).await;
        let held = {
            let mut shard = self.shard(hash).lock();
            let holding = shard.table.find_mut(hash, |holding| holding.is_of(request));
            holding.map(KeyLease::give_up).unwrap_or_default()
        };
        let lease_key = LeaseKey { id: request.id, key: request.key.into(), hash };
        self.refund_all(held.into_iter().map(|held| (lease_key.clone(), held)), || until).await;
    }

    /// A policy has new numbers: units that were taken under the old ones are not spent any more. They are refunded in
    /// the background if a unit is worth the same under the new numbers. Otherwise they are lost, since a refund would
    /// give back units of other processes.
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
        if returned.is_empty() {
            return;
        }
        let leases = Arc::clone(self);
        // The thread existed when the units were taken, so this does not fail.
        let _ = self.spawn(async move {
            leases.refund_all(returned, || leases.deadline()).await;
        });
    }

    /// Starts no more takes, refunds all units, and waits for the refunds: at most for the deadline of one decision.
    pub(crate) fn give_back_all(self: &Arc<Self>) {
        if !self.closed.swap(true, Ordering::AcqRel) && self.keys_held.load(Ordering::Relaxed) > 0 {
            let until = self.deadline();
            let giving_back = async {
                self.all_taken().await;
                self.refund_all(self.give_up_all(), || until).await;
            };
            // Refunds that have not arrived by then count as lost.
            let _ = crate::runtime::park::block_on_for(self.deps.access.deadline, giving_back);
        }
        for shard in &self.shards {
            shard.lock().table = HashTable::new();
        }
        self.keys_held.store(0, Ordering::Relaxed);
    }
}

/// Whether units taken under the old numbers are the same number of units under the new ones. This requires that every
/// quota was debited, and that the repayment rate of each bucket is unchanged, since a unit of a bucket is worth the
/// time that its repayment takes.
fn keeps_units(before: &Policy, after: &Policy) -> bool {
    after.quotas().iter().all(|quota| {
        let is_time = quota.algorithm() == Algorithm::TokenBucket && quota.step().is_none();
        let mut past = before.quotas().iter().filter(|past| past.identity() == quota.identity());
        past.any(|past| !is_time || past.limit() == quota.limit())
    })
}
