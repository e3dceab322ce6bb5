//! A call on its way, as a future that whoever waits for it polls, on any thread and in any executor.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::{Either, FutureExt};
use tokio::runtime::Handle;

use super::owned_call::OwnedCall;
use super::waiting::Waiting;
use crate::call::{Answer, Call};
use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;

pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

pub(super) fn answering(limiter: &Limiter, call: OwnedCall) -> Result<Answering, Error> {
    let driver = limiter.shared().driver()?;
    let (runtime, closed) = (driver.handle().clone(), driver.closed());
    let in_line = call.in_line();
    let answer = {
        let limiter = limiter.clone();
        async move {
            tokio::select! {
                biased;
                answer = call.run(&limiter) => answer,
                // Nothing drives it from here on.
                () = closed => Err(self::closed()),
            }
        }
    };
    let answer = AssertUnwindSafe(InRuntime { runtime, future: Box::pin(answer) }).catch_unwind();
    let answering = Box::pin(answer.map(|answer| answer.unwrap_or_else(|_| Err(panicked()))));
    Ok(match in_line {
        Some(request) => Box::pin(Waiting::new(limiter, request, answering)),
        None => answering,
    })
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the limiter was closed before it had answered")
}

pub(super) fn panicked() -> Error {
    Error::new(ErrorKind::Internal, "polylimit panicked: this is a defect in it")
}

impl Limiter {
    /// The call as a future that any executor can poll, inside of a tokio runtime or not, and that owns what it needs. What
    /// needs no waiting is answered here and now. Dropping it gives up a place in line, as with
    /// [`acquire`](Self::acquire); when the limiter is closed meanwhile, it fails with [`Closed`](ErrorKind::Closed).
    pub fn start(
        &self,
        call: &Call<'_>,
    ) -> impl Future<Output = Result<Answer, Error>> + Send + Unpin + 'static + use<> {
        let answering = match self.try_call(call) {
            Some(answer) => Err(answer),
            None => answering(self, OwnedCall::of(call)).map_err(Err),
        };
        match answering {
            Ok(answering) => Either::Left(answering),
            Err(known) => Either::Right(std::future::ready(known)),
        }
    }
}

/// A future that is polled in a runtime that somebody else drives.
struct InRuntime<F> {
    runtime: Handle,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for InRuntime<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let runtime = self.runtime.clone();
        let _entered = runtime.enter();
        self.future.as_mut().poll(context)
    }
}
