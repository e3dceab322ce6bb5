//! A check between two calls: what the store has to do for it, and what it has done.

use std::sync::Mutex;
use std::sync::PoisonError;

use polylimit::Decision;
use polylimit::Error;
use polylimit::Limiter;
use polylimit::Policy;
use polylimit::http::guard::GuardCheck;
use polylimit::http::headers::Problem;
use polylimit::raw::Answer;
use polylimit::raw::Call;

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
    /// Whether the store has still to decide.
    pub(crate) is_undecided: bool,
    pub(crate) is_concluded: bool,
    /// The response to a request that does not proceed.
    pub(crate) problem: Option<Problem>,
    /// Whether the next call has to wait, because it could not be answered at once.
    pub(crate) is_tried: bool,
}

impl CheckState {
    /// Makes the calls that the check needs next, until none is left or `wait` has no answer yet. `wait` is for calls that
    /// cannot be answered at once.
    pub(crate) fn advance(
        &mut self,
        wait: impl Fn(&Limiter, &Call<'_>) -> Option<Result<Answer, Error>>,
    ) -> polylimit_status {
        loop {
            let is_tried = self.is_tried;
            let answer = self.check.next_call(|limiter, call| {
                let known = if is_tried { None } else { limiter.raw().try_call(call) };
                known.or_else(|| wait(limiter, call))
            });
            match answer {
                None => {
                    self.is_undecided = false;
                    return POLYLIMIT_OK;
                }
                Some(None) => {
                    self.is_tried = true;
                    return POLYLIMIT_PENDING;
                }
                Some(Some(answer)) => self.take(answer),
            }
        }
    }

    /// Takes the answer to the call that was made last.
    pub(crate) fn take(&mut self, answer: Result<Answer, Error>) {
        self.is_tried = false;
        self.check.answer_call(answer);
        self.is_undecided &= self.check.next_call(|_, _| ()).is_some();
    }

    pub(crate) fn outcomes(&self, of_request: u32) -> Vec<(Policy, Decision)> {
        if of_request == 0 { self.check.outcomes() } else { self.check.limits().outcomes() }
    }
}
