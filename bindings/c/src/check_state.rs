//! A check between two calls: what the store has to do for it, and what it has done.

use std::sync::Mutex;
use std::sync::PoisonError;

use polylimit::Answer;
use polylimit::Call;
use polylimit::Decision;
use polylimit::Error;
use polylimit::Limiter;
use polylimit::Policy;
use polylimit::guard::GuardCheck;
use polylimit::headers::Problem;

use crate::completions::Receiver;
use crate::error::POLYLIMIT_OK;
use crate::error::POLYLIMIT_PENDING;
use crate::error::polylimit_status;

impl Receiver for Mutex<CheckState> {
    fn receive(&self, answer: Result<Answer, Error>) -> Result<Answer, Error> {
        self.lock().unwrap_or_else(PoisonError::into_inner).take(answer);
        Ok(Answer::Ready)
    }
}

/// A check and what the store has done for it.
pub(crate) struct CheckState {
    pub(crate) check: GuardCheck,
    pub(crate) limiter: Limiter,
    /// Whether the store has still to decide.
    pub(crate) is_undecided: bool,
    pub(crate) is_concluded: bool,
    /// The response to a request that does not proceed.
    pub(crate) problem: Option<Problem>,
    /// Whether the next call has to wait, because it could not be answered at once.
    pub(crate) is_tried: bool,
    /// The number of refunds that were made.
    pub(crate) refunded: usize,
}

impl CheckState {
    /// Performs what the store has to do next, until nothing is left or `wait` has no answer yet. `wait` is for calls that
    /// cannot be answered at once.
    pub(crate) fn advance(
        &mut self,
        wait: impl Fn(&Limiter, &Call<'_>) -> Option<Result<Answer, Error>>,
    ) -> polylimit_status {
        let perform = |limiter: &Limiter, call: &Call<'_>, is_tried: bool| {
            let known = if is_tried { None } else { limiter.try_call(call) };
            known.or_else(|| wait(limiter, call))
        };
        loop {
            let answer = if self.is_undecided {
                match &self.check.requests()[..] {
                    [] => Some(Ok(Answer::Decisions(Vec::new()))),
                    [request] => perform(&self.limiter, &Call::Check(*request), self.is_tried),
                    requests => perform(&self.limiter, &Call::CheckTogether(requests), self.is_tried),
                }
            } else {
                match self.check.refunds().nth(self.refunded) {
                    None => return POLYLIMIT_OK,
                    Some((limiter, request)) => perform(limiter, &Call::Refund(request), self.is_tried),
                }
            };
            let Some(answer) = answer else {
                self.is_tried = true;
                return POLYLIMIT_PENDING;
            };
            self.take(answer);
        }
    }

    /// Takes the answer to what was performed last.
    pub(crate) fn take(&mut self, answer: Result<Answer, Error>) {
        self.is_tried = false;
        if self.is_undecided {
            self.is_undecided = false;
            match answer {
                Ok(Answer::Decision(decision)) => self.check.answer_one(Ok(decision)),
                answer => self.check.answer(answer.and_then(decisions)),
            }
        } else {
            if let Ok(Answer::Usage(left)) = answer {
                self.check.refunded(self.refunded, left);
            }
            self.refunded += 1;
        }
    }

    pub(crate) fn outcomes(&self, of_request: u32) -> Vec<(Policy, Decision)> {
        if of_request == 0 { self.check.outcomes() } else { self.check.limits().outcomes() }
    }
}

fn decisions(answer: Answer) -> Result<Vec<Decision>, Error> {
    match answer {
        Answer::Decisions(decisions) => decisions.into_iter().collect(),
        _ => Ok(Vec::new()),
    }
}
