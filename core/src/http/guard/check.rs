//! One guard's decision on one request, step by step.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind};
use crate::http::guard::ledger::{Charge, Ledger, Refund, Report, RequestLimits};
use crate::http::guard::{Guard, RequestFacts};
use crate::http::headers::{HeaderField, Problem, problem};
use crate::rules::decision::{Decision, Usage};
use crate::rules::policy::Policy;
use crate::rules::quota::Quota;
use crate::rules::request::Request;

/// The decision of a [`Guard`] on one request.
///
/// The steps are: let the store decide [`requests`](Self::requests) and give the result to [`answer`](Self::answer);
/// ask the program's `on_outage` if there is an [`outage`](Self::outage) and give its result to
/// [`overrule`](Self::overrule); [`conclude`](Self::conclude); refund [`refunds`](Self::refunds); and when the
/// response is there, [`finish`](Self::finish) and refund again. [`ask`](Self::ask) and [`refund`](Self::refund) do
/// the steps that wait, for programs in Rust.
pub struct GuardCheck {
    pub(super) guard: Guard,
    pub(super) limits: RequestLimits,
    key: Arc<[u8]>,
    cost: u64,
    /// The policies, in order, each with what an earlier guard has decided.
    policies: SmallVec<[Applied; 1]>,
    /// What the store decides in the same call for guards that the request meets later.
    ahead: Vec<Ahead>,
    /// Why the guard decides nothing: the request has no key.
    is_refused: bool,
    error: Option<Error>,
    overruled: Option<bool>,
    /// The number of this guard among those of the request.
    number: u32,
    pub(super) refunds: Vec<Refund>,
}

struct Applied {
    policy: Policy,
    /// The units that the store has to decide; 0 when an earlier guard's decision holds.
    units: u64,
    /// Whether the store's decision counts, and not that of an earlier guard.
    is_asked: bool,
    /// Whether the store has decided already, when an earlier guard asked.
    is_decided: bool,
    decision: Option<Decision>,
}

struct Ahead {
    policy: Policy,
    key: Arc<[u8]>,
    cost: u64,
}

/// What `on_outage` hears: decisions that were made without the store, or that none could be made.
#[derive(Debug)]
#[non_exhaustive]
pub struct OutageReport<'a> {
    /// Why the store could not decide; `None` when the outage policy decided.
    pub error: Option<&'a Error>,
    /// Each policy of the guard with its decision; empty when there is an error.
    pub outcomes: Vec<(Policy, Decision)>,
}

/// What happens with a request.
#[derive(Debug)]
pub enum Verdict {
    /// It proceeds.
    Admit,
    /// It does not proceed: the problem is the default response. Its status is 429 or the guard's own for a request
    /// over its limit, 503 for an outage, and 400 for a missing key.
    Deny(Problem),
    /// No decision could be made and the store is not the cause, such as an argument that is not allowed or a closed
    /// limiter. It is an error of the program, which the framework reports as others; the default status is 500.
    Fail(Error),
}

impl GuardCheck {
    pub(super) fn new(
        guard: Guard,
        limits: RequestLimits,
        key: &[u8],
        cost: u64,
        policies: &[Policy],
        is_refused: bool,
    ) -> Self {
        let key = Arc::from(key);
        let mut ledger = limits.lock();
        let apply = |policy: &Policy| {
            let charge = Charge { limiter: guard.limiter(), policy, key: &key };
            let earlier = ledger.admitted(charge);
            let admitted = earlier.as_ref().map_or(0, |(_, admitted)| *admitted);
            let (is_asked, units) = (earlier.is_none() || cost > admitted, cost.saturating_sub(admitted));
            let ahead = if is_asked { ledger.decided_ahead(charge, units) } else { None };
            let is_decided = ahead.is_some();
            let decision = ahead.or_else(|| earlier.map(|(decision, _)| decision));
            Applied { policy: policy.clone(), units, is_asked, is_decided, decision }
        };
        let policies = policies.iter().map(apply).collect();
        let number = ledger.add_guard();
        drop(ledger);
        let (ahead, refunds) = (Vec::new(), Vec::new());
        let (error, overruled) = (None, None);
        Self { guard, limits, key, cost, policies, ahead, is_refused, error, overruled, number, refunds }
    }

