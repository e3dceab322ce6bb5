//! The policies of a store with their script calls. Reading takes no lock.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::error::{Error, ErrorKind};
use crate::rules::history::{Change, History};
use crate::rules::policy::Policy;
use crate::runtime::clock::Clock;
use crate::store::lease_size::Lease;
use crate::store::outage::Outage;
use crate::store::redis::keys::KeyEncoder;
use crate::store::redis::script::call::PolicyCall;
use crate::store::request::{Numbers, PolicyId, PolicyOptions};

#[derive(Debug)]
pub(crate) struct Policies {
    /// The policies, ordered by id.
    policies: ArcSwap<Vec<Arc<RedisPolicy>>>,
    outage: Outage,
}

#[derive(Debug)]
pub(crate) struct RedisPolicy {
    pub(crate) policy: Policy,
    pub(crate) call: Arc<PolicyCall>,
    pub(crate) key_prefix: Box<[u8]>,
    pub(crate) outage: Outage,
    pub(crate) lease: Option<Lease>,
    history: History,
}

impl RedisPolicy {
    pub(crate) fn new(
        policy: &Policy,
        history: History,
        outage: Outage,
        lease: Option<Lease>,
        keys: &KeyEncoder,
    ) -> Self {
        Self {
            policy: policy.clone(),
            call: Arc::new(PolicyCall::new(policy, Change::Past(&history))),
            history,
            key_prefix: keys.policy_prefix(policy.name()),
            outage,
            lease,
        }
    }

    /// Numbers that decide about some keys of a policy, whose keys may also have these others.
    pub(crate) fn of_keys(policy: &Policy, others: &[Policy], outage: Outage, keys: &KeyEncoder) -> Self {
        Self {
            policy: policy.clone(),
            call: Arc::new(PolicyCall::new(policy, Change::Now(others))),
            history: History::default(),
            key_prefix: keys.policy_prefix(policy.name()),
            outage,
            lease: None,
        }
    }
}

/// Numbers that decide about some keys of a policy.
#[derive(Debug)]
pub(crate) struct RedisNumbers {
    pub(crate) policy: Arc<RedisPolicy>,
    /// The same numbers for the fallback's store.
    pub(crate) fallback: Numbers,
}

impl Policies {
    /// `outage` applies to policies that have no outage policy of their own.
    pub(crate) fn new(outage: Outage) -> Self {
        Self { policies: ArcSwap::default(), outage }
    }

    pub(crate) fn after_fork(&self) -> Self {
        Self { policies: ArcSwap::new(self.policies.load_full()), outage: self.outage }
    }

    pub(crate) fn all(&self) -> Arc<Vec<Arc<RedisPolicy>>> {
        self.policies.load_full()
    }

    /// The outage policy of the policies that have none of their own.
    pub(crate) fn outage(&self) -> Outage {
        self.outage
    }

    /// Adds a policy or changes its numbers; the limiter's registry serializes the calls.
    pub(crate) fn set(
        &self,
        id: PolicyId,
        policy: &Policy,
        options: PolicyOptions,
        keys: &KeyEncoder,
        clock: &Clock,
    ) {
        let mut policies = Vec::clone(&self.policies.load());
        let known = policies.get(id.0 as usize);
        let history =
            known.map_or_else(History::default, |known| known.history.then(&known.policy, clock.now_us()));
        let outage = options.outage.or(known.map(|known| known.outage)).unwrap_or(self.outage);
        let lease = options.lease.or(known.and_then(|known| known.lease));
        let lease = lease.filter(|_| Lease::check(policy).is_ok());
        let changed = Arc::new(RedisPolicy::new(policy, history, outage, lease, keys));
        match policies.get_mut(id.0 as usize) {
            Some(known) => *known = changed,
            None => policies.push(changed),
        }
        self.policies.store(Arc::new(policies));
    }

    pub(crate) fn named(&self, name: &str) -> Option<PolicyId> {
        let place = self.policies.load().iter().position(|known| known.policy.name() == name)?;
        Some(PolicyId(u32::try_from(place).ok()?))
    }

    pub(crate) fn known(&self, id: PolicyId) -> Result<Arc<RedisPolicy>, Error> {
        // The limiter's registry adds a policy to the store before it hands out the id.
        let unknown = || Error::new(ErrorKind::Internal, "a policy is not known to its store");
        self.get(id).ok_or_else(unknown)
    }

    /// The policy with this id, which the limiter's registry has handed out.
    #[inline]
    pub(crate) fn get(&self, id: PolicyId) -> Option<Arc<RedisPolicy>> {
        let policies: Guard<_> = self.policies.load();
        policies.get(id.0 as usize).cloned()
    }
}
