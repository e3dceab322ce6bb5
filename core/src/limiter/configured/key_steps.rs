//! The steps of an operation on a key of a configured policy: before the store, at the store and after it.
//!
//! Before the store, the configuration may answer itself: the policy is off, or a list names the key. Otherwise the
//! effective quotas of the key go to the store with the request. After the store, the pool of an elastic policy may
//! admit what the policy denies, and a policy in shadow admits what is still denied.

use crate::limiter::configured::in_force::InForce;
use crate::limiter::operations::headroom_of;
use crate::limiter::registry::{refuse_reserved, refuse_unreserved};
use crate::limiter::{CHECK, KeyCall, Limiter, PEEK, RESERVE};
use polylimit_document::effective::EffectiveQuotas;
use polylimit_document::model::Mode;
use polylimit_rules::decision::{Cause, Decision, Source};
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::reservation::list::Hold;
use polylimit_rules::transition::Operation;
use polylimit_store::charge::{Action, Charge, StoreAnswer, Wait};

/// An operation on a key of a configured policy. Everything about it that depends on the time was decided at `now_us`, so that all steps
/// agree on the effective quotas and on what the lists say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfiguredCall<'a> {
    /// The policy's place in the configuration.
    pub(crate) policy: usize,
    pub(crate) key: &'a [u8],
    pub(crate) action: Action,
    pub(crate) cost: u64,
    /// Percent of each capacity that is kept for others.
    pub(crate) headroom: u8,
    /// The reservation, for operations on one.
    pub(crate) hold: Option<&'a Hold>,
    /// The effective quotas of the key.
    pub(crate) quotas: EffectiveQuotas,
    pub(crate) now_us: u64,
}

/// The outcome of the steps before the store.
#[derive(Clone, Debug)]
pub(crate) enum Opening<'a> {
    /// The configuration answers.
    Answered(StoreAnswer),
    Asked(StoreCall<'a>),
}

impl<'a> Opening<'a> {
    /// The opening for a policy of the program.
    pub(crate) fn of_program(charge: Charge<'a>) -> Self {
        Self::Asked(StoreCall { charge, compared: None })
    }
}

/// A charge for the store, and whether the candidate's quotas decide it as well, for comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreCall<'a> {
    pub(crate) charge: Charge<'a>,
    /// The policy whose candidate decides as well.
    pub(crate) compared: Option<usize>,
}

impl<'a> StoreCall<'a> {
    /// The same check with the candidate's quotas.
    pub(crate) fn comparison(&self, in_force: &InForce) -> Option<Charge<'a>> {
        let id = in_force.policy(self.compared?).comparison?;
        Some(Charge { id, effective: None, ..self.charge })
    }
}

