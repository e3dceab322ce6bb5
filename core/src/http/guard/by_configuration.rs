//! A guard that decides by the configuration of its limiter: the rules of the document determine the policies, keys and costs
//! of a request.

use std::sync::Arc;

use crate::http::guard::check::{Applied, GuardCheck, Origin, Stage, Verdict, no_decision};
use crate::http::guard::ledger::{Charge, Report, Spent};
use crate::http::guard::settlement::{Settlement, Step};
use crate::http::headers::{Problem, request_problem};
use crate::limiter::configured::request_decision::{PolicyDecision, RequestDecision};
use crate::limiter::reservation::AtEnd;
use polylimit_document::meter::Meters;
use polylimit_rules::decision::Decision;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::policy::Policy;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::list::ReservationTerms;

/// Whether the store has spent units for a decision, so that they can be refunded.
fn is_spent(made: &PolicyDecision) -> bool {
    let Decision { allowed, shadowed, elastic, source, .. } = &made.decision;
    let is_counted = *allowed && !shadowed && !elastic && made.reservation.is_none() && made.cost > 0;
    is_counted && !source.is_outage() && source.asks_store()
}

impl GuardCheck {
    /// Takes the configuration's decision.
    pub(super) fn answer_configured(&mut self, answer: Result<RequestDecision, Error>) {
        let decided = match answer {
            Ok(decided) => decided,
            Err(error) => return self.error = Some(error),
        };
        let limiter = self.guard.limiter().clone();
        for (at, made) in decided.decisions.iter().enumerate() {
            if let Some(id) = made.reservation {
                let options = self.guard.shared.options.reserve;
                let Some(configured) = &mut self.configured else { return };
                let terms = ReservationTerms { id, ..configured.terms };
                let request = request_of(made, made.plan.as_deref().or(configured.plan.as_deref()));
                match limiter.adopt(request, &terms, options, made.decision.clone()) {
                    Ok(reservation) => configured.reservations.push((at, reservation)),
                    Err(error) => self.error = Some(error),
                }
            }
            self.policies.push(Applied {
                policy: made.effective.clone(),
                cost: made.cost,
                units: 0,
                origin: Origin::Store,
                is_held: false,
                is_reserving: false,
                reservation: None,
                decision: Some(made.decision.clone()),
            });
        }
        if let Some(configured) = &mut self.configured {
            if decided.decisions.iter().any(|made| made.spent.is_some()) {
                match Meters::new(decided.decisions.iter().map(|made| made.spent.clone())) {
                    Ok(meters) => configured.meters = Some(Arc::new(meters)),
                    Err(error) => self.error = Some(error),
                }
            }
            configured.decided = Some(decided);
        }
    }

    /// Concludes by the configuration's decision.
    pub(super) fn conclude_configured(&mut self) -> Verdict {
        if let Some(error) = self.error.take() {
            self.give_back_configured();
            // The rules take cost and keys from the request, so an invalid one is the client's error and not the program's.
            if error.kind() == ErrorKind::InvalidArgument && !self.guard.shared.options.is_dry_run {
                return self.deny(Problem::invalid());
            }
            return self.conclude_without_decision(error);
        }
        let Some(decided) = self.configured.as_mut().and_then(|configured| configured.decided.clone()) else {
            return Verdict::Fail(no_decision());
        };
        let is_denied_by_store = self.decisions().any(|made| !made.allowed() && !made.source().is_outage());
        let is_dry_run = self.guard.shared.options.is_dry_run;
        let is_admitted = match self.overruled {
            Some(true) if !decided.allowed && !is_denied_by_store => {
                self.limits.lock().set_outage("on_outage", self.guard.headers());
                true
            }
            Some(false) if decided.allowed && !is_dry_run => {
                self.give_back_configured();
                return self.deny(Problem::unavailable());
            }
            _ => decided.allowed || is_dry_run,
        };
        self.record_configured(&decided);
        if let Some(configured) = &mut self.configured {
            self.settlements.append(&mut configured.owed);
        }
        if is_admitted {
            let by_outage = self.decisions().map(Decision::source).find(|source| source.is_outage());
            if let Some(source) = by_outage.filter(|_| self.overruled.is_none()) {
                self.limits.lock().set_outage(source.name(), self.guard.headers());
            }
            if self.configured.as_ref().is_some_and(|configured| !configured.reservations.is_empty()) {
                self.stage = Stage::Holding { counts: true };
            }
            return Verdict::Admit;
        }
        let options = &self.guard.shared.options;
        let problem = request_problem(&decided).map_or_else(Problem::unavailable, |problem| {
            problem.with(options.status, options.message.as_deref())
        });
        self.deny(problem)
    }

