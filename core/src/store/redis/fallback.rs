//! The answers of the outage policy, while the store cannot decide.
//!
//! With the outage policy `fallback`, a memory store follows every decision of Redis, so that its states are current
//! when it has to decide. It contains what this process admitted, under a share of each limit; `allow` and `deny` keep
//! no states.

use std::sync::Arc;

use crate::rules::decision::{Decision, Degradation, QuotaUsage, Several, Source};
use crate::rules::policy::Policy;
use crate::rules::quota::Quota;
use crate::rules::transition::Operation;
use crate::runtime::clock::Clock;
use crate::store::memory::MemoryStore;
use crate::store::outage::Outage;
use crate::store::redis::policies::RedisPolicy;
use crate::store::request::{Action, Answer, PolicyId, StoreRequest};

mod share;

/// The retry time of a denial by the outage policy `deny`, in microseconds. The end of the outage is unknown; this is
/// short.
const COME_BACK_US: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Fallback {
    local: MemoryStore,
    share_ppm: u32,
}

impl Fallback {
    pub(crate) fn new(share_ppm: u32, clock: Clock, max_keys: usize) -> Self {
        Self { local: MemoryStore::new(max_keys, clock), share_ppm }
    }

    /// The same, for a forked child, without states.
    pub(crate) fn after_fork(&self, policies: &[Arc<RedisPolicy>]) -> Self {
        let after_fork = Self { local: self.local.after_fork(), share_ppm: self.share_ppm };
        for (id, policy) in (0..).zip(policies) {
            after_fork.set_policy(PolicyId(id), &policy.policy);
        }
        after_fork
    }

    pub(crate) fn set_policy(&self, id: PolicyId, policy: &Policy) {
        self.local.set_policy(id, &share::of(policy, self.share_ppm));
    }

    /// Drops all states.
    pub(crate) fn clear(&self) {
        self.local.clear();
    }

    /// Applies what the store has done, with the number of units that it spent.
    pub(crate) fn follow(&self, request: StoreRequest<'_>, spent: u64) {
        let followed = match request.action {
            Action::Apply(Operation::Check | Operation::Take) if spent > 0 => {
                StoreRequest { action: Action::Apply(Operation::Charge), cost: spent, ..request }
            }
            Action::Apply(Operation::Check | Operation::Take | Operation::Peek) => return,
            Action::Apply(Operation::Charge | Operation::Refund) | Action::Reset => request,
        };
        let _ = self.local.answer(followed);
    }

    /// Answers without the store. Units are spent in the fallback store.
    pub(crate) fn answer(
        &self,
        outage: Outage,
        quotas: &[Quota],
        request: StoreRequest<'_>,
        reason: Degradation,
    ) -> Answer {
        let (allowed, source) = match outage {
            Outage::Fallback => {
                let (decision, spent) = self.local.answer(request);
                return (Decision { source: Source::Fallback, degraded: Some(reason), ..decision }, spent);
            }
            Outage::Allow => (true, Source::Allow),
            Outage::Deny => (request.cost == 0, Source::Deny),
        };
        let views = quotas.iter().map(|quota| QuotaUsage {
            limit: quota.limit(),
            remaining: if source == Source::Allow { quota.capacity() } else { 0 },
            reset_after_us: 0,
        });
        let each: Box<[QuotaUsage]> = views.collect();
        let decision = Decision {
            total: QuotaUsage::of_all(&each),
            several: (each.len() > 1).then(|| Box::new(Several { each })),
            wait_us: if allowed { 0 } else { COME_BACK_US },
            allowed,
            source,
            degraded: Some(reason),
        };
        (decision, if allowed { request.cost } else { 0 })
    }
}
