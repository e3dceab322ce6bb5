//! What a check asks the limiter, and how it takes the answers.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::http::guard::check::{Ahead, Applied, GuardCheck, Origin, no_decision};
use crate::http::guard::ledger::Charge;
use crate::http::guard::{Guard, RequestFacts};
use crate::rules::decision::Decision;
use crate::rules::policy::Policy;
use crate::rules::quota::Quota;
use crate::rules::request::Request;

impl GuardCheck {
    /// What the limiter has to decide, together; empty when earlier guards have decided everything. After
    /// [`ask_ahead`](Self::ask_ahead) each of them is decided by itself, as `check_many` does, and
    /// [`answer_each`](Self::answer_each) takes the decisions. What has to be reserved is not among them:
    /// [`next_call`](Self::next_call) has all.
    pub fn requests(&self) -> Vec<Request<'_>> {
        let ahead = self.ahead.iter();
        let ahead = ahead.map(|one| Request::new(&one.key).policy(one.policy.name()).cost(one.cost));
        self.asked().chain(ahead).collect()
    }

    fn asked(&self) -> impl Iterator<Item = Request<'_>> {
        let asked = self.policies.iter().filter(|one| one.has_to_be_checked());
        asked.map(|one| self.request(one))
    }

    pub(super) fn request<'a>(&'a self, applied: &'a Applied) -> Request<'a> {
        Request::new(&self.key).policy(applied.policy.name()).cost(applied.units)
    }

    /// The request of a guard with one policy that has to be decided.
    pub(super) fn only_request(&self) -> Option<Request<'_>> {
        match &self.policies[..] {
            [one] if self.ahead.is_empty() && one.has_to_be_checked() => Some(self.request(one)),
            _ => None,
        }
    }

    /// Lets the store decide for a later guard of the request in the same call, so that both need one round trip. The facts are those
    /// with which that guard will be started; they must be known without calling functions of the program, because the request may never
    /// reach that guard. Does nothing where that could change a decision, and where this guard asks nothing.
    pub fn ask_ahead(&mut self, later: &Guard, facts: &RequestFacts<'_>) {
        let is_dry_run = self.guard.shared.options.is_dry_run || later.shared.options.is_dry_run;
        let is_elsewhere = !later.limiter().is_clone_of(self.guard.limiter());
        let reserves = self.policies.iter().any(|one| one.reserving.is_some());
        if is_dry_run || is_elsewhere || reserves || self.asked().next().is_none() {
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
                _ if one.is_held => return,
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
        for one in self.policies.iter_mut().filter(|one| one.has_to_be_checked()) {
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
            // A later guard whose decision is missing asks for itself.
            if let Ok(decision) = answer {
                let charge = Charge { limiter, policy: &one.policy, key: &one.key };
                ledger.hold(charge, self.number, one.cost, decision);
            }
        }
    }

    /// The next reservation that the store has to decide.
    pub(super) fn next_reserved(&self) -> Option<usize> {
        self.policies.iter().position(|one| one.has_to_be_asked() && one.reserving.is_some())
    }

    /// Takes the limiter's answer to a reserve.
    pub(super) fn answer_reserve(&mut self, at: usize, answer: Result<Decision, Error>) {
        let (limiter, options) = (self.guard.limiter(), self.guard.shared.options.reserve);
        let one = &mut self.policies[at];
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => return self.error = Some(error),
        };
        if let Some(reserving) = &mut one.reserving
            && decision.allowed()
        {
            let request = Request::new(&self.key).policy(one.policy.name()).cost(one.units);
            match limiter.adopt(request, &reserving.terms, options, decision.clone()) {
                Ok(reservation) => reserving.handle = Some(reservation),
                Err(error) => self.error = Some(error),
            }
        }
        (one.decision, one.origin) = (Some(decision), Origin::Store);
    }

    fn take(&mut self, mut decisions: impl Iterator<Item = Decision>) {
        for one in self.policies.iter_mut().filter(|one| one.has_to_be_checked()) {
            (one.decision, one.origin) = (decisions.next(), Origin::Store);
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
}
