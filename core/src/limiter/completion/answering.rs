//! A call on its way, as a future that whoever waits for it polls, on any thread and in any executor.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures_util::future::{Either, FutureExt};
use tokio::runtime::Handle;

use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::limiter::call::{Answer, Call};
use crate::limiter::completion::owned_call::OwnedCall;
use crate::limiter::completion::waiting::{Answering, Waiting};
use crate::runtime::close_signal::closed;

pub(crate) fn answering(limiter: &Limiter, call: OwnedCall) -> Result<Answering, Error> {
    let runtime = limiter.shared().driver().and_then(|driver| Ok(driver.running()?.handle().clone()));
    let runtime = match runtime {
        Ok(runtime) => Some(runtime),
        // The outage policy answers.
        Err(error) if error.kind() == ErrorKind::StoreUnavailable && !call.needs_timer() => None,
        Err(error) => return Err(error),
    };
    let in_line = call.in_line();
    let answer = {
        let limiter = limiter.clone();
        async move {
            let mut answer = pin!(AssertUnwindSafe(call.run(&limiter)).catch_unwind());
            let is_closed = || limiter.shared().is_closed();
            poll_fn(|cx| {
                if is_closed() {
                    // The runtime may have ended, and its timers cannot be used any more.
                    return Poll::Ready(Err(closed()));
                }
                let answer = answer.as_mut().poll(cx);
                answer.map(|answer| {
                    answer.unwrap_or_else(|_| Err(if is_closed() { closed() } else { panicked() }))
                })
            })
            .await
        }
    };
    let Some(runtime) = runtime else { return Ok(Box::pin(answer)) };
    let answering = Box::pin(InRuntime { runtime, future: Box::pin(answer) });
    Ok(match in_line {
        Some(request) => Box::pin(Waiting::new(limiter, request, answering)),
        None => answering,
    })
}

pub(crate) fn panicked() -> Error {
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

/// A future that is polled in a runtime that others drive.
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
