//! The policies of a limiter, by name. Lookups take no lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, excerpt};
use crate::limiter::near_limit::NearLimits;
use crate::rules::policy::Policy;
use crate::rules::quota::Algorithm;
use crate::rules::transition::Operation;
use crate::runtime::close_signal::closed;
use crate::store::Store;
use crate::store::request::{Action, PolicyId, PolicyOptions};

const MAX_POLICIES: usize = 1 << 16;
/// How many names and texts of policies are kept.
const MAX_NAMES: usize = 2 * MAX_POLICIES;
/// How many names are compared one by one before a name is hashed.
const FEW: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    policies: ArcSwap<Policies>,
    /// The names of the first policies, in the order of their ids.
    few: [OnceLock<Box<str>>; FEW],
    /// Whether requests may name these policies, and whether a request without a name means the first one.
    by_name: AtomicBool,
    by_none: AtomicBool,
    /// Whether a policy has a quota of concurrent reservations.
    has_concurrency: AtomicBool,
    /// Whether a configuration has policies here.
    is_configured: AtomicBool,
    pub(crate) near: NearLimits,
    /// Held while policies change, so that the store sees the changes in the same order.
    changing: Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Policies {
    /// In the order of the policies' ids.
    list: Vec<Policy>,
    /// By name; a policy made of the quotas in a request also by the text of that request.
    ids: HashMap<Arc<str>, PolicyId, RandomState>,
    /// The policies with names of their own.
    named: Vec<PolicyId>,
    /// The policies that a configuration has or had, by name: a policy that comes back finds its states.
    configured: HashMap<Arc<str>, PolicyId, RandomState>,
    /// Whether the limiter was closed.
    closed: bool,
}

impl Registry {
    /// The same policies under the same ids, for a forked child.
    pub(crate) fn after_fork(&self) -> Self {
        let same = |flag: &AtomicBool| AtomicBool::new(flag.load(Ordering::Relaxed));
        let policies = self.policies.load_full();
        let near = NearLimits::default();
        for (id, policy) in (0..).zip(&policies.list) {
            near.set(PolicyId(id), policy);
        }
        Self {
            policies: ArcSwap::new(policies),
            near,
            few: self.few.clone(),
            by_name: same(&self.by_name),
            by_none: same(&self.by_none),
            has_concurrency: same(&self.has_concurrency),
            is_configured: same(&self.is_configured),
            changing: Mutex::default(),
        }
    }

    /// The id of a policy that needs no map lookup: comparing a few names takes less time than hashing one.
    #[inline]
    pub(crate) fn known_id(&self, name: Option<&str>) -> Option<PolicyId> {
        let Some(name) = name else {
            return self.by_none.load(Ordering::Acquire).then_some(PolicyId(0));
        };
        if !self.by_name.load(Ordering::Acquire) {
            return None;
        }
        let mut few = self.few.iter().map_while(OnceLock::get).zip(0..);
        few.find(|(known, _)| ***known == *name).map(|(_, id)| PolicyId(id))
    }

    /// Whether a policy has a quota of concurrent reservations, so that operations have to be compared with it.
    #[inline]
    pub(crate) fn has_concurrency(&self) -> bool {
        self.has_concurrency.load(Ordering::Acquire)
    }

    /// Refuses an operation that would take a slot without giving it back.
    #[cold]
    pub(crate) fn refuse_unreserved(&self, id: PolicyId, action: Action) -> Result<(), Error> {
        self.policy_of(id).map_or(Ok(()), |policy| refuse_unreserved(&policy, action))
    }

    /// Refuses an operation on a reservation where the policy cannot have one.
    pub(crate) fn refuse_reserved(&self, id: PolicyId, store: &Store) -> Result<(), Error> {
        self.policy_of(id).map_or(Ok(()), |policy| refuse_reserved(&policy, store.is_leased(id)))
    }

    /// The id of the policy with this name, of the only policy, or of the quotas in this text, which become a policy of the
    /// store.
    #[inline]
    pub(crate) fn id(&self, name: Option<&str>, store: &Store) -> Result<PolicyId, Error> {
        if let Some(id) = self.known_id(name) {
            return Ok(id);
        }
        let policies = self.policies.load();
        if let Some(id) = policies.find(name) {
            return Ok(id);
        }
        match name.filter(|text| Policy::is_quotas(text) && !policies.closed) {
            Some(quotas) => self.add_one_off(quotas, None, store),
            None => Err(policies.refusal(name)),
        }
    }

    /// The id of a policy that a request may name.
    #[inline(never)]
    pub(crate) fn find(&self, name: Option<&str>) -> Option<PolicyId> {
        self.policies.load().find(name)
    }

    /// The policy with this name, which a closed limiter still has.
    pub(crate) fn policy(&self, name: &str) -> Option<Policy> {
        let policies = self.policies.load();
        policies.list.get(policies.ids.get(name)?.0 as usize).cloned()
    }

