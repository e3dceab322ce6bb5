//! The policies of keys that a store has: those of the configuration and of the program, and those that are named after their quotas.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limiter::Shared;
use crate::limiter::configured::in_force::InForce;
use polylimit_rules::policy::Policy;
use polylimit_store::charge::{PolicyId, PolicyOptions, PreparedQuotas};
use polylimit_store::scan::{FoundKey, FoundPolicy, KeyName};

/// The policies by which keys are examined.
pub(crate) struct KnownPolicies<'a> {
    shared: &'a Shared,
    in_force: Option<Arc<InForce>>,
    /// Policies that no request of this limiter has named, by their names; `None` where the name is not that of quotas.
    one_offs: HashMap<Box<str>, Option<(Policy, PreparedQuotas)>>,
}

/// The effective quotas of a key.
pub(crate) struct KeyQuotas<'k> {
    pub(crate) id: PolicyId,
    pub(crate) policy: Policy,
    pub(crate) effective: Option<&'k PreparedQuotas>,
}

impl<'a> KnownPolicies<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self { shared, in_force: shared.configured.in_force(), one_offs: HashMap::new() }
    }

    /// Parses the names of policies that are named after their quotas.
    pub(crate) fn learn(&mut self, found: &[FoundKey]) {
        for found in found {
            let FoundPolicy::Named(name) = &found.policy else { continue };
            if self.configured(&found.policy).is_some()
                || self.shared.registry.find(Some(name)).is_some()
                || self.one_offs.contains_key(name)
            {
                continue;
            }
            let prepared = Policy::of_one_off_name(name).map(|policy| {
                let options = PolicyOptions { has_quotas_of_keys: true, ..PolicyOptions::default() };
                let effective = self.shared.store.prepare_quotas(PolicyId(0), &policy, &[], options);
                (policy, effective)
            });
            self.one_offs.insert(name.clone(), prepared);
        }
    }

    /// The effective quotas of a key; `None` for a policy that this process does not know. A key of which only the
    /// digest is known has those of the policy.
    pub(crate) fn effective(&self, found: &FoundKey, now_us: u64) -> Option<KeyQuotas<'_>> {
        if let (Some(index), Some(in_force)) = (self.configured(&found.policy), &self.in_force) {
            let set = match &found.key {
                KeyName::Bytes(key) => {
                    in_force.configuration.effective(index, key, None, None, now_us).ok()?.set
                }
                KeyName::Digest(_) => 0,
            };
            return Some(KeyQuotas {
                id: in_force.policy(index).id,
                policy: in_force.quotas(index, set).clone(),
                effective: in_force.prepared(index, set, &self.shared.store),
            });
        }
        let registry = &self.shared.registry;
        let name = match &found.policy {
            FoundPolicy::Known(id) => {
                return Some(KeyQuotas { id: *id, policy: registry.policy_of(*id)?, effective: None });
            }
            FoundPolicy::Named(name) => name,
        };
        if let Some(id) = registry.find(Some(name)) {
            return Some(KeyQuotas { id, policy: registry.policy_of(id)?, effective: None });
        }
        let (policy, effective) = self.one_offs.get(name)?.as_ref()?;
        Some(KeyQuotas { id: PolicyId(0), policy: policy.clone(), effective: Some(effective) })
    }

    /// The name of a found key's policy.
    pub(crate) fn name(&self, found: &FoundPolicy) -> Box<str> {
        match found {
            FoundPolicy::Named(name) => name.clone(),
            FoundPolicy::Known(id) => {
                self.shared.registry.policy_of(*id).map(|policy| policy.name().into()).unwrap_or_default()
            }
        }
    }

    fn configured(&self, found: &FoundPolicy) -> Option<usize> {
        let in_force = self.in_force.as_ref()?;
        match found {
            FoundPolicy::Named(name) => in_force.configuration.policy_index(name),
            FoundPolicy::Known(id) => in_force.ids().position(|known| known == *id),
        }
    }
}
