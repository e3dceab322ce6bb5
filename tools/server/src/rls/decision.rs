//! The decision about all descriptors of a request: which policies they mean, and what becomes of the request.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::{join, join_all};
use polylimit::admin::PolicyMode;
use polylimit::decision::{Cause, Source};
use polylimit::document::{MatchedPolicy, RequestDecision};
use polylimit::raw::Answer;
use polylimit::{Decision, Error, ErrorKind, Policy, Quota, Request};
use tonic::Status;

use crate::access::Identity;
use crate::app::App;
use crate::rls::call::RateLimitCall;
use crate::rls::descriptor::{Descriptor, Hits, OverridingLimit};
use crate::rls::messages::RateLimitRequest;

/// A policy that is off and has a name with this prefix says that the policy of the rest of the name is not applied to other descriptors.
const REPLACES: &str = "replaces.";
/// The policy that is off and is applied with those whose denials count only together.
const QUOTA_MODE: &str = "quota_mode";

/// What becomes of a request.
pub(super) struct Outcome {
    pub(super) is_denied: bool,
    /// How many descriptors the request has.
    pub(super) descriptors: usize,
    /// The descriptors about which lists, the switch of the document or a missing key decide.
    pub(super) decided: Vec<(usize, RequestDecision)>,
    /// The policies of the other descriptors.
    pub(super) applications: Vec<Application>,
}

/// A policy that is applied to a descriptor.
pub(super) struct Application {
    pub(super) descriptor: usize,
    pub(super) policy: Arc<str>,
    pub(super) key: Box<[u8]>,
    plan: Option<Arc<str>>,
    headroom: u8,
    pub(super) units: u64,
    hits: Hits,
    /// Whether its hits are spent even if they are denied.
    spends_always: bool,
    /// Whether its denial counts only together with others.
    pub(super) is_in_quota_mode: bool,
    /// Whether fields of the response show the decision: not those of a policy in shadow.
    pub(super) is_on: bool,
    /// The policy with the effective quotas of the key.
    pub(super) effective_policy: Policy,
    /// A decision or a usage, once the limiter was asked.
    pub(super) answer: Option<Answer>,
}

impl Application {
    fn new(descriptor: usize, hits: Hits, matched: MatchedPolicy, plan: Option<&Arc<str>>) -> Self {
        let MatchedPolicy {
            policy,
            key,
            cost,
            headroom,
            mode,
            spends_always,
            effective_policy,
            plan: of_key,
            ..
        } = matched;
        let (plan, is_on) = (of_key.map(Arc::from).or_else(|| plan.cloned()), mode == PolicyMode::On);
        let (is_in_quota_mode, answer) = (false, None);
        let units = units_of(hits, cost);
        Self {
            descriptor,
            policy,
            key,
            plan,
            headroom,
            units,
            hits,
            spends_always,
            is_in_quota_mode,
            is_on,
            effective_policy,
            answer,
        }
    }

    /// A limit that the request brings along.
    fn overriding(
        app: &App,
        caller: Option<&Identity>,
        descriptor: usize,
        hits: Hits,
        limit: &OverridingLimit,
    ) -> Result<Self, Status> {
        let exhausted = |error: crate::error::ServeError| Status::resource_exhausted(error.to_string());
        let policy = app.one_off.resolve(&app.limiter, &limit.quotas, caller).map_err(exhausted)?;
        let policy = policy.unwrap_or_else(|| limit.quotas.as_str().into());
        let effective_policy =
            app.limiter.raw().policy_in_request(Some(&policy)).map_err(|error| status_of(&error))?;
        Ok(Self {
            descriptor,
            policy,
            key: limit.key.as_bytes().into(),
            plan: None,
            headroom: 0,
            units: units_of(hits, 1),
            hits,
            spends_always: false,
            is_in_quota_mode: false,
            is_on: true,
            effective_policy,
            answer: None,
        })
    }

    pub(super) fn request(&self) -> Request<'_> {
        let request = Request::new(&self.key).policy(&self.policy).cost(self.units).headroom(self.headroom);
        match &self.plan {
            Some(plan) => request.plan(plan),
            None => request,
        }
    }

    pub(super) fn decision(&self) -> Option<&Decision> {
        match &self.answer {
            Some(Answer::Decision(decision)) => Some(decision),
            _ => None,
        }
    }

    pub(super) fn denies(&self) -> bool {
        self.decision().is_some_and(|decision| !decision.allowed())
    }

    /// Whether the store has spent units for it.
    fn has_spent(&self) -> bool {
        let is_from_store = |source: Source| !source.is_outage() && source != Source::Configuration;
        let spends = |decision: &Decision| {
            decision.allowed()
                && !decision.shadowed()
                && !decision.elastic()
                && is_from_store(decision.source())
        };
        matches!(self.hits, Hits::Spend(_)) && !self.spends_always && self.decision().is_some_and(spends)
    }
}

