//! Stores outside this crate: they keep states as bytes and know nothing about their meaning.

pub(crate) mod configuration;
mod transaction;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use smallvec::smallvec;

use self::configuration::StatesAndConfiguration;
use self::transaction::{Newer, Transaction};
use polylimit_rules::codec::States;
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::history::Change as Numbering;
use polylimit_rules::policy::Policy;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::{Charge, PolicyId, PolicyOptions, PreparedQuotas, StoreAnswers};
pub use polylimit_store::interface::{
    Change, ConfigurationStore, Decide, Load, Replace, Store, StoreError, StoredConfiguration, Update,
};
use polylimit_store::outage::Outage;
use polylimit_store::scan::{Look, LookRequest, StoredKey};
use polylimit_store::share::Ppm;
use polylimit_store::stats::{Counters, Stats};
use polylimit_store::stored_policy::{
    StoredPolicies, StoredPolicy, StoredQuotas, fallback_quotas, policy_of,
};
use polylimit_store_memory::fallback::Fallback;

/// A store outside this crate, with the policies that decide about its states.
#[derive(Debug)]
pub(crate) struct CustomStore {
    store: Arc<dyn Store>,
    clock: Clock,
    policies: StoredPolicies,
    outage: Fallback,
    counters: Counters,
    /// The error of the last transaction that failed.
    cause: ArcSwapOption<Error>,
}

