//! The policies of a store with their script calls. Reading takes no lock.

use std::sync::Arc;

use crate::keys::KeyEncoder;
use crate::script::call::PolicyCall;
use polylimit_rules::error::Error;
use polylimit_rules::history::{Change, History};
use polylimit_rules::policy::Policy;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::{PolicyId, PolicyOptions, PreparedQuotas};
use polylimit_store::lease_size::Lease;
use polylimit_store::outage::Outage;
use polylimit_store::policy_table::{OfPolicy, PolicyTable};

#[derive(Debug)]
pub(crate) struct Policies {
    policies: PolicyTable<RedisPolicy>,
    outage: Outage,
}

#[derive(Debug)]
pub(crate) struct RedisPolicy {
    id: PolicyId,
    pub(crate) policy: Policy,
    pub(crate) call: Arc<PolicyCall>,
    pub(crate) key_prefix: Box<[u8]>,
    pub(crate) outage: Outage,
    pub(crate) lease: Option<Lease>,
    history: History,
}

impl OfPolicy for RedisPolicy {
    fn id(&self) -> PolicyId {
        self.id
    }

    fn name(&self) -> &str {
        self.policy.name()
    }
}

impl RedisPolicy {
    pub(crate) fn new(
        id: PolicyId,
        policy: &Policy,
        history: History,
        outage: Outage,
        lease: Option<Lease>,
        keys: &KeyEncoder,
    ) -> Self {
        Self {
            id,
            policy: policy.clone(),
            call: Arc::new(PolicyCall::new(policy, Change::Past(&history))),
            history,
            key_prefix: keys.policy_prefix(policy.name()),
            outage,
            lease,
        }
    }

    /// Effective quotas of some keys of a policy. `others` are further quotas that these keys may have.
    pub(crate) fn of_keys(
        id: PolicyId,
        policy: &Policy,
        others: &[Policy],
        outage: Outage,
        keys: &KeyEncoder,
    ) -> Self {
        Self {
            id,
            policy: policy.clone(),
            call: Arc::new(PolicyCall::new(policy, Change::Now(others))),
            history: History::default(),
            key_prefix: keys.policy_prefix(policy.name()),
            outage,
            lease: None,
        }
    }
}

/// The effective quotas of some keys of a policy.
#[derive(Debug)]
pub(crate) struct RedisQuotas {
    pub(crate) policy: Arc<RedisPolicy>,
    /// The same quotas for the fallback's store.
    pub(crate) fallback: PreparedQuotas,
}

/// Selects the fallback's quotas from those of this store.
pub(crate) fn fallback_quotas(effective: &PreparedQuotas) -> Option<&PreparedQuotas> {
    effective.of::<RedisQuotas>().map(|effective| &effective.fallback)
}

impl Policies {
    /// `outage` applies to policies without their own outage policy.
    pub(crate) fn new(outage: Outage) -> Self {
        Self { policies: PolicyTable::default(), outage }
    }

    pub(crate) fn after_fork(&self) -> Self {
        Self { policies: self.policies.after_fork(), outage: self.outage }
    }

    /// All policies, in the order in which they were registered.
    pub(crate) fn all(&self) -> Vec<Arc<RedisPolicy>> {
        self.policies.all()
    }

    /// The outage policy of policies without their own.
    pub(crate) fn outage(&self) -> Outage {
        self.outage
    }

    /// Adds a policy or changes its quotas; the limiter's registry serializes the calls.
    pub(crate) fn set(
        &self,
        id: PolicyId,
        policy: &Policy,
        options: PolicyOptions,
        keys: &KeyEncoder,
        clock: &Clock,
    ) {
        let known = self.policies.load(id);
        let known = known.as_ref();
        let history =
            known.map_or_else(History::default, |known| known.history.then(&known.policy, clock.now_us()));
        let outage = options.outage.or(known.map(|known| known.outage)).unwrap_or(self.outage);
        let lease = options.lease.or(known.and_then(|known| known.lease));
        let lease = lease.filter(|_| Lease::check(policy).is_ok());
        self.policies.set(Arc::new(RedisPolicy::new(id, policy, history, outage, lease, keys)));
    }

    pub(crate) fn forget(&self, id: PolicyId) {
        self.policies.forget(id);
    }

    pub(crate) fn named(&self, name: &str) -> Option<PolicyId> {
        self.policies.named(name).map(|known| known.id)
    }

    pub(crate) fn known(&self, id: PolicyId) -> Result<Arc<RedisPolicy>, Error> {
        // The limiter's registry adds a policy to the store before it hands out the id.
        self.get(id).ok_or_else(Error::unknown_to_store)
    }

    /// The policy with this id, which the limiter's registry has handed out.
    #[inline]
    pub(crate) fn get(&self, id: PolicyId) -> Option<Arc<RedisPolicy>> {
        self.policies.get(id)
    }
}
