//! A configuration with its policies registered and their quotas prepared for the store.

use std::sync::{Arc, OnceLock};

use crate::limiter::configured::candidate_counts::{CandidateCounters, CandidateCounts};
use crate::limiter::registry::Registry;
use crate::store::Store;
use polylimit_document::compiled::Configuration;
use polylimit_document::effective::QuotaSets;
use polylimit_document::model::DocumentPolicy;
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_store::charge::{PolicyId, PolicyOptions, PreparedQuotas};

#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) configuration: Configuration,
    policies: Box<[ConfiguredPolicy]>,
}

/// A policy of the configuration, as the store knows it.
#[derive(Debug)]
pub(crate) struct ConfiguredPolicy {
    pub(crate) id: PolicyId,
    /// The policy under which a candidate's checks are compared.
    pub(crate) comparison: Option<PolicyId>,
    pub(crate) counters: Arc<CandidateCounters>,
    options: PolicyOptions,
    /// Each set of quotas, prepared when it is first used; none for a leased policy, whose only quotas are its own.
    prepared: Box<[OnceLock<PreparedQuotas>]>,
    /// As `prepared`, of the sets with calendars of keys; allocated for the first one.
    prepared_of_keys: OnceLock<Box<[OnceLock<Box<PreparedQuotas>>]>>,
    /// The sets whose states have keys of their own.
    others: Box<[Policy]>,
}

impl InForce {
    /// Registers the policies of a configuration. Prepared quotas and counts are kept where they still apply.
    pub(crate) fn new(
        configuration: Configuration,
        before: Option<&Self>,
        registry: &Registry,
        store: &Store,
    ) -> Result<Self, Error> {
        let mut policies = Vec::with_capacity(configuration.policies().len());
        let mut names = Vec::new();
        for policy in configuration.policies() {
            let document = policy.document;
            let options = PolicyOptions {
                outage: document.outage,
                lease: document.lease,
                has_quotas_of_keys: document.lease.is_none(),
            };
            let id = registry.set_configured(&policy.sets[0], options, store)?;
            names.push(policy.sets[0].name().to_owned());
            let comparison = match &document.candidate {
                Some(candidate) if candidate.compare > 0 => {
                    names.push(candidate.comparison.name().to_owned());
                    let options = PolicyOptions { lease: None, has_quotas_of_keys: false, ..options };
                    Some(registry.set_configured(&candidate.comparison, options, store)?)
                }
                _ => None,
            };
            let earlier = before.and_then(|before| before.named(policy.sets[0].name()));
            let prepared = if document.lease.is_some() { &[][..] } else { policy.sets };
            let prepared = prepared.iter().map(|set| {
                let known = earlier.and_then(|(old, sets)| old.prepared_as(set, sets, options));
                known.map_or_else(OnceLock::new, OnceLock::from)
            });
            let same_counts = |(old, sets): &(&ConfiguredPolicy, &[Policy])| {
                old.comparison == comparison && sets.first() == policy.sets.first()
            };
            policies.push(ConfiguredPolicy {
                id,
                comparison,
                counters: earlier
                    .filter(same_counts)
                    .map(|(old, _)| Arc::clone(&old.counters))
                    .unwrap_or_default(),
                options,
                prepared: prepared.collect(),
                prepared_of_keys: OnceLock::new(),
                others: with_keys_of_their_own(policy.sets),
            });
        }
        registry.retain_configured(&names);
        Ok(Self { configuration, policies: policies.into() })
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = PolicyId> {
        self.policies.iter().map(|policy| policy.id)
    }

    /// The policies under which candidates are compared.
    pub(crate) fn comparisons(&self) -> impl Iterator<Item = PolicyId> {
        self.policies.iter().filter_map(|policy| policy.comparison)
    }

    /// How the candidates compare, with the names of their policies.
    pub(crate) fn candidate_counts(&self) -> impl Iterator<Item = (&str, CandidateCounts)> {
        let policies = self.policies.iter().enumerate();
        let with_candidate = policies.filter(|(at, _)| self.document(*at).candidate.is_some());
        with_candidate.map(|(at, policy)| (self.quotas(at, 0).name(), policy.counters.counts()))
    }

    pub(crate) fn policy(&self, index: usize) -> &ConfiguredPolicy {
        &self.policies[index]
    }

    /// The quotas of a set.
    pub(crate) fn quotas(&self, index: usize, set: u32) -> &Policy {
        self.configuration.set(index, set)
    }

    /// The policy as the document defines it.
    pub(crate) fn document(&self, index: usize) -> &DocumentPolicy {
        self.configuration.policy(index).document
    }

    /// The quotas of a set as the store has prepared them; `None` for a leased policy.
    pub(crate) fn prepared(&self, index: usize, set: u32, store: &Store) -> Option<&PreparedQuotas> {
        let policy = &self.policies[index];
        let prepare =
            || store.prepare_quotas(policy.id, self.quotas(index, set), &policy.others, policy.options);
        if policy.prepared.is_empty() {
            return None;
        }
        let Some(of_key) = (set as usize).checked_sub(policy.prepared.len()) else {
            return Some(policy.prepared[set as usize].get_or_init(prepare));
        };
        let of_keys = policy
            .prepared_of_keys
            .get_or_init(|| (0..QuotaSets::MAX_SETS_OF_KEYS).map(|_| OnceLock::new()).collect());
        Some(of_keys.get(of_key)?.get_or_init(|| Box::new(prepare())))
    }

    /// The effective quotas of a key of a registered policy; `None` for a policy that the configuration does not have.
    pub(crate) fn quotas_of(
        &self,
        id: PolicyId,
        key: &[u8],
        plan: Option<&str>,
        store: &Store,
    ) -> Option<&PreparedQuotas> {
        let index = self.policies.iter().position(|policy| policy.id == id)?;
        let plan = plan.map(str::as_bytes);
        // A calendar too many was refused when the key was decided.
        let choice = self.configuration.effective(index, key, plan, None, store.clock().now_us()).ok()?;
        self.prepared(index, choice.set, store)
    }

    fn named(&self, name: &str) -> Option<(&ConfiguredPolicy, &[Policy])> {
        let index = self.configuration.policy_index(name)?;
        Some((&self.policies[index], self.configuration.policy(index).sets))
    }
}

impl ConfiguredPolicy {
    /// The quotas of a set, if they are already prepared under the same options.
    fn prepared_as(&self, set: &Policy, sets: &[Policy], options: PolicyOptions) -> Option<PreparedQuotas> {
        let prepared = sets.iter().position(|known| known == set).and_then(|at| self.prepared.get(at));
        prepared.and_then(OnceLock::get).filter(|_| options.outage == self.options.outage).cloned()
    }
}

/// The sets of which each has a sliding log with a period that no set before it has: logs have keys of their own.
fn with_keys_of_their_own(sets: &[Policy]) -> Box<[Policy]> {
    let mut periods = Vec::new();
    let mut has_new_log = |set: &&Policy| {
        let logs = set.quotas().iter().filter(|quota| quota.algorithm() == Algorithm::SlidingLog);
        let new: Vec<_> = logs.map(Quota::period_us).filter(|period| !periods.contains(period)).collect();
        periods.extend_from_slice(&new);
        !new.is_empty()
    };
    sets.iter().filter(|set| has_new_log(set)).cloned().collect()
}
