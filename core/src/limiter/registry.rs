//! The policies of a limiter, by name. Lookups take no lock.
//!
//! Policies of the program and of documents stay. Quotas that requests name as text become policies, too; of those, the
//! least recently used are forgotten, see `texts`.

pub(crate) mod texts;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::limiter::near_limit::NearLimits;
use crate::limiter::registry::texts::{
    HeldPolicy, INSPECTED, Known, MAX_TEXTS_OF_ONE, Slots, TextBounds, UnusedText,
};
use crate::limiter::tally::counts::MAX_COUNTED;
use crate::store::Store;
use polylimit_rules::error::{Error, ErrorKind, excerpt};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Algorithm;
use polylimit_rules::transition::Operation;
use polylimit_runtime::close_signal::closed;
use polylimit_runtime::monotonic;
use polylimit_store::charge::{Action, PolicyId, PolicyOptions};
use polylimit_store::policy_table::{NameTable, OfPolicy, PolicyTable};

const MAX_POLICIES: usize = 1 << 16;
/// How many names are compared one by one before a name is hashed.
const FEW: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// All policies, by id and by name.
    known: PolicyTable<Known>,
    /// The policies made of quotas, by the texts that requests have named.
    texts: NameTable<Known>,
    policies: ArcSwap<Policies>,
    /// The names of the first policies, in the order of their ids.
    few: [OnceLock<Box<str>>; FEW],
    /// Whether requests may name these policies, and whether a request without a name means the first one.
    by_name: AtomicBool,
    by_none: AtomicBool,
    /// Whether a policy has a quota of concurrent reservations.
    has_concurrency: AtomicBool,
    /// Whether a configuration has registered policies.
    is_configured: AtomicBool,
    pub(crate) near: NearLimits,
    /// Held while policies change, so that the store sees the changes in the same order.
    changing: Mutex<Slots>,
    bounds: TextBounds,
}

/// The policies of the program and of a configuration.
#[derive(Clone, Debug, Default)]
struct Policies {
    /// By name.
    ids: HashMap<Arc<str>, PolicyId, RandomState>,
    /// The policies that a request without a name may mean.
    named: Vec<PolicyId>,
    /// The policies that a configuration has or had, by name: a policy that is registered again keeps its states.
    configured: HashMap<Arc<str>, PolicyId, RandomState>,
    /// Whether the limiter was closed.
    closed: bool,
}