    /// What the limiter has to decide, together; empty when earlier guards have decided everything. After
    /// [`ask_ahead`](Self::ask_ahead) each of them is decided by itself, as `check_many` does, and
    /// [`answer_each`](Self::answer_each) takes the decisions.
    pub fn requests(&self) -> Vec<Request<'_>> {
        let ahead = self.ahead.iter();
        let ahead = ahead.map(|one| Request::new(&one.key).policy(one.policy.name()).cost(one.cost));
        self.asked().chain(ahead).collect()
    }

    fn asked(&self) -> impl Iterator<Item = Request<'_>> {
        let asked = self.policies.iter().filter(|one| one.has_to_be_asked());
        asked.map(|one| self.request(one))
    }

    fn request<'a>(&'a self, applied: &'a Applied) -> Request<'a> {
        Request::new(&self.key).policy(applied.policy.name()).cost(applied.units)
    }

    /// The request of a guard with one policy that has to be decided.
    pub(super) fn only_request(&self) -> Option<Request<'_>> {
        match &self.policies[..] {
            [one] if self.ahead.is_empty() && one.has_to_be_asked() => Some(self.request(one)),
            _ => None,
        }
    }

    /// Lets the store decide for a later guard of the request in the same call, so that both need one round trip. The facts are those
    /// with which that guard will be started; they must be known without calling functions of the program, because the request may never
    /// reach that guard. Does nothing where that could change a decision, and where this guard asks nothing.
    pub fn ask_ahead(&mut self, later: &Guard, facts: &RequestFacts<'_>) {
        let is_dry_run = self.guard.shared.options.is_dry_run || later.shared.options.is_dry_run;
        let is_elsewhere = !later.limiter().is_clone_of(self.guard.limiter());
        if is_dry_run || is_elsewhere || self.asked().next().is_none() {
            return;
        }
        // The later guard reports what is wrong with its facts.
        let Ok(check) = later.start(&self.limits, facts) else { return };
        let mut ahead = Vec::new();
        for one in check.policies.iter().filter(|one| one.has_to_be_asked()) {
            let own = self
                .policies
                .iter()
                .find(|own| own.policy.name() == one.policy.name() && self.key == check.key);
            let known = own.map(|own| own.units).or_else(|| self.cost_ahead(&one.policy, &check.key));
            match known {
                Some(units) if one.units <= units => {}
                // The later guard asks for the rest, and then for all of its policies. A denial that is counted cannot be taken back.
                Some(_) => return,
                None if one.policy.quotas().iter().any(Quota::count_denied) => return,
                None => ahead.push(Ahead {
                    policy: one.policy.clone(),
                    key: Arc::clone(&check.key),
                    cost: one.units,
                }),
            }
        }
        self.ahead.append(&mut ahead);
    }

    /// Whether it asks for later guards as well, so that [`answer_each`](Self::answer_each) takes the decisions.
    pub fn asks_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    fn cost_ahead(&self, policy: &Policy, key: &Arc<[u8]>) -> Option<u64> {
        let found = self.ahead.iter().find(|one| one.policy.name() == policy.name() && one.key == *key);
        found.map(|one| one.cost)
    }

    /// Takes the limiter's decisions, in the order of [`requests`](Self::requests), or its error.
    pub fn answer(&mut self, answer: Result<Vec<Decision>, Error>) {
        match answer {
            Err(error) => self.error = Some(error),
            Ok(decisions) => self.take(decisions.into_iter()),
        }
    }

    /// Takes the limiter's decision on the only one of [`requests`](Self::requests), or its error; the same as
    /// [`answer`](Self::answer) without a list.
    pub fn answer_one(&mut self, answer: Result<Decision, Error>) {
        match answer {
            Err(error) => self.error = Some(error),
            Ok(decision) => self.take(std::iter::once(decision)),
        }
    }

    /// Takes what the limiter decided for each of [`requests`](Self::requests) by itself, after
    /// [`ask_ahead`](Self::ask_ahead). The store holds what it admitted until a guard claims it.
    pub fn answer_each(&mut self, answers: Vec<Result<Decision, Error>>) {
        let mut answers = answers.into_iter();
        let mut ledger = self.limits.lock();
        let limiter = self.guard.limiter();
        for one in self.policies.iter_mut().filter(|one| one.has_to_be_asked()) {
            match answers.next() {
                Some(Ok(decision)) => {
                    let charge = Charge { limiter, policy: &one.policy, key: &self.key };
                    ledger.hold(charge, self.number, one.units, decision.clone());
                    one.decision = Some(decision);
                }
                Some(Err(error)) => self.error = self.error.take().or(Some(error)),
                None => self.error = Some(no_decision()),
            }
        }
        for (one, answer) in self.ahead.drain(..).zip(answers) {
            // A later guard whose decision is missing asks for itself.
            if let Ok(decision) = answer {
                let charge = Charge { limiter, policy: &one.policy, key: &one.key };
                ledger.hold(charge, self.number, one.cost, decision);
            }
        }
    }

    fn take(&mut self, mut decisions: impl Iterator<Item = Decision>) {
        for one in self.policies.iter_mut().filter(|one| one.has_to_be_asked()) {
            one.decision = decisions.next();
            if one.decision.is_none() {
                self.error = Some(no_decision());
            }
        }
    }

    /// The program waits for the store no longer, for example because the request's own deadline has passed: the
    /// store could not decide.
    pub fn give_up(&mut self) {
        let message = "the store has not decided before the request's deadline";
        self.answer(Err(Error::new(ErrorKind::StoreUnavailable, message)));
    }

    /// What `on_outage` hears; `None` when the store decided, and when the error is not the store's.
    pub fn outage(&self) -> Option<OutageReport<'_>> {
        let error = self.error.as_ref();
        let is_outage = error.map_or_else(|| self.is_by_outage(), is_outage);
        let outcomes = || if error.is_none() { self.outcomes() } else { Vec::new() };
        is_outage.then(|| OutageReport { error, outcomes: outcomes() })
    }

    /// Takes what `on_outage` said: the request is admitted, or denied. It has no effect without an
    /// [`outage`](Self::outage).
    pub fn overrule(&mut self, admit: bool) {
        if self.outage().is_some() {
            self.overruled = Some(admit);
        }
    }

    /// Each policy of this guard with its decision, in order; for a policy that an earlier guard charged, the earlier
    /// one.
    pub fn outcomes(&self) -> Vec<(Policy, Decision)> {
        let decided =
            self.policies.iter().filter_map(|one| Some((one.policy.clone(), one.decision.clone()?)));
        decided.collect()
    }

    /// The limits of the request, with those of its other guards.
    pub fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// The fields of the response, for all guards of the request so far.
    pub fn fields(&self) -> Vec<HeaderField> {
        self.guard.fields(&self.limits)
    }

    /// Concludes: the charges are recorded, and [`refunds`](Self::refunds) are known. It is called once.
    pub fn conclude(&mut self) -> Verdict {
        if self.is_refused {
            if self.guard.shared.options.is_dry_run {
                return Verdict::Admit;
            }
            return self.deny(Problem::without_key(self.guard.key_parts()));
        }
        if let Some(error) = self.error.take() {
            return self.conclude_without_decision(error);
        }
        // What an earlier guard was admitted for stays admitted, whatever a dry run in between has decided.
        let is_allowed =
            |one: &Applied| !one.is_asked || one.decision.as_ref().is_some_and(Decision::allowed);
        let is_denied = !self.policies.iter().all(is_allowed);
        let is_denied_by_store =
            self.decisions().any(|decision| !decision.allowed() && !decision.source().is_outage());
        let is_dry_run = self.guard.shared.options.is_dry_run;
        match self.overruled {
            Some(true) if is_denied && !is_denied_by_store => {
                self.record(Decision::allowed);
                self.limits.lock().set_outage("on_outage", self.guard.headers());
                Verdict::Admit
            }
            Some(false) if !is_denied && !is_dry_run => {
                {
                    let mut ledger = self.limits.lock();
                    self.record_in(&mut ledger, |_| true);
                    self.claim_in(&mut ledger);
                }
                self.deny(Problem::unavailable())
            }
            _ if is_denied && is_dry_run => {
                self.record(|_| true);
                Verdict::Admit
            }
            _ if is_denied => {
                self.record(|_| true);
                let outcomes = self.outcomes();
                let outcomes: Vec<_> = outcomes.iter().map(|(policy, decision)| (policy, decision)).collect();
                let shared = &self.guard.shared;
                let problem = problem(&outcomes, self.cost).map_or_else(Problem::unavailable, |problem| {
                    problem.with(shared.options.status, shared.options.message.as_deref())
                });
                self.deny(problem)
            }
            _ => {
                let by_outage = self.decisions().map(Decision::source).find(|source| source.is_outage());
                let mut ledger = self.limits.lock();
                self.record_in(&mut ledger, |_| true);
                self.claim_in(&mut ledger);
                if let Some(source) = by_outage {
                    ledger.set_outage(source.name(), self.guard.headers());
                }
                Verdict::Admit
            }
        }
    }

    /// Ends the check when there is a response: a guard that meets the same request again, such as in another
    /// attempt, is charged again. A response that does not count gives back what only this guard relies on; see
    /// [`refunds`](Self::refunds).
    pub fn finish(&mut self, counts: bool) {
        self.refunds = self.limits.lock().finish(self.number, counts);
    }

    /// The units to refund, each with its limiter: after [`conclude`](Self::conclude) those of a request that is
    /// denied, after [`finish`](Self::finish) those of a response that does not count. Units that cannot be refunded
    /// stay spent.
    pub fn refunds(&self) -> impl Iterator<Item = (&crate::Limiter, Request<'_>)> {
        self.refunds.iter().map(|refund| (&refund.limiter, request_of(refund)))
    }

    /// Takes the usage after the refund at this position of [`refunds`](Self::refunds), for the fields.
    pub fn refunded(&mut self, at: usize, left: Usage) {
        if let Some(refund) = self.refunds.get(at) {
            self.limits.lock().refunded(refund, left);
        }
    }

    fn conclude_without_decision(&mut self, error: Error) -> Verdict {
        if !is_outage(&error) {
            return Verdict::Fail(error);
        }
        if self.overruled == Some(true) {
            self.limits.lock().set_outage("on_outage", self.guard.headers());
            return Verdict::Admit;
        }
        if self.guard.shared.options.is_dry_run {
            return Verdict::Admit;
        }
        self.deny(Problem::unavailable())
    }

    /// The decisions of this guard itself.
    fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.policies.iter().filter(|one| one.is_asked).filter_map(|one| one.decision.as_ref())
    }

    fn is_by_outage(&self) -> bool {
        self.decisions().any(|decision| decision.source().is_outage())
    }

    fn record(&self, is_shown: impl Fn(&Decision) -> bool) {
        self.record_in(&mut self.limits.lock(), is_shown);
    }

    fn record_in(&self, ledger: &mut Ledger, is_shown: impl Fn(&Decision) -> bool) {
        let (headers, is_dry_run) = (self.guard.headers(), self.guard.shared.options.is_dry_run);
        for one in self.policies.iter().filter(|one| one.is_asked) {
            if let Some(decision) = &one.decision {
                let report = Report { headers, is_shown: is_shown(decision), is_dry_run };
                ledger.record(self.charge(&one.policy), decision.clone(), report);
            }
        }
    }

    fn claim_in(&self, ledger: &mut Ledger) {
        for one in &self.policies {
            let units = if one.is_asked { one.units } else { 0 };
            ledger.claim(self.charge(&one.policy), self.number, self.cost, units);
        }
    }

    fn deny(&mut self, problem: Problem) -> Verdict {
        self.refunds = self.limits.lock().deny(self.number);
        Verdict::Deny(problem)
    }

    fn charge<'a>(&'a self, policy: &'a Policy) -> Charge<'a> {
        Charge { limiter: self.guard.limiter(), policy, key: &self.key }
    }
}

impl Applied {
    fn has_to_be_asked(&self) -> bool {
        self.is_asked && !self.is_decided
    }
}

pub(super) fn no_decision() -> Error {
    Error::new(ErrorKind::Internal, "a limit got no decision")
}

pub(super) fn request_of(refund: &Refund) -> Request<'_> {
    Request::new(&refund.key).policy(refund.policy.name()).cost(refund.units)
}

/// Whether an error comes from the store.
fn is_outage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StoreUnavailable | ErrorKind::StoreFailed)
}

/// `Debug` shows no keys: they may be secrets or people's names.
impl fmt::Debug for GuardCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardCheck")
            .field("guard", &self.guard)
            .field("outcomes", &self.outcomes())
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
