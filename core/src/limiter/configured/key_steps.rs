//! The steps of an operation on a key of a configured policy: before the store, at the store and after it.
//!
//! Before the store, the configuration may answer itself: the policy is off, or a list names the key. Otherwise the numbers of
//! the key go to the store with the request. After the store, the pool of an elastic policy may admit what the policy denies,
//! and a policy in shadow admits what is still denied.

use crate::configuration::model::Mode;
use crate::error::Error;
use crate::limiter::configured::in_force::InForce;
use crate::limiter::configured::wait::Wait;
use crate::limiter::operations::headroom_of;
use crate::limiter::registry::{refuse_reserved, refuse_unreserved};
use crate::limiter::{CHECK, KeyCall, Limiter, PEEK, RESERVE};
use crate::rules::decision::{Cause, Decision, Source};
use crate::rules::policy::Policy;
use crate::rules::reservation::list::Hold;
use crate::rules::transition::Operation;
use crate::store::request::{Action, Answer, StoreRequest};

/// An operation on a key of a configured policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfiguredCall<'a> {
    /// The policy's place in the configuration.
    pub(crate) policy: usize,
    pub(crate) key: &'a [u8],
    pub(crate) action: Action,
    pub(crate) cost: u64,
    /// Percent of each capacity that is kept for others.
    pub(crate) headroom: u8,
    pub(crate) plan: Option<&'a [u8]>,
    /// The reservation, for operations on one.
    pub(crate) hold: Option<&'a Hold>,
}

/// What becomes of an operation before the store is asked.
#[derive(Clone, Debug)]
pub(crate) enum Opening<'a> {
    /// The configuration answers.
    Answered(Answer),
    Asked(StoreCall<'a>),
}

impl<'a> Opening<'a> {
    /// That of a policy of the program.
    pub(crate) fn of_program(request: StoreRequest<'a>) -> Self {
        Self::Asked(StoreCall { request, set: 0, compared: None })
    }

    /// The set of numbers that decides.
    pub(crate) fn set(&self) -> u32 {
        match self {
            Self::Answered(_) => 0,
            Self::Asked(asked) => asked.set,
        }
    }
}

/// A request to the store, and whether the candidate's numbers are asked as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreCall<'a> {
    pub(crate) request: StoreRequest<'a>,
    /// The set of numbers that decides.
    pub(crate) set: u32,
    /// The policy whose candidate is asked as well.
    pub(crate) compared: Option<usize>,
}

impl<'a> StoreCall<'a> {
    /// The same check by the candidate's numbers.
    pub(crate) fn comparison(&self, in_force: &InForce) -> Option<StoreRequest<'a>> {
        let id = in_force.policy(self.compared?).comparison?;
        Some(StoreRequest { id, numbers: None, ..self.request })
    }
}

