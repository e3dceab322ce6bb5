//! One guard's decision on one request, step by step.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::http::guard::Guard;
use crate::http::guard::configured_request::ConfiguredRequest;
use crate::http::guard::ledger::{Charge, Claim, Ledger, Report, RequestLimits, Taken};
use crate::http::guard::settlement::Settlement;
use crate::http::guard::waiting::Waiting;
use crate::http::headers::{HeaderField, Problem, problem_by_costs};
use crate::limiter::reservation::Reservation;
use polylimit_document::meter::MeterReading;
use polylimit_rules::decision::{Decision, Source};
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::policy::Policy;
use polylimit_rules::reservation::list::ReservationTerms;

/// The decision of a [`Guard`] on one request.
///
/// The steps are: make each [`next_call`](Self::next_call) and pass its answer to [`answer_call`](Self::answer_call), until
/// there is none; if there is an [`outage`](Self::outage), call the program's `on_outage` and pass its result to
/// [`overrule`](Self::overrule); [`conclude`](Self::conclude), and make the next calls; when there is a response,
/// [`finish`](Self::finish), and make the next calls; if the check [reads the response](Self::reads_response), pass it to
/// [`read_head`](Self::read_head) and [`read_body`](Self::read_body); and if it [holds](Self::holds) reservations,
/// [`end`](Self::end) it when the response is done or its client has gone, and make the next calls. [`run`](Self::run) makes the
/// next calls, for programs in Rust.
///
/// A check that is dropped while it holds reservations ends them in the background; see [`end_in_background`](Self::end_in_background). One
/// that is dropped while its request [waits](crate::http::guard::GuardBuilder::wait) leaves nothing spent.
pub struct GuardCheck {
    pub(super) guard: Guard,
    pub(super) limits: RequestLimits,
    pub(super) key: Arc<[u8]>,
    /// The policies, in order, each with the decision of an earlier guard if there is one.
    pub(super) policies: SmallVec<[Applied; 1]>,
    /// The decisions that the store makes in the same call for later guards of the request.
    pub(super) ahead: Vec<Ahead>,
    /// The terms of the reservations that the store has to make; `None` where it only checks.
    pub(super) terms: Option<Box<ReservationTerms>>,
    /// Whether the store has admitted the policies of this guard, which does not rely on that yet.
    pub(super) is_unclaimed: bool,
    /// The configuration's decision, for a guard whose limits come from it.
    pub(super) configured: Option<Box<ConfiguredRequest>>,
    /// Whether the guard decides nothing because the request has no key.
    is_refused: bool,
    pub(super) error: Option<Error>,
    pub(super) overruled: Option<bool>,
    pub(super) stage: Stage,
    /// While its request is held, and afterwards until the check is concluded.
    pub(super) waiting: Option<Box<Waiting>>,
    /// What the response reports as spent, from its head on.
    pub(super) reading: Option<Box<MeterReading>>,
    /// The number of this guard among those of the request.
    pub(super) number: u32,
    /// The steps that remain for the limiters, after those that are already done.
    pub(super) settlements: Vec<Settlement>,
    pub(super) settled: usize,
}

pub(super) struct Applied {
    pub(super) policy: Policy,
    /// The units that the request spends under it.
    pub(super) cost: u64,
    /// The units that the store has to decide about; 0 when an earlier guard's decision holds.
    pub(super) units: u64,
    pub(super) origin: Origin,
    /// Whether the units that the guard keeps are known only when the response is done.
    pub(super) is_held: bool,
    /// Whether the store has to reserve.
    pub(super) is_reserving: bool,
    /// The reservation, until the guard relies on it. Dropping it cancels it.
    pub(super) reservation: Option<Box<Reservation>>,
    pub(super) decision: Option<Decision>,
}

/// The origin of a decision of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// An earlier guard of the request has charged the same.
    EarlierGuard,
    /// An earlier guard has asked ahead; it refunds what is not claimed.
    Ahead,
    /// The store still has to decide.
    Nowhere,
    /// The store has decided.
    Store,
}

/// The progress of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Asking,
    /// It is concluded, and holds no reservations.
    Concluded,
    /// It holds reservations until the response is done, which counts as far as is known.
    Holding {
        counts: bool,
    },
}

pub(super) struct Ahead {
    pub(super) policy: Policy,
    pub(super) key: Arc<[u8]>,
    pub(super) cost: u64,
}

