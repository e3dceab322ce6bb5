//! Giving back what is leased: before something else is asked of a key, when the numbers change, and at the end.

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
    /// Gives back what is held of a key until then, before something else is asked of it.
    pub(crate) async fn give_back(&self, request: StoreRequest<'_>, until: Instant) {
        let hash = self.hash(request);
        // What is being taken is given back as well, if it comes in time. Others' takes are of no concern: where many keys
        // are leased, some is under way at any time.
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

    /// A policy has other numbers: nothing that was taken under the ones before is spent any more. It is given back in the
    /// background where it is the same under these, and otherwise lost: others' units would be given back in its place.
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
        // There was a thread when they were taken, so this does not fail.
        let _ = self.spawn(async move {
            leases.refund_all(returned, || leases.deadline()).await;
        });
    }

    /// Gives back everything, takes no more, and waits until it has arrived: at most for as long as one decision may take.
    pub(crate) fn give_back_all(self: &Arc<Self>) {
        if !self.closed.swap(true, Ordering::AcqRel) && self.keys_held.load(Ordering::Relaxed) > 0 {
            let until = self.deadline();
            let giving_back = async {
                self.all_taken().await;
                self.refund_all(self.give_up_all(), || until).await;
            };
            // What has not arrived by then counts as lost by those who look at the store.
            let _ = crate::runtime::park::block_on_for(self.deps.access.deadline, giving_back);
        }
        for shard in &self.shards {
            shard.lock().table = HashTable::new();
        }
        self.keys_held.store(0, Ordering::Relaxed);
    }
}

/// Whether units that were taken under the numbers before are as many under those after: every quota has been debited, and
/// what a bucket repays has stayed, since there a unit is worth as much time as it takes to repay.
fn keeps_units(before: &Policy, after: &Policy) -> bool {
    after.quotas().iter().all(|quota| {
        let is_time = quota.algorithm() == Algorithm::TokenBucket && quota.step().is_none();
        let mut past = before.quotas().iter().filter(|past| past.identity() == quota.identity());
        past.any(|past| !is_time || past.limit() == quota.limit())
    })
}
