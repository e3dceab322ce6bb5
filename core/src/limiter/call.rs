//! One operation as a value, so that a caller such as a binding passes all operations in the same way.

use std::time::Duration;

use crate::error::Error;
use crate::limiter::blocking;
use crate::limiter::{CHECK, Limiter, usage};
use crate::rules::decision::{Decision, Usage};
use crate::rules::request::Request;
use crate::rules::transition::Operation;
use crate::store::finding::Finding;
use crate::store::request::Action;

/// An operation of a [`Limiter`] with its arguments.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Call<'a> {
    /// See [`Limiter::check`].
    Check(Request<'a>),
    /// See [`Limiter::peek`].
    Peek(Request<'a>),
    /// See [`Limiter::take`].
    Take(Request<'a>),
    /// See [`Limiter::charge`].
    Charge(Request<'a>),
    /// See [`Limiter::refund`].
    Refund(Request<'a>),
    /// See [`Limiter::reset`].
    Reset(Request<'a>),
    /// See [`Limiter::check_many`].
    CheckMany(&'a [Request<'a>]),
    /// See [`Limiter::check_together`].
    CheckTogether(&'a [Request<'a>]),
    /// See [`Limiter::acquire`].
    Acquire(Request<'a>, Duration),
    /// See [`Limiter::ready`].
    Ready(Duration),
    /// See [`Limiter::doctor`].
    Doctor,
}

/// The answer to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The answer to a check, a peek or an acquire.
    Decision(Decision),
    /// The answer to a take, a charge, a refund or a reset.
    Usage(Usage),
    /// The answers to checks of several requests, in their order. A [`Call::CheckTogether`] that succeeds has no errors
    /// among them.
    Decisions(Vec<Result<Decision, Error>>),
    /// The store answers.
    Ready,
    /// What the doctor found.
    Findings(Vec<Finding>),
}

impl Answer {
    fn of_each(decisions: Vec<Decision>) -> Self {
        Self::Decisions(decisions.into_iter().map(Ok).collect())
    }
}

/// The form of the answer to an action on one key.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Decision,
    Usage,
}

impl Form {
    fn of(self, answer: crate::store::request::Answer) -> Answer {
        match self {
            Self::Decision => Answer::Decision(answer.0),
            Self::Usage => Answer::Usage(usage(answer)),
        }
    }
}

impl<'a> Call<'a> {
    /// The action, if the call is an action on one key.
    pub(crate) fn action(&self) -> Option<(Action, Request<'a>, Form)> {
        let apply = Action::Apply;
        Some(match *self {
            Self::Check(request) => (CHECK, request, Form::Decision),
            Self::Peek(request) => (apply(Operation::Peek), request, Form::Decision),
            Self::Take(request) => (apply(Operation::Take), request, Form::Usage),
            Self::Charge(request) => (apply(Operation::Charge), request, Form::Usage),
            Self::Refund(request) => (apply(Operation::Refund), request, Form::Usage),
            Self::Reset(request) => (Action::Reset, request, Form::Usage),
            Self::CheckMany(_)
            | Self::CheckTogether(_)
            | Self::Acquire(..)
            | Self::Ready(_)
            | Self::Doctor => return None,
        })
    }
}

impl Limiter {
    /// Answers a call that need not wait: from memory, from the store of this host, from the denial cache or from a
    /// lease. Every call enters here, and only here does a check look into the caches. `None` when the call has to wait
    /// for a store: then nothing was done yet, and the caller goes on with [`call_store`](Self::call_store).
    pub fn try_call(&self, call: &Call<'_>) -> Option<Result<Answer, Error>> {
        let shared = self.shared();
        if let Call::Check(request) = call
            && let Some(decision) = shared.check_known(*request)
        {
            return Some(Ok(Answer::Decision(decision)));
        }
        if let Some((action, request, form)) = call.action() {
            return Some(shared.try_ask(action, request).transpose()?.map(|answer| form.of(answer)));
        }
        match call {
            Call::CheckMany(requests) if shared.store().is_here() => {
                Some(Ok(Answer::Decisions(shared.check_many_blocking(requests.iter().copied()))))
            }
            Call::CheckTogether(requests) if shared.store().is_here() => {
                Some(self.blocking().check_together(requests).map(Answer::of_each))
            }
            _ => None,
        }
    }

    pub(crate) async fn act(
        &self,
        action: Action,
        request: Request<'_>,
        form: Form,
    ) -> Result<Answer, Error> {
        self.shared().ask(action, request).await.map(|answer| form.of(answer))
    }

    /// Performs the call.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn call(&self, call: &Call<'_>) -> Result<Answer, Error> {
        match self.try_call(call) {
            Some(answer) => answer,
            None => self.call_store(call).await,
        }
    }

    /// Performs the call after [`try_call`](Self::try_call) returned `None`, without another look into the caches.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn call_store(&self, call: &Call<'_>) -> Result<Answer, Error> {
        if let Some((action, request, form)) = call.action() {
            return self.act(action, request, form).await;
        }
        Ok(match call {
            Call::CheckMany(requests) => Answer::Decisions(self.check_many(requests.iter().copied()).await),
            Call::CheckTogether(requests) => self.check_together(requests).await.map(Answer::of_each)?,
            Call::Acquire(request, timeout) => Answer::Decision(self.acquire(*request, *timeout).await?),
            Call::Ready(timeout) => self.ready(*timeout).await.map(|()| Answer::Ready)?,
            _ => Answer::Findings(self.doctor().await?),
        })
    }
}

impl blocking::Limiter {
    /// Performs the call and blocks this thread until it is answered.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn call(&self, call: &Call<'_>) -> Result<Answer, Error> {
        self.asynchronous().try_call(call).unwrap_or_else(|| self.call_store(call))
    }

    /// Performs the call and blocks this thread, after [`try_call`](Limiter::try_call) returned `None`, without another
    /// look into the caches.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn call_store(&self, call: &Call<'_>) -> Result<Answer, Error> {
        if let Some((action, request, form)) = call.action() {
            let answer = self.asynchronous().shared().ask_blocking(action, request)?;
            return Ok(form.of(answer));
        }
        Ok(match call {
            Call::CheckMany(requests) => Answer::Decisions(self.check_many(requests.iter().copied())),
            Call::CheckTogether(requests) => self.check_together(requests).map(Answer::of_each)?,
            Call::Acquire(request, timeout) => Answer::Decision(self.acquire(*request, *timeout)?),
            Call::Ready(timeout) => self.ready(*timeout).map(|()| Answer::Ready)?,
            _ => Answer::Findings(self.doctor()?),
        })
    }
}
