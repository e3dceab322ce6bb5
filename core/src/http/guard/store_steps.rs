//! The steps of a check that call a limiter: to decide, refund, commit and cancel.

use crate::http::guard::check::{GuardCheck, Stage, no_decision};
use crate::http::guard::ledger::Spent;
use crate::limiter::Limiter;
use crate::limiter::call::{Answer, Call};
use polylimit_document::request::RequestAttributes;
use polylimit_rules::decision::Decision;
use polylimit_rules::error::Error;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::list::ReservationTerms;
use tokio::runtime::Handle;

impl GuardCheck {
    /// Passes the call that has to be made next, and its limiter, to a function, which may be called again until
    /// [`answer_call`](Self::answer_call) has the answer. Returns its result; `None` when there is no call. Calls come
    ///
    /// - before [`conclude`](Self::conclude): the decisions of the store, in one call; if the request is
    ///   [held](crate::http::guard::GuardBuilder::wait), a call that takes this time, and the decisions again;
    /// - after it, after [`finish`](Self::finish) and after [`end`](Self::end): refunds, commits and cancels; one that fails
    ///   leaves its units as they are.
    pub fn next_call<T>(&self, with: impl FnOnce(&Limiter, &Call<'_>) -> T) -> Option<T> {
        if let Some(settlement) = self.settlements.get(self.settled) {
            return Some(with(&settlement.limiter, &settlement.call()));
        }
        if let Some(call) = self.waiting_call() {
            return Some(with(self.guard.limiter(), &call));
        }
        if let Some((attributes, terms)) = self.to_be_configured() {
            return Some(with(self.guard.limiter(), &Call::Decide(&attributes, terms)));
        }
        self.asking(&self.requests()).map(|call| with(self.guard.limiter(), &call))
    }

    fn is_asking(&self) -> bool {
        self.stage == Stage::Asking && self.error.is_none()
    }

    /// What the configuration still has to decide.
    fn to_be_configured(&self) -> Option<(RequestAttributes<'_>, ReservationTerms)> {
        let configured = self.configured.as_ref()?;
        let attributes = configured.undecided().filter(|_| self.is_asking())?;
        Some((attributes, configured.terms))
    }

    /// The call that decides; `requests` are those that have to be decided.
    fn asking<'a>(&self, requests: &'a [Request<'a>]) -> Option<Call<'a>> {
        if !self.is_asking() {
            return None;
        }
        match (requests, self.terms.as_deref()) {
            ([], _) => None,
            (requests, _) if self.asks_ahead() => Some(Call::CheckMany(requests)),
            ([request], None) => Some(Call::Check(*request)),
            ([request], Some(terms)) => Some(Call::Reserve(*request, *terms)),
            (requests, None) => Some(Call::CheckTogether(requests)),
            (requests, Some(terms)) => Some(Call::ReserveTogether(requests, *terms)),
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
            return;
        }
        if self.waiting_call().is_some() {
            return self.answer_waiting(answer);
        }
        if self.configured.is_some() {
            self.answer_configured(answer.and_then(|answer| match answer {
                Answer::Request(decided) => Ok(decided),
                _ => Err(no_decision()),
            }));
        } else {
            match answer {
                Ok(Answer::Decisions(decisions)) if self.asks_ahead() => self.answer_each(decisions),
                Ok(Answer::Decisions(decisions)) => self.answer(decisions.into_iter().collect()),
                answer => self.answer_one(one(answer)),
            }
        }
        self.has_to_wait();
    }

    /// Makes the [next calls](Self::next_call), and takes their answers. Returns whether there was one.
    pub async fn run(&mut self) -> bool {
        let mut has_called = false;
        if let Some(request) = self.only_request().filter(|_| self.is_asking()) {
            let answer = self.guard.limiter().check(request).await;
            self.answer_one(answer);
            if !self.has_to_wait() {
                return true;
            }
            has_called = true;
        }
        loop {
            let answer = if let Some(settlement) = self.settlements.get(self.settled) {
                settlement.limiter.raw().call(&settlement.call()).await
            } else if let Some(call) = self.waiting_call() {
                match Handle::try_current() {
                    Ok(_) => self.guard.limiter().raw().call(&call).await,
                    // Then it takes the timer of the limiter.
                    Err(_) => self.guard.limiter().start(&call).await,
                }
            } else if let Some((attributes, terms)) = self.to_be_configured() {
                self.guard.limiter().raw().call(&Call::Decide(&attributes, terms)).await
            } else {
                let requests = self.requests();
                let Some(call) = self.asking(&requests) else { return has_called };
                self.guard.limiter().raw().call(&call).await
            };
            self.answer_call(answer);
            has_called = true;
        }
    }

    /// Like [`run`](Self::run), but blocks this thread.
    pub fn run_blocking(&mut self) -> bool {
        let mut has_called = false;
        if let Some(request) = self.only_request().filter(|_| self.is_asking()) {
            self.answer_one(self.guard.limiter().blocking().check(request));
            if !self.has_to_wait() {
                return true;
            }
            has_called = true;
        }
        while let Some(answer) = self.next_call(|limiter, call| limiter.blocking().raw().call(call)) {
            self.answer_call(answer);
            has_called = true;
        }
        has_called
    }

    /// Makes the calls that need no waiting, as [`Raw::try_call`](crate::raw::Raw::try_call) does, and takes their answers.
    /// Returns whether those were all; otherwise the [next call](Self::next_call) has to wait.
    pub fn try_run(&mut self) -> bool {
        if self.asks_ahead() {
            return false;
        }
        if let Some(request) = self.only_request() {
            if let Some(decision) = self.guard.limiter().raw().try_check(request) {
                self.answer_one(Ok(decision));
                return !self.has_to_wait();
            }
            let Some(answer) = self.guard.limiter().raw().try_call(&Call::Check(request)) else {
                return false;
            };
            self.answer_one(one(answer));
            return !self.has_to_wait();
        }
        while let Some(answer) = self.next_call(|limiter, call| limiter.raw().try_call(call)) {
            let Some(answer) = answer else { return false };
            self.answer_call(answer);
        }
        true
    }

    /// Like [`end`](Self::end), but makes the calls in the background, or at once where that needs no waiting: for an adapter
    /// that cannot wait where its framework reports that a response is done.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub fn end_in_background<'a>(&mut self, spent: impl Into<Spent<'a>>) -> Result<(), Error> {
        let ended = self.end(spent);
        self.settle_in_background();
        ended
    }

    pub(super) fn settle_in_background(&mut self) {
        let settled = std::mem::take(&mut self.settled);
        for settlement in self.settlements.drain(..).skip(settled) {
            settlement.make_in_background();
        }
    }
}

/// The decision of an answer on one policy.
fn one(answer: Result<Answer, Error>) -> Result<Decision, Error> {
    match answer? {
        Answer::Decision(decision) => Ok(decision),
        _ => Err(no_decision()),
    }
}
