//! The policies of a limiter, by name. Reading takes no lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::error::{Error, excerpt};
use crate::policy::Policy;
use crate::store::PolicyId;

const MAX_POLICIES: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Registry {
    policies: ArcSwap<Policies>,
    /// Whether there is just one policy, which then need not be looked up.
    only: AtomicBool,
    /// Held while policies change, so that the store sees the changes in the same order.
    changing: Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Policies {
    /// In the order of their ids.
    list: Vec<Policy>,
    ids: HashMap<Arc<str>, PolicyId>,
}

impl Registry {
    /// The id of the policy of that name, or of the only one.
    #[inline]
    pub(super) fn id(&self, name: Option<&str>) -> Result<PolicyId, Error> {
        if name.is_none() && self.only.load(Ordering::Relaxed) {
            return Ok(PolicyId(0));
        }
        let policies = self.policies.load();
        let found = name.and_then(|name| policies.ids.get(name).copied());
        found.ok_or_else(|| policies.refusal(name))
    }

    pub(super) fn policy(&self, name: &str) -> Option<Policy> {
        let policies = self.policies.load();
        let id = policies.ids.get(name)?;
        policies.list.get(id.0 as usize).cloned()
    }

    pub(super) fn policy_of(&self, id: PolicyId) -> Option<Policy> {
        self.policies.load().list.get(id.0 as usize).cloned()
    }

    pub(super) fn policies(&self) -> Vec<Policy> {
        self.policies.load().list.clone()
    }

    /// Adds or changes a policy. The store learns of it before anybody can ask for it.
    pub(super) fn set(
        &self,
        policy: Policy,
        tell: impl FnOnce(PolicyId, &Policy),
    ) -> Result<PolicyId, Error> {
        let _changing = self.changing.lock();
        let mut policies = Policies::clone(&self.policies.load());
        let id = if let Some(&id) = policies.ids.get(policy.name()) {
            tell(id, &policy);
            policies.list[id.0 as usize] = policy;
            id
        } else {
            let id = u32::try_from(policies.list.len()).ok().filter(|&id| (id as usize) < MAX_POLICIES);
            let id = PolicyId(id.ok_or_else(|| {
                Error::invalid_argument(format!("a limiter has at most {MAX_POLICIES} policies"))
            })?);
            tell(id, &policy);
            policies.ids.insert(policy.name().into(), id);
            policies.list.push(policy);
            id
        };
        self.only.store(policies.list.len() == 1, Ordering::Relaxed);
        self.policies.store(Arc::new(policies));
        Ok(id)
    }
}

impl Policies {
    #[cold]
    fn refusal(&self, name: Option<&str>) -> Error {
        let shown = self.list.iter().take(10).map(Policy::name).collect::<Vec<_>>().join(", ");
        let more = if self.list.len() > 10 { ", ..." } else { "" };
        let read = match name {
            Some(name) => format!("policy {} is not known", excerpt(name)),
            None => "no policy is named and there are several".to_owned(),
        };
        Error::invalid_argument(format!("{read}: this limiter has {shown}{more}"))
    }
}