/// The argument of `on_outage`: the decisions without the store, or the reason why there are none.
#[derive(Debug)]
#[non_exhaustive]
pub struct OutageReport<'a> {
    /// Why the store could not decide; `None` when the outage policy decided.
    pub error: Option<&'a Error>,
    /// Each policy of the guard with its decision; empty when there is an error.
    pub outcomes: Vec<(Policy, Decision)>,
}

/// The outcome for a request.
#[derive(Debug)]
pub enum Verdict {
    /// It proceeds.
    Admit,
    /// It does not proceed: the problem is the default response. Its status is 429 or the guard's own for a request
    /// over its limit, 503 for an outage, and 400 for a missing key.
    Deny(Problem),
    /// No decision was possible and the store is not the cause, such as an argument that is not allowed or a closed limiter. It
    /// is an error of the program, which the framework reports like any other; the default status is 500.
    Fail(Error),
}

impl GuardCheck {
    pub(super) fn new(
        guard: Guard,
        limits: RequestLimits,
        key: &[u8],
        cost: &dyn Fn(usize) -> u64,
        policies: &[Policy],
        is_refused: bool,
        configured: Option<Box<ConfiguredRequest>>,
    ) -> Result<Self, Error> {
        let key = Arc::from(key);
        let options = &guard.shared.options;
        let mut terms = None;
        let mut ledger = limits.lock();
        let apply = |(at, policy): (usize, &Policy)| {
            let cost = cost(at);
            let charge = Charge { limiter: guard.limiter(), policy, key: &key };
            let earlier = ledger.admitted(charge);
            let admitted = earlier.as_ref().map_or(0, |(_, admitted)| *admitted);
            let (is_asked, units) = (earlier.is_none() || cost > admitted, cost.saturating_sub(admitted));
            let ahead = if is_asked { ledger.decided_ahead(charge, units) } else { None };
            let origin = match &ahead {
                Some(_) => Origin::Ahead,
                None if is_asked => Origin::Nowhere,
                None => Origin::EarlierGuard,
            };
            let is_held = options.is_reserved_at(at) || policy.is_only_reserved();
            let is_reserving = is_held && origin == Origin::Nowhere;
            if is_reserving && terms.is_none() {
                terms = Some(Box::new(options.reserve.terms()?));
            }
            let decision = ahead.or_else(|| earlier.map(|(decision, _)| decision));
            let (policy, reservation) = (policy.clone(), None);
            Ok(Applied { policy, cost, units, origin, is_held, is_reserving, reservation, decision })
        };
        let policies = policies.iter().enumerate().map(apply).collect::<Result<_, Error>>()?;
        let number = ledger.add_guard();
        drop(ledger);
        Ok(Self {
            guard,
            limits,
            key,
            policies,
            ahead: Vec::new(),
            terms,
            is_unclaimed: false,
            configured,
            is_refused,
            error: None,
            overruled: None,
            stage: Stage::Asking,
            waiting: None,
            reading: None,
            number,
            settlements: Vec::new(),
            settled: 0,
        })
    }

