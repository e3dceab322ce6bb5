//! The calls of a check to its limiter, and the answers to them.

use std::sync::Arc;

use crate::http::guard::check::{Ahead, Applied, GuardCheck, Origin, no_decision};
use crate::http::guard::ledger::Charge;
use crate::http::guard::{Guard, RequestFacts};
use polylimit_rules::decision::Decision;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Quota;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::list::ReservationTerms;

impl GuardCheck {
    /// The requests that the limiter has to decide together; empty when earlier guards have decided everything. After
    /// [`ask_ahead`](Self::ask_ahead) each of them is decided by itself, as in `check_many`.
    pub(super) fn requests(&self) -> Vec<Request<'_>> {
        let ahead = self.ahead.iter();
        let ahead = ahead.map(|one| Request::new(&one.key).policy(one.policy.name()).cost(one.cost));
        self.asked().chain(ahead).collect()
    }

    fn asked(&self) -> impl Iterator<Item = Request<'_>> {
        self.policies.iter().filter(|one| one.has_to_be_asked()).map(|one| self.request(one))
    }

    fn request<'a>(&'a self, applied: &'a Applied) -> Request<'a> {
        let request = Request::new(&self.key).policy(applied.policy.name()).cost(applied.units);
        if applied.is_reserving { request.reserved() } else { request }
    }

    /// The request of a guard whose only policy has to be checked.
    pub(super) fn only_request(&self) -> Option<Request<'_>> {
        match &self.policies[..] {
            [one] if self.ahead.is_empty() && one.has_to_be_asked() && !one.is_reserving => {
                Some(self.request(one))
            }
            _ => None,
        }
    }

    /// Lets the store decide for a later guard of the request in the same call, which saves a round trip. The facts are those
    /// with which that guard will be started; they must be known without calling functions of the program, because the request
    /// may never reach that guard. Does nothing where that could change a decision, or where this guard does not call the
    /// store.
    pub fn ask_ahead(&mut self, later: &Guard, facts: &RequestFacts<'_>) {
        let is_dry_run = self.guard.shared.options.is_dry_run || later.shared.options.is_dry_run;
        // A guard that waits asks again for all of its policies together.
        let waits = [&self.guard, later].iter().any(|guard| !guard.shared.options.waiting.wait.is_zero());
        let is_elsewhere = !later.limiter().is_clone_of(self.guard.limiter());
        if is_dry_run || waits || is_elsewhere || self.terms.is_some() || self.asked().next().is_none() {
            return;
        }
        // The later guard reports errors in its facts.
        let Ok(check) = later.start(&self.limits, facts) else { return };
        let mut ahead = Vec::new();
        for one in check.policies.iter().filter(|one| one.has_to_be_asked()) {
            let own = self
                .policies
                .iter()
                .find(|own| own.policy.name() == one.policy.name() && self.key == check.key);
            let known = own.map(|own| own.units).or_else(|| self.cost_ahead(&one.policy, &check.key));
            match known {
                _ if one.is_held => return,
                Some(units) if one.units <= units => {}
                // The later guard then checks all of its policies itself. A counted denial cannot be undone.
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

    /// Whether it also calls the store for later guards, so that each request is decided by itself.
    pub(super) fn asks_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    fn cost_ahead(&self, policy: &Policy, key: &Arc<[u8]>) -> Option<u64> {
        let found = self.ahead.iter().find(|one| one.policy.name() == policy.name() && one.key == *key);
        found.map(|one| one.cost)
    }

    /// Takes the decisions on the pending policies, in their order, or the limiter's error: for an adapter that gets them other
    /// than by the [next call](Self::next_call).
    pub fn answer(&mut self, answer: Result<Vec<Decision>, Error>) {
        match answer {
            Err(error) => self.error = Some(error),
            Ok(decisions) => self.take(decisions.into_iter()),
        }
    }

    /// As [`answer`](Self::answer), for one policy without a list.
    pub(super) fn answer_one(&mut self, answer: Result<Decision, Error>) {
        match answer {
            Err(error) => self.error = Some(error),
            Ok(decision) => self.take(std::iter::once(decision)),
        }
    }

    fn take(&mut self, mut decisions: impl Iterator<Item = Decision>) {
        let mut is_admitted = true;
        for one in self.policies.iter_mut().filter(|one| one.has_to_be_asked()) {
            (one.decision, one.origin) = (decisions.next(), Origin::Store);
            is_admitted &= one.decision.as_ref().is_some_and(Decision::allowed);
            if one.decision.is_none() {
                self.error = Some(no_decision());
            }
        }
        self.is_unclaimed = is_admitted;
        // A request that is denied may be held, and is then decided again.
        if is_admitted && let Some(terms) = self.terms.take() {
            self.adopt_reservations(&terms);
        }
    }

    /// Creates handles for the reservations that the store has made.
    fn adopt_reservations(&mut self, terms: &ReservationTerms) {
        let (limiter, options) = (self.guard.limiter(), self.guard.shared.options.reserve);
        for one in self.policies.iter_mut().filter(|one| one.is_reserving) {
            let Some(decision) = &one.decision else { continue };
            let request = Request::new(&self.key).policy(one.policy.name()).cost(one.units);
            match limiter.adopt(request, terms, options, decision.clone()) {
                Ok(reservation) => one.reservation = Some(Box::new(reservation)),
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Takes the decisions of requests that were each decided by itself, after [`ask_ahead`](Self::ask_ahead). Units that the
    /// store admitted are held until a guard claims them.
    pub(super) fn answer_each(&mut self, answers: Vec<Result<Decision, Error>>) {
        let mut answers = answers.into_iter();
        let mut ledger = self.limits.lock();
        let limiter = self.guard.limiter();
        for one in self.policies.iter_mut().filter(|one| one.has_to_be_asked()) {
            match answers.next() {
                Some(Ok(decision)) => {
                    let charge = Charge { limiter, policy: &one.policy, key: &self.key };
                    ledger.hold(charge, self.number, one.units, decision.clone());
                    (one.decision, one.origin) = (Some(decision), Origin::Store);
                }
                Some(Err(error)) => self.error = self.error.take().or(Some(error)),
                None => self.error = Some(no_decision()),
            }
        }
        for (one, answer) in self.ahead.drain(..).zip(answers) {
            // A later guard whose decision is missing calls the store itself.
            if let Ok(decision) = answer {
                let charge = Charge { limiter, policy: &one.policy, key: &one.key };
                ledger.hold(charge, self.number, one.cost, decision);
            }
        }
    }

    /// Stops waiting for the store, for example because the request's own deadline has passed. This counts as a store that
    /// could not decide; a request that is [held](crate::http::guard::GuardBuilder::wait) is denied.
    pub fn give_up(&mut self) {
        if self.give_up_waiting() {
            return;
        }
        let message = "the store has not decided before the request's deadline";
        self.answer(Err(Error::new(ErrorKind::StoreUnavailable, message)));
    }
}
