//! Calls that a thread waits for in steps, for languages whose threads notice an interruption only outside of native code.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polylimit::raw::{Answer, Call, Completions};

use crate::decision::{AnswerResult, Decision, Finding, decision, findings, ready};
use crate::error::{PolylimitError, Result, guarded, guarded_async};
use crate::number::Span;
use crate::request::Request;

/// The answer to a call that a task waits for.
pub(crate) type AnswerFuture = Pin<Box<dyn Future<Output = AnswerResult> + Send>>;

pub(crate) async fn answer<T>(
    future: AnswerFuture,
    read: impl FnOnce(AnswerResult) -> Result<T>,
) -> Result<T> {
    guarded_async(async { read(future.await) }).await
}

/// A started call, whose answer a thread waits for in steps.
#[derive(Debug, uniffi::Object)]
pub struct PendingCall {
    limiter: polylimit::Limiter,
    completions: Completions<()>,
    state: Mutex<State>,
    /// The request of an acquire, for the refund if the answer is not taken.
    acquired: Option<Request>,
}

#[derive(Debug)]
struct State {
    woken: Receiver<()>,
    answered: Option<AnswerResult>,
}

impl PendingCall {
    /// Starts an acquire.
    pub(crate) fn acquire(
        limiter: &polylimit::Limiter,
        request: Request,
        timeout: Duration,
    ) -> Result<Arc<Self>> {
        let mut call = Self::start(limiter, &Call::Acquire(request.to_core()?, timeout));
        call.acquired = Some(request);
        Ok(Arc::new(call))
    }

    /// Starts a call that spends nothing.
    pub(crate) fn start(limiter: &polylimit::Limiter, call: &Call<'_>) -> Self {
        let (wake, woken) = channel();
        // Sending fails only when this call has been dropped.
        let completions = Completions::new(move || _ = wake.send(()));
        let answered = limiter.raw().try_call(call).or_else(|| completions.submit(limiter, call, ()));
        let state = Mutex::new(State { woken, answered });
        Self { limiter: limiter.clone(), completions, state, acquired: None }
    }

    /// Takes the answer, so that `cancel` no longer refunds it.
    fn take<T>(&self, read: impl FnOnce(AnswerResult) -> Result<T>) -> Result<T> {
        guarded(|| {
            let answered = self.state().answered.take();
            let none = || PolylimitError::Internal("there is no answer yet, or it was taken".to_owned());
            read(answered.ok_or_else(none)?)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[uniffi::export]
impl PendingCall {
    /// Waits for the answer, at most for `timeout`. Returns whether the answer is there.
    pub fn wait(&self, timeout: Span) -> Result<bool> {
        let timeout = timeout.duration("timeout")?;
        guarded(|| {
            let deadline = Instant::now().checked_add(timeout);
            let mut state = self.state();
            let State { woken, answered } = &mut *state;
            while answered.is_none() {
                let left =
                    deadline.map_or(timeout, |deadline| deadline.saturating_duration_since(Instant::now()));
                if woken.recv_timeout(left).is_err() {
                    break;
                }
                self.completions.drain(|(), answer| *answered = Some(answer));
            }
            Ok(answered.is_some())
        })
    }

    /// The answer to an acquire, once it is there.
    pub fn decision(&self) -> Result<Decision> {
        self.take(decision)
    }

    /// The answer to `ready`, once it is there.
    pub fn ready(&self) -> Result<()> {
        self.take(ready)
    }

    /// The answer to `doctor`, once it is there.
    pub fn findings(&self) -> Result<Vec<Finding>> {
        self.take(findings)
    }

    /// Cancels the call: an acquire leaves the queue, and its units are refunded unless its answer was taken.
    pub fn cancel(&self) -> Result<()> {
        guarded(|| {
            if self.completions.cancel(&()) {
                return Ok(());
            }
            self.completions.drain(|(), answer| self.state().answered = Some(answer));
            let answered = self.state().answered.take();
            if let (Some(Ok(Answer::Decision(decision))), Some(request)) = (answered, &self.acquired)
                && decision.allowed()
                && !decision.source().is_outage()
            {
                self.limiter.blocking().refund(request.to_core()?)?;
            }
            Ok(())
        })
    }
}