impl Registry {
    /// The same policies under the same ids, for a forked child.
    pub(crate) fn after_fork(&self) -> Self {
        let same = |flag: &AtomicBool| AtomicBool::new(flag.load(Ordering::Relaxed));
        let (known, texts, near) = (PolicyTable::default(), NameTable::default(), NearLimits::default());
        for parents in self.known.all() {
            near.set(parents.id, &parents.policy);
            let ours = parents.after_fork();
            known.set(ours);
        }
        for (text, of) in self.texts.all() {
            if let Some(of) = known.get(of.id) {
                of.texts.lock().push(Arc::clone(&text));
                texts.set(text, of);
            }
        }
        let slots = Slots::after_fork(&known.all());
        Self {
            known,
            texts,
            policies: ArcSwap::new(self.policies.load_full()),
            near,
            few: self.few.clone(),
            by_name: same(&self.by_name),
            by_none: same(&self.by_none),
            has_concurrency: same(&self.has_concurrency),
            is_configured: same(&self.is_configured),
            changing: Mutex::new(slots),
            bounds: self.bounds,
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

    /// Rejects an operation that would take a slot without giving it back.
    #[cold]
    pub(crate) fn refuse_unreserved(&self, id: PolicyId, action: Action) -> Result<(), Error> {
        self.policy_of(id).map_or(Ok(()), |policy| refuse_unreserved(&policy, action))
    }

    /// Rejects an operation on a reservation where the policy cannot have one.
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
        if let Some(id) = self.find_in(&policies, name) {
            return Ok(id);
        }
        match name.filter(|text| Policy::is_quotas(text) && !policies.closed) {
            Some(quotas) => self.add_one_off(quotas, None, store),
            None => Err(self.refusal(&policies, name)),
        }
    }

    /// The id of a policy that a request may name.
    #[inline(never)]
    pub(crate) fn find(&self, name: Option<&str>) -> Option<PolicyId> {
        self.find_in(&self.policies.load(), name)
    }

    #[inline]
    fn find_in(&self, policies: &Policies, name: Option<&str>) -> Option<PolicyId> {
        if policies.closed {
            return None;
        }
        let Some(name) = name else {
            return policies.named.first().copied().filter(|_| policies.named.len() == 1);
        };
        // No name of a policy is written like quotas.
        if let Some(id) = policies.ids.get(name).filter(|_| !Policy::is_quotas(name)) {
            return Some(*id);
        }
        self.texts.with(name, |known| {
            known.touch();
            known.id
        })
    }

    /// The policy with this name, which a closed limiter still has.
    pub(crate) fn policy(&self, name: &str) -> Option<Policy> {
        let id = self.policies.load().ids.get(name).copied();
        self.policy_of(id.or_else(|| self.texts.with(name, |known| known.id))?)
    }

    /// The policy with this name, the only policy, or the policy of these quotas in this scope. It stays.
    pub(crate) fn policy_for(
        &self,
        name: Option<&str>,
        scope: Option<&str>,
        store: &Store,
    ) -> Result<Policy, Error> {
        let policy = self.policy_in_request(name, scope, store)?;
        if let Some(known) = self.known.named(policy.name()) {
            known.stays.store(true, Ordering::Relaxed);
        }
        Ok(policy)
    }

    /// As [`policy_for`](Self::policy_for), but quotas may be forgotten when no request has named them for a while.
    pub(crate) fn policy_in_request(
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
        self.known.load(id).as_ref().map(|known| known.policy.clone())
    }

    /// Ensures that requests can name a policy that this limiter has made of quotas: it may have been forgotten.
    pub(crate) fn keep(&self, policy: &Policy, store: &Store) -> Result<(), Error> {
        if self.find(Some(policy.name())).is_some() {
            return Ok(());
        }
        self.check_open()?;
        self.put(policy, Some(policy.name()), PolicyOptions::default(), store).map(drop)
    }

    /// Keeps a policy known for as long as the result lives; `None` for one that stays in any case.
    pub(crate) fn hold(&self, id: PolicyId) -> Option<HeldPolicy> {
        if id.index() < MAX_COUNTED {
            return None;
        }
        self.known.get(id).map(HeldPolicy::new)
    }

    /// The result of `of` for a policy, or the default for an unknown one.
    pub(crate) fn with_policy<T: Default>(&self, id: PolicyId, of: impl FnOnce(&Policy) -> T) -> T {
        self.known.load(id).as_ref().map(|known| of(&known.policy)).unwrap_or_default()
    }

    /// All policies in the order of their ids, and whether requests may still name them.
    pub(crate) fn listed(&self) -> Vec<(PolicyId, Policy, bool)> {
        let policies = self.policies.load();
        let is_known = |known: &Known| {
            let named = policies.ids.get(known.name()).copied();
            named.or_else(|| self.texts.with(known.name(), |text| text.id)) == Some(known.id)
        };
        let listed = self.known.all().into_iter();
        listed.map(|known| (known.id, known.policy.clone(), is_known(&known))).collect()
    }

    /// All policies in the order of their ids.
    pub(crate) fn policies(&self) -> Vec<(PolicyId, Policy)> {
        self.known.all().iter().map(|known| (known.id, known.policy.clone())).collect()
    }

    /// Adds or changes a policy, in the store before a request can use it.
    pub(crate) fn set(
        &self,
        policy: &Policy,
        options: PolicyOptions,
        store: &Store,
    ) -> Result<PolicyId, Error> {
        self.put(policy, None, options, store)
    }

    /// Registers a policy of a configuration, or changes it.
    pub(crate) fn set_configured(
        &self,
        policy: &Policy,
        options: PolicyOptions,
        store: &Store,
    ) -> Result<PolicyId, Error> {
        let mut slots = self.changing.lock();
        self.is_configured.store(true, Ordering::Release);
        let mut policies = Policies::clone(&self.policies.load());
        let name = policy.name();
        let id = if let Some(id) = policies.configured.get(name).copied() {
            self.register(id, policy, options, store);
            id
        } else {
            if policies.ids.contains_key(name) || self.texts.with(name, |_| ()).is_some() {
                return Err(Error::invalid_argument(format!(
                    "policy {name} is in the configuration and in the program: give one of them another name"
                )));
            }
            if policies.named.len().max(policies.configured.len()) >= MAX_POLICIES {
                return Err(too_many_policies());
            }
            let id = slots.take()?;
            self.register(id, policy, options, store);
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

    /// Announces that a configuration will register policies: until then no name is known.
    pub(crate) fn await_configuration(&self) {
        self.is_configured.store(true, Ordering::Release);
    }

    /// Whether a configuration has registered policies, so that a name alone does not determine what decides.
    #[inline]
    pub(crate) fn is_configured(&self) -> bool {
        self.is_configured.load(Ordering::Acquire)
    }

    /// Registers a policy's quotas with the store, before a request can use them.
    fn register(&self, id: PolicyId, policy: &Policy, options: PolicyOptions, store: &Store) -> Arc<Known> {
        self.near.set(id, policy);
        let known = Arc::new(Known::new(id, policy));
        self.known.set(Arc::clone(&known));
        store.set_policy(id, policy, options);
        known
    }

    fn publish(&self, policies: Policies) {
        let is_plain = !policies.closed && !self.is_configured();
        self.by_name.store(is_plain, Ordering::Release);
        self.by_none.store(policies.named == [PolicyId(0)] && is_plain, Ordering::Release);
        self.policies.store(Arc::new(policies));
    }

    /// Rejects all further requests. Returns whether the registry was open.
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
        // A policy with a scope is found by its name alone.
        let text = if scope.is_none() { quotas } else { policy.name() };
        self.put(&policy, Some(text), PolicyOptions::default(), store)
    }

    /// `quotas` is the text of a policy whose name is made of its quotas, which therefore never change.
    fn put(
        &self,
        policy: &Policy,
        quotas: Option<&str>,
        options: PolicyOptions,
        store: &Store,
    ) -> Result<PolicyId, Error> {
        let mut slots = self.changing.lock();
        let policies = self.policies.load_full();
        let name = policy.name();
        let known = policies.ids.get(name).and_then(|id| self.known.get(*id));
        let known = known.or_else(|| self.texts.get(name));
        let counts_slots = policy.quotas().iter().any(|quota| !quota.algorithm().is_rate());
        if counts_slots {
            self.has_concurrency.store(true, Ordering::Release);
        }
        let Some(text) = quotas else {
            if known.is_none() && policies.named.len() >= MAX_POLICIES {
                return Err(too_many_policies());
            }
            let id = match known {
                Some(known) => {
                    known.stays.store(true, Ordering::Relaxed);
                    if known.policy != *policy {
                        self.register(known.id, policy, options, store);
                    }
                    known.id
                }
                None => self.add(policy, options, &mut slots, store)?.id,
            };
            let mut policies = Policies::clone(&policies);
            policies.ids.insert(name.into(), id);
            if !policies.named.contains(&id) {
                policies.named.push(id);
            }
            self.publish(policies);
            return Ok(id);
        };
        let known = match known {
            Some(known) if known.policy == *policy => known,
            Some(_) => {
                return Err(Error::invalid_argument(format!(
                    "a policy with other quotas is named {name}: give that one another name"
                )));
            }
            None => {
                self.forget_unused(&mut slots, store);
                let known = self.add(policy, options, &mut slots, store)?;
                if known.id.index() >= MAX_COUNTED {
                    slots.texts.push_back(UnusedText { known: Arc::clone(&known), since: monotonic::now() });
                }
                known
            }
        };
        known.touch();
        for name in [name, text] {
            let mut texts = known.texts.lock();
            // A text that is not kept is parsed again for each request.
            if texts.len() < MAX_TEXTS_OF_ONE && !texts.iter().any(|known| **known == *name) {
                let name: Arc<str> = name.into();
                texts.push(Arc::clone(&name));
                self.texts.set(name, Arc::clone(&known));
            }
        }
        Ok(known.id)
    }

    /// Allocates an id for a policy.
    fn add(
        &self,
        policy: &Policy,
        options: PolicyOptions,
        slots: &mut Slots,
        store: &Store,
    ) -> Result<Arc<Known>, Error> {
        let id = slots.take()?;
        let known = self.register(id, policy, options, store);
        if let Some(name) = self.few.get(id.index()) {
            name.get_or_init(|| policy.name().into());
        }
        Ok(known)
    }

    /// Forgets quotas as text that were not used for a while: a few for each new text, so that the time for one does
    /// not grow with their number.
    fn forget_unused(&self, slots: &mut Slots, store: &Store) {
        let TextBounds { most, idle, in_flight } = self.bounds;
        let in_flight = in_flight + 2 * store.deadline();
        let now = monotonic::now();
        for _ in 0..INSPECTED {
            let count = slots.texts.len();
            let wait = if count >= most { in_flight } else { idle.max(in_flight) };
            let is_due = |text: &mut UnusedText| now.saturating_duration_since(text.since) >= wait;
            let Some(UnusedText { known, .. }) = slots.texts.pop_front_if(is_due) else { return };
            if known.stays.load(Ordering::Relaxed) {
                continue;
            }
            let is_used = known.used.swap(false, Ordering::Relaxed) || Arc::strong_count(&known.held) > 1;
            if is_used || (count < 2 * most && store.has_only_states(known.id)) {
                slots.texts.push_back(UnusedText { known, since: now });
                continue;
            }
            for text in &*known.texts.lock() {
                self.texts.remove(text);
            }
            self.known.forget(known.id);
            store.forget_policy(known.id);
            slots.free.push_back(known.id.slot());
        }
    }

    #[cold]
    fn refusal(&self, policies: &Policies, name: Option<&str>) -> Error {
        if policies.closed {
            return closed();
        }
        let names = policies.named.iter().take(10).filter_map(|id| self.policy_of(*id));
        let shown = names.map(|policy| policy.name().to_owned()).collect::<Vec<_>>().join(", ");
        let has = match policies.named.len() {
            0 => "none: name quotas, such as 100/minute".to_owned(),
            1..=10 => shown,
            _ => format!("{shown}, ..."),
        };
        let read = match name {
            Some(name) => format!("policy {} is not known", excerpt(name)),
            None if policies.named.is_empty() => "no policy is named".to_owned(),
            None => "no policy is named and there are several".to_owned(),
        };
        Error::invalid_argument(format!("{read}: this limiter has {has}"))
    }
}

/// Rejects an operation that would take a slot without giving it back.
pub(crate) fn refuse_unreserved(policy: &Policy, action: Action) -> Result<(), Error> {
    let Action::Apply(Operation::Check | Operation::Take) = action else { return Ok(()) };
    match policy.quotas().iter().find(|quota| !quota.algorithm().is_rate()) {
        None => Ok(()),
        Some(quota) => Err(Error::invalid_argument(format!(
            "policy {} has {quota}, which is only ever reserved: use reserve, which frees the slot",
            policy.name()
        ))),
    }
}

/// Rejects an operation on a reservation where the policy cannot have one.
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

fn too_many_policies() -> Error {
    Error::invalid_argument(format!("a limiter has at most {MAX_POLICIES} policies"))
}

#[cfg(test)]
mod tests;