    /// The argument of `on_outage`; `None` when the store decided, and when the error is not the store's.
    pub fn outage(&self) -> Option<OutageReport<'_>> {
        let error = self.error.as_ref();
        let is_outage = error.map_or_else(|| self.is_by_outage(), is_outage);
        let outcomes = || if error.is_none() { self.outcomes() } else { Vec::new() };
        is_outage.then(|| OutageReport { error, outcomes: outcomes() })
    }

    /// Takes the result of `on_outage`: the request is admitted, or denied. It has no effect without an
    /// [`outage`](Self::outage).
    pub fn overrule(&mut self, admit: bool) {
        if self.outage().is_some() {
            self.overruled = Some(admit);
        }
    }

    /// Each policy of this guard with its decision, in order; for a policy that an earlier guard charged, the earlier
    /// one.
    pub fn outcomes(&self) -> Vec<(Policy, Decision)> {
        let outcomes =
            self.decided_policies().filter_map(|one| Some((one.policy.clone(), one.decision.clone()?)));
        outcomes.collect()
    }

    fn decided_policies(&self) -> impl Iterator<Item = &Applied> {
        self.policies.iter().filter(|one| one.decision.is_some())
    }

    /// The limits of the request, with those of its other guards.
    pub fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// The fields of the response, for all guards of the request so far.
    pub fn fields(&self) -> Vec<HeaderField> {
        self.guard.fields(&self.limits)
    }

    /// Concludes: records the charges, and leaves it to the [next calls](Self::next_call) to refund what a denial does not use.
    /// It must be called once.
    pub fn conclude(&mut self) -> Verdict {
        if self.error.is_none() && self.policies.iter().any(Applied::has_to_be_asked) {
            self.error = Some(no_decision());
        }
        self.stage = Stage::Concluded;
        self.waiting = None;
        if self.configured.is_some() {
            return self.conclude_configured();
        }
        let verdict = self.decide();
        self.give_back_unclaimed();
        verdict
    }

    fn decide(&mut self) -> Verdict {
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
            |one: &Applied| !one.is_asked() || one.decision.as_ref().is_some_and(Decision::allowed);
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
                self.record_and_claim(None);
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
                let costs = |at: usize| self.decided_policies().nth(at).map_or(1, |one| one.cost);
                let problem = problem_by_costs(&outcomes, costs)
                    .map_or_else(Problem::unavailable, |problem| {
                        problem.with(shared.options.status, shared.options.message.as_deref())
                    });
                self.deny(problem)
            }
            _ => {
                let by_outage = self.decisions().map(Decision::source).find(|source| source.is_outage());
                self.record_and_claim(by_outage);
                Verdict::Admit
            }
        }
    }

    pub(super) fn conclude_without_decision(&mut self, error: Error) -> Verdict {
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
    pub(super) fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.policies.iter().filter(|one| one.is_asked()).filter_map(|one| one.decision.as_ref())
    }

    fn is_by_outage(&self) -> bool {
        self.decisions().any(|decision| decision.source().is_outage())
    }

    fn record(&self, is_shown: impl Fn(&Decision) -> bool) {
        record_in(&mut self.limits.lock(), &self.guard, &self.key, &self.policies, is_shown);
    }

    /// Records that the guard relies on the decisions, and the outage policy that has decided, if any.
    fn record_and_claim(&mut self, by_outage: Option<Source>) {
        let Self { guard, limits, key, policies, number, stage, is_unclaimed, .. } = self;
        *is_unclaimed = false;
        let mut ledger = limits.lock();
        record_in(&mut ledger, guard, key, policies, |_| true);
        for (at, one) in policies.iter_mut().enumerate() {
            let charge = Charge { limiter: guard.limiter(), policy: &one.policy, key };
            let taken = match one.reservation.take() {
                Some(reservation) => Taken::Reservation(reservation),
                None => Taken::Units(if one.is_asked() { one.units } else { 0 }),
            };
            ledger.claim(charge, Claim { guard: *number, at, cost: one.cost, is_held: one.is_held }, taken);
            if one.is_held {
                *stage = Stage::Holding { counts: true };
            }
        }
        if let Some(source) = by_outage {
            ledger.set_outage(source.name(), guard.headers());
        }
    }

    pub(super) fn deny(&mut self, problem: Problem) -> Verdict {
        let mut ledger = self.limits.lock();
        let problem = problem.jittered(|seconds| {
            ledger.choose_random();
            ledger.jitter_of(seconds)
        });
        let settlements = ledger.deny(self.number);
        drop(ledger);
        self.settlements.extend(settlements);
        Verdict::Deny(problem)
    }
}

impl Applied {
    pub(super) fn has_to_be_asked(&self) -> bool {
        self.origin == Origin::Nowhere
    }

    /// Whether the store's decision counts, and not that of an earlier guard.
    fn is_asked(&self) -> bool {
        self.origin != Origin::EarlierGuard
    }
}

fn record_in(
    ledger: &mut Ledger,
    guard: &Guard,
    key: &Arc<[u8]>,
    policies: &[Applied],
    is_shown: impl Fn(&Decision) -> bool,
) {
    let (headers, is_dry_run) = (guard.headers(), guard.shared.options.is_dry_run);
    for one in policies.iter().filter(|one| one.is_asked()) {
        if let Some(decision) = &one.decision {
            let charge = Charge { limiter: guard.limiter(), policy: &one.policy, key };
            let report = Report { headers, is_shown: is_shown(decision), is_dry_run };
            ledger.record(charge, decision.clone(), report);
        }
    }
}

pub(super) fn no_decision() -> Error {
    Error::new(ErrorKind::Internal, "a limit got no decision")
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