/// The units of this many hits; a peek is about one.
fn units_of(hits: Hits, cost: u64) -> u64 {
    match hits {
        Hits::Peek => cost,
        Hits::Spend(hits) | Hits::GiveBack(hits) => cost.saturating_mul(hits),
    }
}

/// Decides about a request: either all that its descriptors ask for is spent, or nothing, unless the options say that every descriptor
/// counts for itself.
pub(super) async fn decide(
    app: &App,
    call: RateLimitCall,
    caller: Option<&Identity>,
    request: &RateLimitRequest,
) -> Result<Outcome, Status> {
    let hits = u64::from(request.hits_addend.max(1));
    let mut descriptors = Descriptor::read_all(app, &request.domain, &request.descriptors, hits)?;
    if call == RateLimitCall::CheckRateLimit {
        for descriptor in &mut descriptors {
            descriptor.hits = Hits::Peek;
        }
    }
    let mut outcome = matched(app, caller, &descriptors).await?;
    if call == RateLimitCall::Report {
        for application in &mut outcome.applications {
            application.spends_always = true;
        }
    }
    if outcome.decided.iter().any(|(_, decided)| !decided.allowed) {
        outcome.is_denied = true;
        outcome.applications.clear();
        return Ok(outcome);
    }
    let spends_for_itself =
        |one: &Application| matches!(one.hits, Hits::Spend(_)) && !one.is_in_quota_mode && !one.spends_always;
    let counts_all = app.options.rls.count_all;
    let is_together = !counts_all && outcome.applications.iter().all(spends_for_itself);
    let failed = if is_together {
        ask_together(app, &mut outcome.applications).await
    } else {
        ask_each(app, &mut outcome.applications).await
    };
    outcome.is_denied = are_denied(&outcome.applications);
    if counts_all && failed.is_ok() {
        charge_denied(app, &outcome.applications).await?;
    } else if !is_together && (failed.is_err() || outcome.is_denied) {
        give_back(app, &mut outcome.applications).await?;
    }
    failed?;
    for application in &mut outcome.applications {
        if matches!(application.hits, Hits::GiveBack(_)) {
            let usage = app.limiter.refund(application.request()).await;
            application.answer = Some(Answer::Usage(usage.map_err(|error| status_of(&error))?));
        }
    }
    Ok(outcome)
}

/// Whether one of them denies the request, or all of those in quota mode together.
pub(super) fn are_denied(applications: &[Application]) -> bool {
    let in_quota_mode = applications.iter().filter(|one| one.is_in_quota_mode && one.decision().is_some());
    let mut in_quota_mode = in_quota_mode.peekable();
    in_quota_mode.peek().is_some() && in_quota_mode.all(Application::denies)
        || applications.iter().any(|one| !one.is_in_quota_mode && one.denies())
}