    /// The policy with this name, the only policy, or the policy of these quotas in this scope.
    pub(crate) fn policy_for(
        &self,
        name: Option<&str>,
        scope: Option<&str>,
        store: &Store,
    ) -> Result<Policy, Error> {
        let id = match (name, scope) {
            (Some(quotas), Some(_)) if Policy::is_quotas(quotas) => {
                self.check_open()?;
                self.add_one_off(quotas, scope, store)?
            }
            _ => self.id(name, store)?,
        };
        self.policy_of(id)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a policy is not known to its limiter"))
    }

    pub(crate) fn policy_of(&self, id: PolicyId) -> Option<Policy> {
        self.policies.load().list.get(id.0 as usize).cloned()
    }

    /// What `of` tells of a policy; the default for one that is not known.
    pub(crate) fn with_policy<T: Default>(&self, id: PolicyId, of: impl FnOnce(&Policy) -> T) -> T {
        self.policies.load().list.get(id.0 as usize).map(of).unwrap_or_default()
    }

    /// All policies in the order of their ids, and whether requests may still name them.
    pub(crate) fn listed(&self) -> Vec<(Policy, bool)> {
        let policies = self.policies.load();
        let is_known = |id: usize, policy: &Policy| {
            policies.ids.get(policy.name()).is_some_and(|known| known.0 as usize == id)
        };
        let listed = policies.list.iter().enumerate();
        listed.map(|(id, policy)| (policy.clone(), is_known(id, policy))).collect()
    }

    pub(crate) fn policies(&self) -> Vec<Policy> {
        self.policies.load().list.clone()
    }

    /// Adds or changes a policy, in the store before a request can use it.
    pub(crate) fn set(
        &self,
        policy: Policy,
        options: PolicyOptions,
        store: &Store,
    ) -> Result<PolicyId, Error> {
        let _changing = self.changing.lock();
        self.put(policy, None, options, store)
    }

    /// Registers a policy of a configuration, or changes it.
    pub(crate) fn set_configured(
        &self,
        policy: &Policy,
        options: PolicyOptions,
        store: &Store,
    ) -> Result<PolicyId, Error> {
        let _changing = self.changing.lock();
        self.is_configured.store(true, Ordering::Release);
        let mut policies = Policies::clone(&self.policies.load());
        let name = policy.name();
        let id = if let Some(id) = policies.configured.get(name).copied() {
            self.register(id, policy, options, store);
            policies.list[id.0 as usize] = policy.clone();
            id
        } else {
            if policies.ids.contains_key(name) {
                return Err(Error::invalid_argument(format!(
                    "policy {name} is in the configuration and in the program: give one of them another name"
                )));
            }
            if policies.list.len() >= MAX_POLICIES {
                return Err(Error::invalid_argument(format!(
                    "a limiter has at most {MAX_POLICIES} policies"
                )));
            }
            let id = PolicyId(u32::try_from(policies.list.len()).unwrap_or(u32::MAX));
            self.register(id, policy, options, store);
            policies.list.push(policy.clone());
            policies.configured.insert(name.into(), id);
            id
        };
        policies.ids.insert(name.into(), id);
        if !policies.named.contains(&id) {
            policies.named.push(id);
        }
        self.publish(policies);
        Ok(id)
    }

    /// Forgets the names of a configuration's policies except these. Their ids and states stay.
    pub(crate) fn retain_configured(&self, names: &[String]) {
        let _changing = self.changing.lock();
        let mut policies = Policies::clone(&self.policies.load());
        let gone = |name: &str| !names.iter().any(|kept| kept == name);
        let vanished: Vec<_> = policies
            .configured
            .iter()
            .filter(|(name, _)| gone(name))
            .map(|(name, id)| (name.clone(), *id))
            .collect();
        if vanished.iter().all(|(name, _)| !policies.ids.contains_key(name)) {
            return;
        }
        for (name, id) in vanished {
            policies.ids.remove(&name);
            policies.named.retain(|named| *named != id);
        }
        self.publish(policies);
    }

    /// A configuration is going to register policies: until then no name is known.
    pub(crate) fn await_configuration(&self) {
        self.is_configured.store(true, Ordering::Release);
    }

    /// Whether a configuration has policies here, so that a name alone does not say what decides.
    #[inline]
    pub(crate) fn is_configured(&self) -> bool {
        self.is_configured.load(Ordering::Acquire)
    }

    /// Makes a policy's numbers known, before a request can use them.
    fn register(&self, id: PolicyId, policy: &Policy, options: PolicyOptions, store: &Store) {
        self.near.set(id, policy);
        store.set_policy(id, policy, options);
    }

    fn publish(&self, policies: Policies) {
        let is_plain = !policies.closed && !self.is_configured();
        self.by_name.store(is_plain, Ordering::Release);
        self.by_none.store(policies.named == [PolicyId(0)] && is_plain, Ordering::Release);
        self.policies.store(Arc::new(policies));
    }

    /// Refuses all further requests. Returns whether the registry was open.
    pub(crate) fn close(&self) -> bool {
        let _changing = self.changing.lock();
        let mut policies = Policies::clone(&self.policies.load());
        let was_open = !std::mem::replace(&mut policies.closed, true);
        self.by_name.store(false, Ordering::Release);
        self.by_none.store(false, Ordering::Release);
        self.policies.store(Arc::new(policies));
        was_open
    }