impl InForce {
    /// The operation on a key of a configured policy; `None` for a policy that the configuration does not have.
    ///
    /// # Errors
    /// Invalid argument: what follows the plan is no calendar of a key.
    pub(crate) fn call<'a>(
        &self,
        call: &'a KeyCall<'a>,
        now_us: u64,
    ) -> Result<Option<ConfiguredCall<'a>>, Error> {
        let request = &call.request;
        let policy = match request.policy {
            Some(name) => self.configuration.policy_index(name),
            None => Some(0).filter(|_| self.configuration.policies().len() == 1),
        };
        let Some(policy) = policy else { return Ok(None) };
        let plan = request.plan.map(str::as_bytes);
        Ok(Some(ConfiguredCall {
            policy,
            key: request.key,
            action: call.action,
            cost: request.cost,
            headroom: headroom_of(call.action, request),
            hold: call.hold.as_ref(),
            quotas: self.configuration.effective(policy, request.key, plan, None, now_us)?,
            now_us,
        }))
    }

    /// The operation on the pool of an elastic policy that may admit what this call is denied.
    pub(crate) fn pool_call(&self, call: ConfiguredCall<'_>) -> Option<ConfiguredCall<'_>> {
        let elastic = self.document(call.policy).elastic.as_ref()?;
        let ConfiguredCall { action, cost, now_us, .. } = call;
        Some(ConfiguredCall {
            policy: elastic.pool,
            key: &elastic.key,
            action,
            cost,
            headroom: elastic.headroom,
            hold: None,
            // The override of a pool's key may have a calendar of its own, which was checked with the document.
            quotas: self.configuration.effective(elastic.pool, &elastic.key, None, None, now_us).ok()?,
            now_us,
        })
    }

    /// The policy of a call, with its effective quotas.
    pub(crate) fn effective(&self, call: ConfiguredCall<'_>) -> &Policy {
        self.quotas(call.policy, call.quotas.set)
    }

    /// Counts how the candidate of a policy compares, where the store made both decisions.
    pub(crate) fn count_comparison(&self, policy: usize, live: &Decision, candidate: &Decision) {
        if live.source == Source::Store && candidate.source == Source::Store {
            self.policy(policy).counters.count(live.allowed, candidate.allowed);
        }
    }

    fn mode(&self, policy: usize) -> Mode {
        self.document(policy).mode
    }

    /// The answer to an operation on a key of a policy that may be in shadow: then nothing is denied.
    pub(crate) fn shadow(
        &self,
        call: ConfiguredCall<'_>,
        (mut decision, mut spent): StoreAnswer,
    ) -> StoreAnswer {
        if self.mode(call.policy) == Mode::Shadow {
            match call.action {
                Action::Apply(Operation::Take) => spent = call.cost,
                Action::Apply(Operation::Check | Operation::Peek | Operation::Reserve)
                    if !decision.allowed =>
                {
                    (decision.allowed, decision.shadowed) = (true, true);
                }
                _ => {}
            }
        }
        (decision, spent)
    }

    /// The answer to a request that lacks a required key: step 4, before the lists of keys.
    pub(crate) fn refuse_missing_key(&self, call: ConfiguredCall<'_>) -> StoreAnswer {
        let (mode, quotas) = (self.mode(call.policy), self.effective(call));
        if !self.configuration.document().enabled || mode == Mode::Off {
            return admitted(quotas, call, Cause::Off);
        }
        denied(quotas, call, Cause::MissingKey, Decision::NEVER, mode)
    }
}

