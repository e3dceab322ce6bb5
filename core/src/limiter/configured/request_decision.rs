//! The decision on a request by its attributes, in all six steps.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::limiter::configured::in_force::InForce;
use crate::limiter::configured::key_steps::{ConfiguredCall, Opening};
use crate::limiter::together::{Charged, Planned, hold_without_waiting};
use crate::limiter::{Admin, CHECK, Limiter, RESERVE, blocking};
use polylimit_document::key_calendar::plan_with;
use polylimit_document::matcher::{AppliedPolicies, AppliedPolicy, PolicyMatch};
use polylimit_document::meter::Meter;
use polylimit_document::model::Mode;
use polylimit_document::request::AttributeSource;
use polylimit_rules::decision::{Cause, Decision};
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::{Hold, ReservationTerms};
use polylimit_store::charge::{Wait, at_once};
use polylimit_store::scan::KeyName;

/// The decision on a request by the configuration's lists, rules and policies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a decision has to be looked at: a denied request must not proceed"]
pub struct RequestDecision {
    /// Whether the request may proceed.
    pub allowed: bool,
    /// Why it was denied: of several causes the first in the order of [`Cause`]; or why it was admitted without the store.
    pub cause: Option<Cause>,
    /// How long until the request would be admitted, in microseconds: the longest over the denials; 0 when allowed. `None`
    /// means never.
    pub retry_after_us: Option<u64>,
    /// The decisions of the policies that the rules apply, in their order; none when a list or a missing key decides.
    pub decisions: Vec<PolicyDecision>,
}

impl RequestDecision {
    /// The HTTP status of a denial: 400 for a missing key, 403 for a deny list, otherwise 429. `None` when allowed.
    pub fn status(&self) -> Option<u16> {
        match self.cause {
            _ if self.allowed => None,
            Some(Cause::MissingKey) => Some(400),
            Some(Cause::DenyList) => Some(403),
            _ => Some(429),
        }
    }

    pub(crate) fn without_policies(allowed: bool, cause: Option<Cause>, retry_after_us: Option<u64>) -> Self {
        Self { allowed, cause, retry_after_us, decisions: Vec::new() }
    }
}

/// The decision of one policy on a request.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyDecision {
    /// The policy's name.
    pub policy: Arc<str>,
    /// The key under the policy.
    pub key: Box<[u8]>,
    /// The units that the request spends.
    pub cost: u64,
    /// Percent of the capacity that was kept for others.
    pub headroom: u8,
    /// The decision; a denied request may have decisions that admit it.
    pub decision: Decision,
    /// The reservation that was made under the policy, which the caller commits or cancels with
    /// [`Limiter::commit`] and [`Limiter::cancel`]. `None` where units were spent.
    pub reservation: Option<ReservationId>,
    /// The plan for further operations on the key, such as a commit, if the request has a calendar or a group for it: the request's
    /// plan with both, such as `gold zone=Asia/Tokyo from=15` or `group=search`. Otherwise the request's plan is.
    pub plan: Option<Box<str>>,
    /// What the response reports as spent, for a policy that is reserved until then.
    pub(crate) spent: Option<Arc<Meter>>,
    /// The policy with the effective quotas of the key.
    pub(crate) effective: Policy,
    /// Whether HTTP fields show the decision: not for a policy that is off or in shadow, nor for an answer without the store.
    pub is_reported: bool,
}

/// Shows no key.
impl fmt::Debug for PolicyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyDecision")
            .field("policy", &self.policy)
            .field("key", &format_args!("{} bytes", self.key.len()))
            .field("cost", &self.cost)
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

impl PolicyDecision {
    /// The policy with the effective quotas of the key: those of its override or plan, or the policy's.
    pub fn effective_policy(&self) -> &Policy {
        &self.effective
    }
}

/// Every field under its name, and the status.
impl Serialize for RequestDecision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("RequestDecision", 5)?;
        fields.serialize_field("allowed", &self.allowed)?;
        fields.serialize_field("cause", &self.cause)?;
        fields.serialize_field("status", &self.status())?;
        fields.serialize_field("retry_after_us", &self.retry_after_us)?;
        fields.serialize_field("decisions", &self.decisions)?;
        fields.end()
    }
}

/// Every public field under its name.
impl Serialize for PolicyDecision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Report<'a> {
            policy: &'a str,
            #[serde(flatten)]
            key: KeyName,
            cost: u64,
            headroom: u8,
            reservation: Option<Cow<'a, str>>,
            decision: &'a Decision,
        }
        let report = Report {
            policy: &self.policy,
            key: KeyName::Bytes(self.key.to_vec()),
            cost: self.cost,
            headroom: self.headroom,
            reservation: self.reservation.as_ref().map(|id| String::from_utf8_lossy(id.as_bytes())),
            decision: &self.decision,
        };
        report.serialize(serializer)
    }
}

