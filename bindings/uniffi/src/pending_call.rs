//! Waiting in pieces, for languages in which a thread hears that it is interrupted only when it comes back from native code.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polylimit::{Answer, Call, Completions};

use crate::decision::{Decision, Finding};
use crate::error::{PolylimitError, Result, guarded};
use crate::face::{decision, findings, ready};
use crate::request::Request;
use crate::span::Span;

type Answered = std::result::Result<Answer, polylimit::Error>;

/// A call that was started, and whose answer a thread waits for in pieces.
#[derive(Debug, uniffi::Object)]
pub struct Waiting {
    limiter: polylimit::Limiter,
    completions: Completions<()>,
    state: Mutex<State>,
    /// The request of an acquire: what it was admitted is given back if nobody takes the answer.
    acquired: Option<Request>,
}

#[derive(Debug)]
struct State {
    woken: Receiver<()>,
    answered: Option<Answered>,
}

impl Waiting {
    /// Starts an acquire.
    pub(crate) fn in_line(
        limiter: &polylimit::Limiter,
        request: Request,
        timeout: Duration,
    ) -> Result<Arc<Self>> {
        let mut waiting = Self::start(limiter, &Call::Acquire(request.asked()?, timeout));
        waiting.acquired = Some(request);
        Ok(Arc::new(waiting))
    }

    /// Starts a call that spends nothing.
    pub(crate) fn start(limiter: &polylimit::Limiter, call: &Call<'_>) -> Self {
        let (wake, woken) = channel();
        // When nothing can be sent, this is not there any more.
        let completions = Completions::new(move || _ = wake.send(()));
        let answered = completions.submit(limiter, call, ());
        let state = Mutex::new(State { woken, answered });
        Self { limiter: limiter.clone(), completions, state, acquired: None }
    }

    /// The answer, which is nobody else's from here on.
    fn take<T>(&self, read: impl FnOnce(Answered) -> Result<T>) -> Result<T> {
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
impl Waiting {
    /// Waits for the answer, for so long at most. Says whether it is there.
    pub fn wait(&self, longest: Span) -> Result<bool> {
        let longest = longest.duration("longest")?;
        guarded(|| {
            let until = Instant::now().checked_add(longest);
            let mut state = self.state();
            let State { woken, answered } = &mut *state;
            while answered.is_none() {
                let left = until.map_or(longest, |until| until.saturating_duration_since(Instant::now()));
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

    /// Waits no longer: an acquire gives up its place, and what it was admitted is given back unless its answer was taken.
    pub fn give_up(&self) -> Result<()> {
        guarded(|| {
            if self.completions.abandon(&()) {
                return Ok(());
            }
            self.completions.drain(|(), answer| self.state().answered = Some(answer));
            let answered = self.state().answered.take();
            if let (Some(Ok(Answer::Decision(decision))), Some(request)) = (answered, &self.acquired)
                && decision.allowed()
                && !decision.source().is_outage()
            {
                self.limiter.blocking().refund(request.asked()?)?;
            }
            Ok(())
        })
    }
}
