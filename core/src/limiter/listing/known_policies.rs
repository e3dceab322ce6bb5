//! The policies of keys that a store has: those of the configuration and of the program, and those that are named after their quotas.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limiter::Shared;
use crate::limiter::configured::in_force::InForce;
use crate::rules::policy::Policy;
use crate::store::request::{Numbers, PolicyId, PolicyOptions};
use crate::store::scan::{FoundKey, FoundPolicy, KeyName};

/// The policies by which keys are looked at.
pub(crate) struct KnownPolicies<'a> {
    shared: &'a Shared,
    in_force: Option<Arc<InForce>>,
    /// Policies that no request of this limiter has named, by their names; `None` where the name says no quotas.
    one_offs: HashMap<Box<str>, Option<(Policy, Numbers)>>,
}

/// The numbers that decide about a key.
pub(crate) struct KeyNumbers<'k> {
    pub(crate) id: PolicyId,
    pub(crate) policy: Policy,
    pub(crate) numbers: Option<&'k Numbers>,
}

impl<'a> KnownPolicies<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self { shared, in_force: shared.configured.in_force(), one_offs: HashMap::new() }
    }

    /// Learns what the names of policies say that are named after their quotas.
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
                let options = PolicyOptions { has_numbers_of_keys: true, ..PolicyOptions::default() };
                let numbers = self.shared.store.prepare_numbers(PolicyId(0), &policy, &[], options);
                (policy, numbers)
            });
            self.one_offs.insert(name.clone(), prepared);
        }
    }

    /// The numbers of a key; `None` for a policy that this process does not know. A key of which only the digest is known has those
    /// of the policy.
    pub(crate) fn numbers(&self, found: &FoundKey, now_us: u64) -> Option<KeyNumbers<'_>> {
        if let (Some(index), Some(in_force)) = (self.configured(&found.policy), &self.in_force) {
            let set = match &found.key {
                KeyName::Bytes(key) => in_force.configuration.numbers(index, key, None, now_us).set,
                KeyName::Digest(_) => 0,
            };
            return Some(KeyNumbers {
                id: in_force.policy(index).id,
                policy: in_force.quotas(index, set).clone(),
                numbers: in_force.numbers(index, set, &self.shared.store),
            });
        }
        let registry = &self.shared.registry;
        let name = match &found.policy {
            FoundPolicy::Known(id) => {
                return Some(KeyNumbers { id: *id, policy: registry.policy_of(*id)?, numbers: None });
            }
            FoundPolicy::Named(name) => name,
        };
        if let Some(id) = registry.find(Some(name)) {
            return Some(KeyNumbers { id, policy: registry.policy_of(id)?, numbers: None });
        }
        let (policy, numbers) = self.one_offs.get(name)?.as_ref()?;
        Some(KeyNumbers { id: PolicyId(0), policy: policy.clone(), numbers: Some(numbers) })
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
