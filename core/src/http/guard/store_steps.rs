//! The steps of a check that a limiter takes part in: what it decides, gives back, commits and cancels.

use crate::configuration::request::RequestAttributes;
use crate::error::Error;
use crate::http::guard::check::{GuardCheck, Stage, no_decision};
use crate::http::guard::ledger::Spent;
use crate::limiter::Limiter;
use crate::limiter::call::{Answer, Call};
use crate::rules::decision::Decision;
use crate::rules::request::Request;
use crate::rules::reservation::list::ReservationTerms;

impl GuardCheck {
    /// Passes the call that has to be made next, and its limiter, to a function, which may be called again until
    /// [`answer_call`](Self::answer_call) has the answer. Returns its result; `None` when there is no call. Calls come
    ///
    /// - before [`conclude`](Self::conclude): what the store has to decide. Policies that are reserved are a call each, all others are
    ///   one call together;
    /// - after it, after [`finish`](Self::finish) and after [`end`](Self::end): refunds, commits and cancels, of which one that fails
    ///   leaves its units as they are.
    pub fn next_call<T>(&self, with: impl FnOnce(&Limiter, &Call<'_>) -> T) -> Option<T> {
        if let Some(settlement) = self.settlements.get(self.settled) {
            return Some(with(&settlement.limiter, &settlement.call()));
        }
        if let Some((attributes, terms)) = self.to_be_configured() {
            return Some(with(self.guard.limiter(), &Call::Decide(&attributes, terms)));
        }
        self.asking(&self.requests()).map(|call| with(self.guard.limiter(), &call))
    }

    /// What the configuration has still to decide.
    fn to_be_configured(&self) -> Option<(RequestAttributes<'_>, ReservationTerms)> {
        let configured = self.configured.as_ref()?;
        let is_asking = self.stage == Stage::Asking && self.error.is_none();
        let attributes = configured.undecided().filter(|_| is_asking)?;
        Some((attributes, configured.terms))
    }

    /// The call that asks next; `requests` are those that are checked.
    fn asking<'a>(&'a self, requests: &'a [Request<'a>]) -> Option<Call<'a>> {
        if self.stage != Stage::Asking || self.error.is_some() {
            return None;
        }
        if let Some(reserved) = self.next_reserved().and_then(|at| self.policies.get(at))
            && let Some(reserving) = &reserved.reserving
        {
            return Some(Call::Reserve(self.request(reserved), reserving.terms));
        }
        match requests {
            [] => None,
            requests if self.asks_ahead() => Some(Call::CheckMany(requests)),
            [request] => Some(Call::Check(*request)),
            requests => Some(Call::CheckTogether(requests)),
        }
    }

    /// Takes the answer to the [next call](Self::next_call).
    pub fn answer_call(&mut self, answer: Result<Answer, Error>) {
        if let Some(settlement) = self.settlements.get_mut(self.settled) {
            settlement.close();
            if let Ok(Answer::Usage(left)) = answer {
                self.limits.lock().settled(settlement, left);
            }
            self.settled += 1;
        } else if self.configured.is_some() {
            self.answer_configured(answer.and_then(|answer| match answer {
                Answer::Request(decided) => Ok(decided),
                _ => Err(no_decision()),
            }));
        } else if let Some(at) = self.next_reserved() {
            self.answer_reserve(at, one(answer));
        } else {
            match answer {
                Ok(Answer::Decisions(decisions)) if self.asks_ahead() => self.answer_each(decisions),
                Ok(Answer::Decisions(decisions)) => self.answer(decisions.into_iter().collect()),
                answer => self.answer_one(one(answer)),
            }
        }
    }

    async fn call_all(&mut self) {
        loop {
            let answer = if let Some(settlement) = self.settlements.get(self.settled) {
                settlement.limiter.call(&settlement.call()).await
            } else if let Some((attributes, terms)) = self.to_be_configured() {
                self.guard.limiter().call(&Call::Decide(&attributes, terms)).await
            } else {
                let requests = self.requests();
                let Some(call) = self.asking(&requests) else { return };
                self.guard.limiter().call(&call).await
            };
            self.answer_call(answer);
        }
    }

    fn call_all_blocking(&mut self) {
        while let Some(answer) = self.next_call(|limiter, call| limiter.blocking().call(call)) {
            self.answer_call(answer);
        }
    }

    /// Lets the limiter decide, and takes its answer.
    pub async fn ask(&mut self) {
        if let Some(request) = self.only_request() {
            let answer = self.guard.limiter().check(request).await;
            return self.answer_one(answer);
        }
        self.call_all().await;
    }

    /// As [`ask`](Self::ask); waits on this thread.
    pub fn ask_blocking(&mut self) {
        if let Some(request) = self.only_request() {
            return self.answer_one(self.guard.limiter().blocking().check(request));
        }
        self.call_all_blocking();
    }

    /// Lets the limiter decide where that needs no waiting, as [`Limiter::try_call`](crate::Limiter::try_call) does, and takes
    /// its answers. Returns whether it has decided; otherwise the [next call](Self::next_call) has to wait.
    pub fn try_ask(&mut self) -> bool {
        if self.asks_ahead() {
            return false;
        }
        if let Some(request) = self.only_request() {
            if let Some(decision) = self.guard.limiter().try_check(request) {
                self.answer_one(Ok(decision));
                return true;
            }
            let Some(answer) = self.guard.limiter().try_call(&Call::Check(request)) else { return false };
            self.answer_one(one(answer));
            return true;
        }
        while let Some(answer) = self.next_call(Limiter::try_call) {
            let Some(answer) = answer else { return false };
            self.answer_call(answer);
        }
        true
    }

    /// Refunds, commits and cancels what has to be, after [`conclude`](Self::conclude), [`finish`](Self::finish) and
    /// [`end`](Self::end). Where that fails, units stay as they are. Returns whether there was something.
    pub async fn refund(&mut self) -> bool {
        let was_empty = self.settled == self.settlements.len();
        self.call_all().await;
        !was_empty
    }

    /// As [`refund`](Self::refund); waits on this thread.
    pub fn refund_blocking(&mut self) -> bool {
        let was_empty = self.settled == self.settlements.len();
        self.call_all_blocking();
        !was_empty
    }

    /// As [`end`](Self::end), and makes the calls in the background, at once where that needs no waiting: for an adapter that cannot
    /// wait where its framework says that a response is done.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub fn end_in_background<'a>(&mut self, spent: impl Into<Spent<'a>>) -> Result<(), Error> {
        let ended = self.end(spent);
        let settled = std::mem::take(&mut self.settled);
        for settlement in self.settlements.drain(..).skip(settled) {
            settlement.make_in_background();
        }
        ended
    }
}

/// The decision of an answer on one policy.
fn one(answer: Result<Answer, Error>) -> Result<Decision, Error> {
    match answer? {
        Answer::Decision(decision) => Ok(decision),
        _ => Err(no_decision()),
    }
}