impl CustomStore {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock, max_keys: usize) -> Self {
        Self {
            store,
            policies: StoredPolicies::new(Outage::default()),
            outage: Fallback::new(Ppm::ALL, clock.clone(), max_keys, fallback_quotas),
            clock,
            counters: Counters::default(),
            cause: ArcSwapOption::default(),
        }
    }

    pub(crate) fn after_fork(&self, policies: &[(PolicyId, Policy)]) -> Self {
        Self {
            store: self.store.after_fork(),
            clock: self.clock.clone(),
            policies: self.policies.after_fork(),
            outage: self.outage.after_fork(policies.iter().map(|(id, policy)| (*id, policy))),
            counters: Counters::default(),
            cause: ArcSwapOption::default(),
        }
    }

    /// The configuration in the same store.
    pub(crate) fn configuration(&self) -> Arc<dyn ConfigurationStore> {
        Arc::new(StatesAndConfiguration(Arc::clone(&self.store)))
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn place(&self) -> Arc<str> {
        self.store.place().into()
    }

    pub(crate) fn cause(&self) -> Option<Arc<str>> {
        self.cause.load().as_ref().map(|error| error.message().into())
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.read()
    }

    pub(crate) fn set_policy(&self, id: PolicyId, policy: &Policy, options: PolicyOptions) {
        self.policies.set(id, policy, options, self.clock.now_us());
        self.outage.set_policy(id, policy);
    }

    pub(crate) fn forget_policy(&self, id: PolicyId) {
        self.policies.forget(id);
        self.outage.forget_policy(id);
    }

    pub(crate) fn prepare_quotas(
        &self,
        id: PolicyId,
        policy: &Policy,
        others: &[Policy],
        options: PolicyOptions,
    ) -> PreparedQuotas {
        let outage = options.outage.unwrap_or(self.policies.outage);
        PreparedQuotas::new(StoredQuotas {
            policy: StoredPolicy::new(id, policy, Numbering::Now(others), outage),
            fallback: self.outage.prepare_quotas(id, policy),
        })
    }

    /// Drops the states of the fallback.
    pub(crate) fn close(&self) {
        self.outage.clear();
    }

    /// Checks that the store can run a transaction, with one that changes nothing.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let names = [b"\0ready".to_vec()];
        let keep: Decide<'_> = &mut |states| states.iter().map(|_| Change::Keep).collect();
        self.store.update(&names, keep).await.map_err(|error| self.unavailable(error))
    }

    /// Answers charges, each for a different key or policy: all are applied, or none.
    pub(crate) async fn start(&self, charges: &[Charge<'_>]) -> Result<StoreAnswers, Error> {
        if let [charge] = charges
            && let Some(answer) = self.outage.answer_made(*charge)
        {
            return Ok(smallvec![answer]);
        }
        let registered: Vec<_> = charges.iter().map(|charge| self.policies.get(charge.id)).collect();
        let mut of_policies = Vec::with_capacity(charges.len());
        for (charge, registered) in charges.iter().zip(&registered) {
            of_policies.push((policy_of(registered.as_deref(), charge.effective)?, *charge));
        }
        let reason = match self.outage.made_for(charges) {
            Some(reason) => reason,
            None => match self.decide(&of_policies).await? {
                Ok(answers) => return Ok(answers),
                Err(reason) => reason,
            },
        };
        let charges: Vec<_> = of_policies
            .iter()
            .map(|(policy, charge)| (policy.outage, policy.policy.quotas(), *charge))
            .collect();
        self.outage.start(&charges, reason)
    }

    /// Decides in a transaction. The inner `Err` is the reason for which the outage policies answer.
    async fn decide(
        &self,
        charges: &[(&StoredPolicy, Charge<'_>)],
    ) -> Result<Result<StoreAnswers, Degradation>, Error> {
        let transaction = Transaction::new(charges);
        let mut answers = None;
        let decide: Decide<'_> = &mut |states| {
            let (made, decided) = transaction.decide(states, &self.clock);
            answers = Some(decided);
            made
        };
        match self.store.update(transaction.names(), decide).await {
            Ok(()) => {
                if self.cause.load().is_some() {
                    self.cause.store(None);
                }
                let defect = || {
                    let message =
                        format!("the store {} has made a transaction without deciding", self.store.place());
                    Error::new(ErrorKind::StoreFailed, message)
                };
                match answers.ok_or_else(defect)?? {
                    Some(answers) => Ok(Ok(answers)),
                    None => Ok(Err(self.not_applied(charges, Degradation::NewerFormat))),
                }
            }
            Err(error) => {
                self.cause.store(Some(Arc::new(self.unavailable(error))));
                Ok(Err(self.not_applied(charges, Degradation::Unreachable)))
            }
        }
    }

    /// Counts charges that the outage policies answer.
    fn not_applied(&self, charges: &[(&StoredPolicy, Charge<'_>)], reason: Degradation) -> Degradation {
        for (policy, _) in charges {
            self.counters.not_applied.add(1);
            self.counters.answered_by(policy.outage);
        }
        reason
    }

    fn newer(&self) -> Error {
        let message = format!(
            "the store {} has a state that a newer version of polylimit has written: upgrade this process, or reset the key",
            self.store.place()
        );
        Error::new(ErrorKind::StoreFailed, message)
    }

    fn unavailable(&self, error: StoreError) -> Error {
        let message = format!("the store {} cannot be used: {error}", self.store.place());
        Error::new(ErrorKind::StoreUnavailable, message).caused_by_shared(error.into())
    }

    /// Reads the states of a key without changing them.
    pub(crate) async fn look(&self, request: LookRequest<'_>) -> Result<Look, Error> {
        let registered = self.policies.get(request.id);
        let policy = policy_of(registered.as_deref(), request.effective)?;
        // A custom store keeps no digests.
        let (StoredKey::Plain(key) | StoredKey::Digest(key)) = request.key;
        let names = [transaction::name(policy, key)];
        let mut found: Option<Result<(States, u64), Error>> = None;
        let look: Decide<'_> = &mut |states| {
            let now_us = self.clock.now_us();
            let state = states.first().and_then(Option::as_deref);
            let read = transaction::read(policy, state, now_us);
            found = Some(read.map(|read| (read.states, now_us)).map_err(|Newer| self.newer()));
            states.iter().map(|_| Change::Keep).collect()
        };
        self.store.update(&names, look).await.map_err(|error| self.unavailable(error))?;
        let (states, now_us) = found.ok_or_else(Error::no_answer)??;
        Ok(Look { states, now_us, degraded: None })
    }
}