    /// Fails when the limiter was closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.policies.load().closed { Err(closed()) } else { Ok(()) }
    }

    #[cold]
    fn add_one_off(&self, quotas: &str, scope: Option<&str>, store: &Store) -> Result<PolicyId, Error> {
        let policy = Policy::one_off(quotas, scope)?;
        let _changing = self.changing.lock();
        // A policy with a scope is found by its name alone.
        let text = if scope.is_none() { quotas } else { &*policy.name().to_owned() };
        self.put(policy, Some(text), PolicyOptions::default(), store)
    }

    /// `quotas` is the text of a policy whose name is made of its quotas, which therefore never change.
    fn put(
        &self,
        policy: Policy,
        quotas: Option<&str>,
        options: PolicyOptions,
        store: &Store,
    ) -> Result<PolicyId, Error> {
        let mut policies = Policies::clone(&self.policies.load());
        if policies.list.len() >= MAX_POLICIES && !policies.ids.contains_key(policy.name()) {
            return Err(Error::invalid_argument(format!("a limiter has at most {MAX_POLICIES} policies")));
        }
        let id = match policies.ids.get(policy.name()).copied() {
            Some(id) if policies.list[id.0 as usize] == policy => id,
            Some(_) if quotas.is_some() => {
                return Err(Error::invalid_argument(format!(
                    "a policy with other quotas is named {}: give that one another name",
                    policy.name()
                )));
            }
            Some(id) => {
                self.register(id, &policy, options, store);
                policies.list[id.0 as usize] = policy;
                id
            }
            None => {
                let id = PolicyId(u32::try_from(policies.list.len()).unwrap_or(u32::MAX));
                self.register(id, &policy, options, store);
                policies.ids.insert(policy.name().into(), id);
                if let Some(name) = self.few.get(policies.list.len()) {
                    name.get_or_init(|| policy.name().into());
                }
                policies.list.push(policy);
                id
            }
        };
        let counts_slots = |policy: &Policy| policy.quotas().iter().any(|quota| !quota.algorithm().is_rate());
        if policies.list.get(id.0 as usize).is_some_and(counts_slots) {
            self.has_concurrency.store(true, Ordering::Release);
        }
        if let Some(text) = quotas {
            // A text that is not kept is parsed again for each request.
            if policies.ids.len() >= MAX_NAMES {
                return Ok(id);
            }
            policies.ids.insert(text.into(), id);
        } else if !policies.named.contains(&id) {
            policies.named.push(id);
        }
        self.publish(policies);
        Ok(id)
    }
}

/// Refuses an operation that would take a slot without giving it back.
pub(crate) fn refuse_unreserved(policy: &Policy, action: Action) -> Result<(), Error> {
    let Action::Apply(Operation::Check | Operation::Take) = action else { return Ok(()) };
    match policy.quotas().iter().find(|quota| !quota.algorithm().is_rate()) {
        None => Ok(()),
        Some(quota) => Err(Error::invalid_argument(format!(
            "policy {} has {quota}, which is only ever reserved: use reserve, which gives the slot back",
            policy.name()
        ))),
    }
}

/// Refuses an operation on a reservation where the policy cannot have one.
pub(crate) fn refuse_reserved(policy: &Policy, is_leased: bool) -> Result<(), Error> {
    let name = policy.name();
    if let Some(quota) = policy.quotas().iter().find(|quota| quota.algorithm() == Algorithm::LeakyBucket) {
        return Err(Error::invalid_argument(format!(
            "policy {name} has {quota}: a leaky_bucket cannot be reserved, use a token_bucket"
        )));
    }
    if is_leased {
        return Err(Error::invalid_argument(format!(
            "policy {name} is leased: a leased policy cannot be reserved, use one without a lease"
        )));
    }
    Ok(())
}

impl Policies {
    fn find(&self, name: Option<&str>) -> Option<PolicyId> {
        if self.closed {
            return None;
        }
        match name {
            Some(name) => self.ids.get(name).copied(),
            None => self.named.first().copied().filter(|_| self.named.len() == 1),
        }
    }

    #[cold]
    fn refusal(&self, name: Option<&str>) -> Error {
        if self.closed {
            return closed();
        }
        let names =
            self.named.iter().take(10).filter_map(|id| self.list.get(id.0 as usize)).map(Policy::name);
        let shown = names.collect::<Vec<_>>().join(", ");
        let has = match self.named.len() {
            0 => "none: name quotas, such as 100/minute".to_owned(),
            1..=10 => shown,
            _ => format!("{shown}, ..."),
        };
        let read = match name {
            Some(name) => format!("policy {} is not known", excerpt(name)),
            None if self.named.is_empty() => "no policy is named".to_owned(),
            None => "no policy is named and there are several".to_owned(),
        };
        Error::invalid_argument(format!("{read}: this limiter has {has}"))
    }
}