impl Limiter {
    /// The steps before the store.
    pub(crate) fn open<'a>(
        &self,
        in_force: &'a InForce,
        call: ConfiguredCall<'a>,
    ) -> Result<Opening<'a>, Error> {
        let ConfiguredCall { policy, key, action, cost, headroom, hold, quotas: choice, now_us } = call;
        let configuration = &in_force.configuration;
        let quotas = in_force.effective(call);
        let effective = || in_force.prepared(policy, choice.set, self.shared().store());
        if action == RESERVE {
            refuse_reserved(quotas, effective().is_none())?;
        }
        refuse_unreserved(quotas, action)?;
        let mode = in_force.mode(policy);
        let is_off = !configuration.document().enabled || mode == Mode::Off;
        if is_off && !matches!(action, Action::Reset | Action::Apply(Operation::Block)) {
            return Ok(Opening::Answered(admitted(quotas, call, Cause::Off)));
        }
        if let Action::Apply(Operation::Check | Operation::Peek | Operation::Reserve | Operation::Take) =
            action
            && let Some(verdict) = configuration.key_verdict(policy, key, now_us)
        {
            return Ok(Opening::Answered(if verdict.denies {
                let wait_us = verdict.until_us.map_or(Decision::NEVER, |until_us| until_us - now_us);
                denied(quotas, call, Cause::DenyList, wait_us, mode)
            } else {
                admitted(quotas, call, Cause::AllowList)
            }));
        }
        let compared = Some(policy).filter(|_| choice.compare && action == CHECK);
        let charge = Charge {
            headroom,
            hold,
            effective: effective(),
            decides: mode != Mode::Shadow,
            uses_caches: compared.is_none(),
            ..Charge::new(in_force.policy(policy).id, key, action, cost)
        };
        Ok(Opening::Asked(StoreCall { charge, compared }))
    }

    /// Calls the caches and the store, and counts how candidates compare.
    pub(crate) async fn ask_each(
        &self,
        in_force: &InForce,
        asked: &[StoreCall<'_>],
        wait: Wait,
    ) -> Result<Vec<StoreAnswer>, Error> {
        let shared = self.shared();
        let cached: Vec<_> = asked.iter().map(|call| shared.store.ask_caches(call.charge)).collect();
        let uncached = asked.iter().zip(&cached).filter(|(_, cached)| cached.is_none());
        let mut charges: Vec<Charge<'_>> = uncached.map(|(call, _)| call.charge).collect();
        charges.extend(asked.iter().filter_map(|call| call.comparison(in_force)));
        let mut answers = self.start_each(&charges, wait).await?.into_iter();
        let live: Vec<StoreAnswer> = cached
            .into_iter()
            .map(|cached| cached.or_else(|| answers.next()).ok_or_else(Error::no_answer))
            .collect::<Result<_, _>>()?;
        for (call, answer) in asked.iter().zip(&live) {
            shared.answered(call.charge, answer);
            let Some(policy) = call.compared else { continue };
            let Some((candidate, _)) = call.comparison(in_force).and_then(|_| answers.next()) else {
                continue;
            };
            in_force.count_comparison(policy, &answer.0, &candidate);
        }
        Ok(live)
    }

    /// The steps after the store. Also returns the units that the pool has to be charged for.
    pub(crate) async fn close_call(
        &self,
        in_force: &InForce,
        call: ConfiguredCall<'_>,
        (mut decision, spent): StoreAnswer,
        wait: Wait,
    ) -> Result<(StoreAnswer, u64), Error> {
        let mut owed = 0;
        if let Some(elastic) = &in_force.document(call.policy).elastic
            && matches!(call.action, CHECK | PEEK)
        {
            if decision.allowed && call.action == CHECK && elastic.counts_all {
                owed = spent;
            }
            if may_use_pool(&decision)
                && let Some(from_pool) = in_force.pool_call(call)
            {
                let (admission, _) = self.ask_pool(in_force, from_pool, wait).await?;
                decision = with_pool(decision, &admission);
            }
        }
        Ok((in_force.shadow(call, (decision, spent)), owed))
    }
}

/// Whether the pool of an elastic policy may admit a request that the policy denies: one that never fits into the
/// policy does not fit into its share of the pool either.
pub(crate) fn may_use_pool(decision: &Decision) -> bool {
    !decision.allowed && decision.cause == Some(Cause::Quota) && decision.wait_us != Decision::NEVER
}

/// The denial of an elastic policy with the decision of its pool.
pub(crate) fn with_pool(mut denial: Decision, admission: &Decision) -> Decision {
    let waits_us = denial.waits_us();
    if admission.allowed {
        (denial.allowed, denial.elastic) = (true, true);
        (denial.wait_us, denial.cause) = (0, None);
    } else {
        denial.wait_us = denial.wait_us.min(admission.wait_us);
    }
    // The verdicts of the policy's own quotas stay.
    denial.with_waits(&waits_us)
}

/// An answer without the store that admits everything.
fn admitted(quotas: &Policy, call: ConfiguredCall<'_>, cause: Cause) -> StoreAnswer {
    let spent = if call.action == Action::Apply(Operation::Take) { call.cost } else { 0 };
    (Decision::without_store(quotas, Some(cause), None), spent)
}

/// A denial without the store, which a policy in shadow admits.
fn denied(quotas: &Policy, call: ConfiguredCall<'_>, cause: Cause, wait_us: u64, mode: Mode) -> StoreAnswer {
    let shadowed = mode == Mode::Shadow;
    let spent = if shadowed && call.action == Action::Apply(Operation::Take) { call.cost } else { 0 };
    let decision = Decision::without_store(quotas, Some(cause), Some(wait_us));
    (Decision { allowed: shadowed, shadowed, ..decision }, spent)
}