/// The policies that rules apply to a request, and its plan.
pub(crate) type Applied = (AppliedPolicies, Option<Vec<u8>>);

impl Admin<'_> {
    /// The policies that the configuration's rules apply to a request.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there is no configuration, and when the attribute
    /// that gives a cost does not contain one.
    pub fn matching(self, request: &dyn AttributeSource) -> Result<Vec<PolicyMatch>, Error> {
        self.limiter.in_force()?.configuration.matching(request, self.limiter.shared().store.clock().now_us())
    }
}

impl Limiter {
    /// Decides a request by the configuration: its lists, rules and policies. Policies with a concurrency quota, and those that a rule
    /// applies with `spent`, reserve under `terms`; all others spend.
    ///
    /// When one policy denies, nothing is spent or reserved, and the decisions of the policies that admit are those of a peek.
    ///
    /// # Errors
    /// As for [`matching`](crate::admin::Admin::matching) and [`check`](Self::check).
    pub async fn decide(
        &self,
        request: &(dyn AttributeSource + Sync),
        terms: &ReservationTerms,
    ) -> Result<RequestDecision, Error> {
        self.decide_request(request, terms, Wait::Await).await
    }

    pub(crate) fn in_force(&self) -> Result<Arc<InForce>, Error> {
        let shared = self.shared();
        shared.registry.check_open()?;
        shared.configured.in_force().ok_or_else(|| match shared.configured.followed() {
            Some(followed) => followed.unavailable(),
            None => Error::no_configuration(),
        })
    }

    pub(crate) async fn decide_request(
        &self,
        request: &(dyn AttributeSource + Sync),
        terms: &ReservationTerms,
        wait: Wait,
    ) -> Result<RequestDecision, Error> {
        let decision = self.decide_by_rules(request, terms, wait).await?;
        self.shared().tally.count_request(decision.allowed, decision.cause);
        Ok(decision)
    }

    /// Spends the costs of the policies that rules apply to what has happened already, and takes the answers for those of the request.
    async fn spend_what_has_happened(
        &self,
        in_force: &InForce,
        applied: &[AppliedPolicy],
        planned: &mut [(ConfiguredCall<'_>, Planned<'_>)],
        wait: Wait,
    ) -> Result<(), Error> {
        let happened =
            |(applied, (_, planned)): &(&AppliedPolicy, &mut (ConfiguredCall<'_>, Planned<'_>))| {
                applied.spends_always && matches!(planned.opening, Opening::Asked(_))
            };
        let happened: Vec<_> =
            applied.iter().zip(planned).filter(happened).map(|(_, planned)| planned).collect();
        if happened.is_empty() {
            return Ok(());
        }
        let charges: Vec<_> = happened.iter().map(|(_, planned)| planned.clone()).collect();
        let answers = self.spend_planned(Some(in_force), &charges, wait).await?;
        for ((_, planned), answer) in happened.into_iter().zip(answers) {
            planned.opening = Opening::Answered(answer);
        }
        Ok(())
    }

    async fn decide_by_rules(
        &self,
        request: &(dyn AttributeSource + Sync),
        terms: &ReservationTerms,
        wait: Wait,
    ) -> Result<RequestDecision, Error> {
        let in_force = self.wait_for_configuration(wait).await?;
        let hold = hold_without_waiting(terms)?;
        let now_us = self.shared().store.clock().now_us();
        let (applied, plan) = match in_force.apply_rules(request, now_us)? {
            Ok(applied) => applied,
            Err(decided) => return Ok(decided),
        };
        let mut planned = Vec::with_capacity(applied.len());
        for applied in &applied {
            let call = in_force.request_call(applied, plan.as_deref(), &hold, now_us)?;
            let opening = if applied.is_missing {
                Opening::Answered(in_force.refuse_missing_key(call))
            } else {
                self.open(&in_force, call)?
            };
            planned.push((call, Planned { configured: Some(call), opening }));
        }
        let denial = denied_without_store(&planned);
        self.spend_what_has_happened(&in_force, &applied, &mut planned, wait).await?;
        if let Some(denial) = denial {
            for (call, Planned { opening, .. }) in &planned {
                if let Opening::Answered(answer) = opening {
                    self.count_configured(&in_force, *call, answer);
                }
            }
            return Ok(denial);
        }
        let (calls, planned): (Vec<_>, Vec<_>) = planned.into_iter().unzip();
        let charged = self.start_planned(Some(&in_force), &planned, wait).await?;
        for (call, charged) in calls.iter().zip(&charged) {
            self.count_configured(&in_force, *call, &charged.answer);
            self.owe_to_pool(&in_force, *call, charged.owed, wait).await?;
        }
        let mut decision = conclude(&in_force, &calls, charged);
        for (made, applied) in decision.decisions.iter_mut().zip(&applied) {
            made.spent.clone_from(&applied.spent);
            made.plan = applied.calendar.as_deref().map(|own| plan_with(plan.as_deref(), own).into());
        }
        Ok(decision)
    }
}