impl InForce {
    /// The operation on a key of a configured policy; `None` for a policy that the configuration does not have.
    pub(crate) fn call<'a>(&self, call: &'a KeyCall<'a>) -> Option<ConfiguredCall<'a>> {
        let request = &call.request;
        let policy = match request.policy {
            Some(name) => self.configuration.policy_index(name)?,
            None if self.configuration.policies().len() == 1 => 0,
            None => return None,
        };
        Some(ConfiguredCall {
            policy,
            key: request.key,
            action: call.action,
            cost: request.cost,
            headroom: headroom_of(call.action, request),
            plan: request.plan.map(str::as_bytes),
            hold: call.hold.as_ref(),
        })
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
    pub(crate) fn shadow(&self, call: ConfiguredCall<'_>, (mut decision, mut spent): Answer) -> Answer {
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
}

impl Limiter {
    /// The steps before the store.
    pub(crate) fn open<'a>(
        &self,
        in_force: &'a InForce,
        call: ConfiguredCall<'a>,
    ) -> Result<Opening<'a>, Error> {
        let ConfiguredCall { policy, key, action, cost, headroom, plan, hold } = call;
        let shared = self.shared();
        let now_us = shared.store.clock().now_us();
        let configuration = &in_force.configuration;
        let choice = configuration.numbers(policy, key, plan, now_us);
        let quotas = in_force.quotas(policy, choice.set);
        if action == RESERVE {
            refuse_reserved(quotas, in_force.numbers(policy, choice.set, &shared.store).is_none())?;
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
        let numbers = in_force.numbers(policy, choice.set, &shared.store);
        let request =
            StoreRequest { id: in_force.policy(policy).id, key, action, cost, headroom, hold, numbers };
        let compared = Some(policy).filter(|_| choice.compare && action == CHECK);
        Ok(Opening::Asked(StoreCall { request, set: choice.set, compared }))
    }

    /// The answer to a request whose key must not be missing and is: step 4, before the lists of keys.
    pub(crate) fn refuse_missing_key(&self, in_force: &InForce, call: ConfiguredCall<'_>) -> Answer {
        let (configuration, mode) = (&in_force.configuration, in_force.mode(call.policy));
        let now_us = self.shared().store.clock().now_us();
        let choice = configuration.numbers(call.policy, call.key, call.plan, now_us);
        let quotas = in_force.quotas(call.policy, choice.set);
        if !configuration.document().enabled || mode == Mode::Off {
            return admitted(quotas, call, Cause::Off);
        }
        denied(quotas, call, Cause::MissingKey, Decision::NEVER, mode)
    }

    /// Asks the caches and the store, and counts how candidates compare.
    pub(crate) async fn ask_each(
        &self,
        in_force: &InForce,
        asked: &[StoreCall<'_>],
        wait: Wait,
    ) -> Result<Vec<Answer>, Error> {
        let shared = self.shared();
        let is_cacheable = |call: &StoreCall<'_>| call.request.action == CHECK && call.compared.is_none();
        let cached: Vec<Option<Answer>> = asked
            .iter()
            .map(|call| is_cacheable(call).then(|| shared.store.ask_caches(call.request)).flatten())
            .collect();
        let uncached = || asked.iter().zip(&cached).filter(|(_, cached)| cached.is_none());
        let mut requests: Vec<StoreRequest<'_>> = uncached().map(|(call, _)| call.request).collect();
        requests.extend(asked.iter().filter_map(|call| call.comparison(in_force)));
        let mut answers = self.ask_store_each(&requests, wait).await?.into_iter();
        let live: Vec<Answer> = cached
            .into_iter()
            .map(|cached| cached.or_else(|| answers.next()).ok_or_else(Error::no_answer))
            .collect::<Result<_, _>>()?;
        for (call, answer) in asked.iter().zip(&live) {
            shared.answered(call.request, answer);
            let Some(policy) = call.compared else { continue };
            let Some((candidate, _)) = call.comparison(in_force).and_then(|_| answers.next()) else {
                continue;
            };
            in_force.count_comparison(policy, &answer.0, &candidate);
        }
        Ok(live)
    }

    pub(crate) async fn ask_store_each(
        &self,
        requests: &[StoreRequest<'_>],
        wait: Wait,
    ) -> Result<Vec<Answer>, Error> {
        let store = self.shared().store();
        match (requests, wait) {
            ([], _) => Ok(Vec::new()),
            ([request], Wait::Await) => Ok(vec![store.ask(*request).await?]),
            ([request], Wait::Block) => Ok(vec![store.ask_blocking(*request)?]),
            (_, Wait::Await) => store.ask_many(requests).await,
            (_, Wait::Block) => store.ask_many_blocking(requests),
        }
    }

    /// The steps after the store. Also returns the units that the pool has to be charged for.
    pub(crate) async fn close_call(
        &self,
        in_force: &InForce,
        call: ConfiguredCall<'_>,
        (mut decision, spent): Answer,
        wait: Wait,
    ) -> Result<(Answer, u64), Error> {
        let mut owed = 0;
        if let Some(elastic) = &in_force.document(call.policy).elastic
            && matches!(call.action, CHECK | PEEK)
        {
            if decision.allowed && call.action == CHECK && elastic.counts_all {
                owed = spent;
            }
            if may_use_pool(&decision) {
                let from_pool = ConfiguredCall {
                    policy: elastic.pool,
                    key: &elastic.key,
                    headroom: elastic.headroom,
                    plan: None,
                    ..call
                };
                let (admission, _) = self.ask_pool(in_force, from_pool, wait).await?;
                decision = with_pool(decision, &admission);
            }
        }
        Ok((in_force.shadow(call, (decision, spent)), owed))
    }
}

/// Whether the pool of an elastic policy may admit what the policy denies: what never fits into the policy does not fit into its share
/// of the pool either.
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
fn admitted(quotas: &Policy, call: ConfiguredCall<'_>, cause: Cause) -> Answer {
    let spent = if call.action == Action::Apply(Operation::Take) { call.cost } else { 0 };
    (Decision::without_store(quotas, Some(cause), None), spent)
}

/// A denial without the store, which a policy in shadow admits.
fn denied(quotas: &Policy, call: ConfiguredCall<'_>, cause: Cause, wait_us: u64, mode: Mode) -> Answer {
    let shadowed = mode == Mode::Shadow;
    let spent = if shadowed && call.action == Action::Apply(Operation::Take) { call.cost } else { 0 };
    let decision = Decision::without_store(quotas, Some(cause), Some(wait_us));
    (Decision { allowed: shadowed, shadowed, ..decision }, spent)
}