    /// Records the decisions for the fields of the response. Policies that are off or in shadow, and decisions without the store,
    /// are not reported.
    fn record_configured(&mut self, decided: &RequestDecision) {
        let mut ledger = self.limits.lock();
        let (headers, is_dry_run) = (self.guard.headers(), self.guard.shared.options.is_dry_run);
        for made in decided.decisions.iter().filter(|made| made.is_reported) {
            let Some(policy) = self.policies.iter().find(|one| one.policy.name() == &*made.policy) else {
                continue;
            };
            let key: Arc<[u8]> = Arc::from(&*made.key);
            let charge = Charge { limiter: self.guard.limiter(), policy: &policy.policy, key: &key };
            let report = Report { headers, is_shown: true, is_dry_run };
            ledger.record(charge, made.decision.clone(), report);
        }
    }

    /// Refunds the units of a configured request when there is a response, unless it counts.
    pub(super) fn finish_configured(&mut self, counts: bool) {
        if let Stage::Holding { counts: known } = &mut self.stage {
            *known = counts;
        }
        if !counts {
            self.give_back_units();
        }
    }

    /// Ends the reservations of a configured request when the response is done.
    pub(super) fn end_configured(&mut self, counts: bool, spent: Spent<'_>) {
        let Some(configured) = &mut self.configured else { return };
        for (at, mut reservation) in std::mem::take(&mut configured.reservations) {
            reservation.set_end(if counts { AtEnd::Commit(spent.at(at)) } else { AtEnd::Cancel });
            // The handle of a policy that no longer exists ends its reservation when it is dropped.
            self.settlements.extend(Settlement::end(self.guard.limiter(), reservation));
        }
    }

    pub(super) fn give_back_configured(&mut self) {
        self.give_back_units();
        self.end_configured(false, Spent::Reserved);
    }

    /// Turns admissions into the denials that `late` makes of them, and has what was spent given back.
    pub(super) fn come_too_late_configured(&mut self, late: impl Fn(&Policy, &Decision) -> Option<Decision>) {
        let before = self.settlements.len();
        self.give_back_configured();
        let owed = self.settlements.split_off(before);
        let Some(configured) = &mut self.configured else { return };
        configured.owed = owed;
        let Some(decided) = &mut configured.decided else { return };
        for (made, one) in decided.decisions.iter_mut().zip(&mut self.policies) {
            let Some(denied) = late(&made.effective, &made.decision) else { continue };
            (decided.allowed, decided.cause) = (false, denied.cause);
            decided.retry_after_us = decided.retry_after_us.max(Some(denied.wait_us));
            one.decision = Some(denied.clone());
            made.decision = denied;
        }
    }

    fn give_back_units(&mut self) {
        let Some(configured) = &mut self.configured else { return };
        if std::mem::replace(&mut configured.is_given_back, true) {
            return;
        }
        let spent =
            configured.decided.iter().flat_map(|decided| &decided.decisions).filter(|made| is_spent(made));
        for made in spent {
            let Some(policy) = self.policies.iter().find(|one| one.policy.name() == &*made.policy) else {
                continue;
            };
            self.settlements.push(Settlement {
                limiter: self.guard.limiter().clone(),
                policy: policy.policy.clone(),
                key: Arc::from(&*made.key),
                plan: made.plan.as_deref().map(Arc::from).or_else(|| configured.plan.clone()),
                step: Step::Refund(made.cost),
            });
        }
    }
}

fn request_of<'a>(made: &'a PolicyDecision, plan: Option<&'a str>) -> Request<'a> {
    let request = Request::new(&made.key).policy(&made.policy).cost(made.cost);
    match plan {
        Some(plan) => request.plan(plan),
        None => request,
    }
}