/// The denial of a request that the document decides without the store.
fn denied_without_store(planned: &[(ConfiguredCall<'_>, Planned<'_>)]) -> Option<RequestDecision> {
    merge_denials(planned.iter().filter_map(|(_, planned)| match &planned.opening {
        Opening::Answered((decision, _)) if !decision.allowed => Some(decision),
        _ => None,
    }))
}

/// Combines the decisions of all policies into the decision on the request.
fn conclude(in_force: &InForce, calls: &[ConfiguredCall<'_>], charged: Vec<Charged>) -> RequestDecision {
    let denials = charged.iter().map(|charged| &charged.answer.0).filter(|decision| !decision.allowed);
    let merged =
        merge_denials(denials).unwrap_or_else(|| RequestDecision::without_policies(true, None, Some(0)));
    let decisions = calls.iter().zip(charged).map(|(call, Charged { answer: (decision, _), spent, .. })| {
        PolicyDecision {
            policy: in_force.quotas(call.policy, 0).name().into(),
            key: call.key.into(),
            cost: call.cost,
            headroom: call.headroom,
            plan: None,
            spent: None,
            effective: in_force.effective(*call).clone(),
            is_reported: decision.source.asks_store() && in_force.document(call.policy).mode == Mode::On,
            decision,
            reservation: call.hold.filter(|_| spent).map(|hold| hold.id),
        }
    });
    RequestDecision { decisions: decisions.collect(), ..merged }
}

impl InForce {
    /// The first steps of a request: the policies that rules apply to it, and its plan; or the decision, where the
    /// switch or a list decides.
    #[inline]
    pub(crate) fn apply_rules(
        &self,
        request: &dyn AttributeSource,
        now_us: u64,
    ) -> Result<Result<Applied, RequestDecision>, Error> {
        let configuration = &self.configuration;
        if !configuration.document().enabled {
            return Ok(Err(RequestDecision::without_policies(true, Some(Cause::Off), Some(0))));
        }
        let attributes = configuration.attributes(request);
        if let Some(verdict) = configuration.list_verdict(&attributes, now_us) {
            let retry_after_us = verdict.until_us.map(|until_us| until_us - now_us);
            return Ok(Err(if verdict.denies {
                RequestDecision::without_policies(false, Some(Cause::DenyList), retry_after_us)
            } else {
                RequestDecision::without_policies(true, Some(Cause::AllowList), Some(0))
            }));
        }
        let plan = configuration.plan(&attributes).map(<[u8]>::to_vec);
        Ok(Ok((configuration.apply_rules(&attributes, now_us)?, plan)))
    }

    /// The operation of a policy on a request: a reserve where the effective quotas of the key count concurrency, or where the response
    /// reports what was spent, otherwise a check.
    fn request_call<'a>(
        &self,
        applied: &'a AppliedPolicy,
        plan: Option<&'a [u8]>,
        hold: &'a Hold,
        now_us: u64,
    ) -> Result<ConfiguredCall<'a>, Error> {
        let &AppliedPolicy { policy, ref key, cost, headroom, .. } = applied;
        let quotas = self.configuration.effective(policy, key, plan, applied.calendar.as_deref(), now_us)?;
        let is_reserved = applied.spent.is_some() || self.quotas(policy, quotas.set).is_only_reserved();
        let (action, hold) = if is_reserved { (RESERVE, Some(hold)) } else { (CHECK, None) };
        Ok(ConfiguredCall { policy, key, action, cost, headroom, hold, quotas, now_us })
    }
}

/// The first cause and the longest wait of these denials; `None` if there are none.
fn merge_denials<'a>(denials: impl Iterator<Item = &'a Decision>) -> Option<RequestDecision> {
    let denials: Vec<_> = denials.collect();
    // If there are several causes, the first one in the order of `Cause` is reported.
    let cause = denials.iter().filter_map(|denial| denial.cause).min_by_key(|cause| *cause as u8);
    let waits = denials.iter().map(|denial| denial.retry_after_us());
    let retry_after_us = waits.reduce(|longest, wait| Some(longest?.max(wait?)))?;
    Some(RequestDecision::without_policies(false, cause, retry_after_us))
}

impl blocking::Admin<'_> {
    /// See [`Admin::matching`].
    ///
    /// # Errors
    /// See [`Admin::matching`].
    pub fn matching(self, request: &dyn AttributeSource) -> Result<Vec<PolicyMatch>, Error> {
        self.limiter.asynchronous().admin().matching(request)
    }
}

impl blocking::Limiter {
    /// See [`Limiter::decide`].
    ///
    /// # Errors
    /// See [`Limiter::decide`].
    pub fn decide(
        &self,
        request: &(dyn AttributeSource + Sync),
        terms: &ReservationTerms,
    ) -> Result<RequestDecision, Error> {
        at_once(self.asynchronous().decide_request(request, terms, Wait::Block))
    }
}
