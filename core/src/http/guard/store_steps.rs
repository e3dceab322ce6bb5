//! The steps of a check that a limiter takes part in: to ask it, and to refund.

use crate::http::guard::check::{GuardCheck, no_decision, request_of};
use crate::limiter::call::{Answer, Call};

impl GuardCheck {
    /// Lets the limiter decide, and takes its answer.
    pub async fn ask(&mut self) {
        if let Some(request) = self.only_request() {
            let answer = self.guard.limiter().check(request).await;
            return self.answer_one(answer);
        }
        if self.asks_ahead() {
            let answers = self.guard.limiter().check_many(self.requests()).await;
            return self.answer_each(answers);
        }
        let answer = match &self.requests()[..] {
            [] => Ok(Vec::new()),
            requests => self.guard.limiter().check_together(requests).await,
        };
        self.answer(answer);
    }

    /// As [`ask`](Self::ask); waits on this thread.
    pub fn ask_blocking(&mut self) {
        let limiter = self.guard.limiter().blocking();
        if let Some(request) = self.only_request() {
            return self.answer_one(limiter.check(request));
        }
        if self.asks_ahead() {
            let answers = limiter.check_many(self.requests());
            return self.answer_each(answers);
        }
        let answer = match &self.requests()[..] {
            [] => Ok(Vec::new()),
            requests => limiter.check_together(requests),
        };
        self.answer(answer);
    }

    /// Lets the limiter decide where that needs no waiting, as [`Limiter::try_call`](crate::Limiter::try_call) does, and takes
    /// its answer. Returns whether it has decided; otherwise nothing was done.
    pub fn try_ask(&mut self) -> bool {
        if self.asks_ahead() {
            return false;
        }
        if let Some(request) = self.only_request() {
            let Some(answer) = self.guard.limiter().try_call(&Call::Check(request)) else { return false };
            self.answer_one(match answer {
                Ok(Answer::Decision(decision)) => Ok(decision),
                Ok(_) => Err(no_decision()),
                Err(error) => Err(error),
            });
            return true;
        }
        let answer = match &self.requests()[..] {
            [] => return true,
            requests => self.guard.limiter().try_call(&Call::CheckTogether(requests)),
        };
        let Some(answer) = answer else { return false };
        self.answer(match answer {
            Ok(Answer::Decisions(decisions)) => decisions.into_iter().collect(),
            Ok(_) => Err(no_decision()),
            Err(error) => Err(error),
        });
        true
    }

    /// Refunds what has to be refunded. A refund that fails leaves its units spent. Returns whether there was one.
    pub async fn refund(&mut self) -> bool {
        for refund in &self.refunds {
            if let Ok(left) = refund.limiter.refund(request_of(refund)).await {
                self.limits.lock().refunded(refund, left);
            }
        }
        !std::mem::take(&mut self.refunds).is_empty()
    }

    /// As [`refund`](Self::refund); waits on this thread.
    pub fn refund_blocking(&mut self) -> bool {
        for refund in &self.refunds {
            if let Ok(left) = refund.limiter.blocking().refund(request_of(refund)) {
                self.limits.lock().refunded(refund, left);
            }
        }
        !std::mem::take(&mut self.refunds).is_empty()
    }
}