/// What the document says about each descriptor.
pub(super) async fn matched(
    app: &App,
    caller: Option<&Identity>,
    descriptors: &[Descriptor<'_>],
) -> Result<Outcome, Status> {
    let mut outcome = Outcome {
        is_denied: false,
        descriptors: descriptors.len(),
        decided: Vec::new(),
        applications: Vec::new(),
    };
    let mut replaced = Replaced::default();
    for (at, descriptor) in descriptors.iter().enumerate() {
        let found = app.limiter.admin().match_request(descriptor).await.map_err(|error| status_of(&error))?;
        if let Some(decided) = found.decided {
            outcome.decided.push((at, decided));
            continue;
        }
        if let Some(limit) = &descriptor.limit {
            outcome.applications.push(Application::overriding(app, caller, at, descriptor.hits, limit)?);
            continue;
        }
        let plan: Option<Arc<str>> =
            found.plan.as_deref().and_then(|plan| std::str::from_utf8(plan).ok()).map(Arc::from);
        let (first, mut is_in_quota_mode) = (outcome.applications.len(), false);
        for policy in found.policies {
            if policy.mode == PolicyMode::Off && &*policy.policy == QUOTA_MODE {
                is_in_quota_mode = true;
            } else if policy.mode == PolicyMode::Off
                && let Some(name) = policy.policy.strip_prefix(REPLACES)
            {
                replaced.add(name, at);
            } else {
                let application = Application::new(at, descriptor.hits, policy, plan.as_ref());
                if application.units > Request::MAX_COST {
                    return Err(Status::invalid_argument(format!(
                        "the hits cost {} units: allowed are up to {}",
                        application.units,
                        Request::MAX_COST
                    )));
                }
                outcome.applications.push(application);
            }
        }
        for application in &mut outcome.applications[first..] {
            application.is_in_quota_mode = is_in_quota_mode;
        }
    }
    outcome.applications.retain(|application| !replaced.has(&application.policy, application.descriptor));
    Ok(outcome)
}

/// The policies that descriptors replace in others.
#[derive(Default)]
struct Replaced {
    /// The descriptor that replaces it; `None` where several do, so that it is replaced in every one.
    by_name: HashMap<Box<str>, Option<usize>>,
}

impl Replaced {
    fn add(&mut self, name: &str, descriptor: usize) {
        match self.by_name.get_mut(name) {
            Some(by) => *by = by.filter(|by| *by == descriptor),
            None => {
                self.by_name.insert(name.into(), Some(descriptor));
            }
        }
    }

    fn has(&self, policy: &str, descriptor: usize) -> bool {
        self.by_name.get(policy).is_some_and(|by| by.is_none_or(|by| by != descriptor))
    }
}

/// Checks everything in one step: all of it is spent, or nothing.
async fn ask_together(app: &App, applications: &mut [Application]) -> Result<(), Status> {
    let requests: Vec<_> = applications.iter().map(Application::request).collect();
    let decisions = app.limiter.check_together(&requests).await.map_err(|error| status_of(&error))?;
    for (application, decision) in applications.iter_mut().zip(decisions) {
        application.answer = Some(Answer::Decision(decision));
    }
    Ok(())
}

/// Asks the limiter about everything but what is given back: all checks at once, each for itself. A denial in quota mode or of a peek
/// decides only together with others, or after them, so what was spent is given back.
async fn ask_each(app: &App, applications: &mut [Application]) -> Result<(), Status> {
    let (mut spending, mut charging, mut peeking) = (Vec::new(), Vec::new(), Vec::new());
    for application in &mut *applications {
        match application.hits {
            Hits::Spend(_) if application.spends_always => charging.push(application),
            Hits::Spend(_) => spending.push(application),
            Hits::Peek => peeking.push(application),
            Hits::GiveBack(_) => {}
        }
    }
    let checks = app.limiter.check_many(spending.iter().map(|application| application.request()));
    let (checked, peeked) = if peeking.is_empty() {
        (checks.await, Vec::new())
    } else {
        let peeks = join_all(peeking.iter().map(|application| app.limiter.peek(application.request())));
        join(checks, peeks).await
    };
    let mut asked = Ok(());
    let charges: Vec<_> = charging.iter().map(|application| application.request()).collect();
    match app.limiter.raw().spend_always(&charges).await {
        Ok(decisions) => {
            for (application, decision) in charging.into_iter().zip(decisions) {
                application.answer = Some(Answer::Decision(decision));
            }
        }
        Err(error) => asked = Err(status_of(&error)),
    }
    for (application, answer) in spending.into_iter().zip(checked).chain(peeking.into_iter().zip(peeked)) {
        match answer {
            Ok(decision) => application.answer = Some(Answer::Decision(decision)),
            Err(error) => asked = Err(status_of(&error)),
        }
    }
    asked
}

/// Charges what was denied, as envoyproxy/ratelimit does: it adds the hits of every request.
async fn charge_denied(app: &App, applications: &[Application]) -> Result<(), Status> {
    let is_uncounted = |one: &&Application| {
        let by_quota =
            |decision: &Decision| decision.cause() == Some(Cause::Quota) && !decision.source().is_outage();
        matches!(one.hits, Hits::Spend(_))
            && !one.spends_always
            && one.denies()
            && one.decision().is_some_and(by_quota)
            // These have counted the denial.
            && !one.effective_policy.quotas().iter().any(Quota::count_denied)
    };
    for denied in applications.iter().filter(is_uncounted) {
        let charged = app.limiter.charge(denied.request()).await;
        let _ = charged.map_err(|error| status_of(&error))?;
    }
    Ok(())
}

/// Gives back what the store has spent for a request that does not proceed; all of it is tried.
async fn give_back(app: &App, applications: &mut [Application]) -> Result<(), Status> {
    let mut given = Ok(());
    for application in applications.iter_mut().filter(|application| application.has_spent()) {
        match (app.limiter.refund(application.request()).await, application.decision()) {
            (Ok(left), Some(decision)) => {
                application.answer = Some(Answer::Decision(decision.clone().refunded(left)));
            }
            (Ok(_), None) => {}
            (Err(error), _) => given = Err(status_of(&error)),
        }
    }
    given
}

/// An error of the limiter. While the store is away, outage policies have answered before there is one. `StoreUnavailable` is left for a
/// limiter without a document and `Closed` for one that is closed: neither has a policy that could say what to do.
pub(super) fn status_of(error: &Error) -> Status {
    let message = error.message();
    match error.kind() {
        ErrorKind::InvalidArgument => Status::invalid_argument(message),
        ErrorKind::StoreUnavailable | ErrorKind::Closed => Status::unavailable(message),
        _ => Status::internal(message),
    }
}
