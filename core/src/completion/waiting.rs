//! A call that stands in line with others.
//!
//! It may have a turn there, on which those behind it wait. So what has to wait does so on the thread that drives the limiter,
//! and whoever asked only hears of its answer: an event loop that is blocked, or stopped for good, keeps nobody else waiting.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::oneshot::{self, Receiver, Sender};

use super::answering::{Answering, closed};
use crate::call::Answer;
use crate::error::Error;
use crate::limiter::Limiter;

pub(super) struct Waiting {
    limiter: Limiter,
    state: State,
}

enum State {
    /// Not polled yet: mostly it needs no waiting.
    Here(Answering),
    There(Arc<Place>, Receiver<Result<Answer, Error>>),
}

/// What waits on the other thread; nothing any more once it is over, or nobody wants it.
struct Place(Mutex<Option<Answering>>);

impl Waiting {
    pub(super) fn new(limiter: &Limiter, answering: Answering) -> Self {
        Self { limiter: limiter.clone(), state: State::Here(answering) }
    }
}

impl Future for Waiting {
    type Output = Result<Answer, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { limiter, state } = &mut *self;
        loop {
            match state {
                State::Here(answering) => {
                    // What wakes it comes too late to be heard here: it is polled there first of all.
                    let answer = answering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    if answer.is_ready() {
                        return answer;
                    }
                    let driver = limiter.shared().driver()?;
                    let answering = std::mem::replace(answering, Box::pin(std::future::pending()));
                    let place = Arc::new(Place(Mutex::new(Some(answering))));
                    let (tell, answered) = oneshot::channel();
                    driver.spawn(Arc::clone(&place).wait(tell));
                    *state = State::There(place, answered);
                }
                State::There(_, answered) => {
                    return Pin::new(answered).poll(cx).map(|told| told.unwrap_or_else(|_| Err(closed())));
                }
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The place in line is free at once. The task ends because nobody listens any more.
        if let State::There(place, _) = &self.state {
            place.leave();
        }
    }
}

impl Place {
    async fn wait(self: Arc<Self>, mut tell: Sender<Result<Answer, Error>>) {
        let answer = tokio::select! {
            biased;
            () = tell.closed() => return,
            answer = poll_fn(|cx| self.poll(cx)) => answer,
        };
        self.leave();
        if let Some(answer) = answer {
            // Who has just gone away does not need it.
            let _ = tell.send(answer);
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Answer, Error>>> {
        match &mut *self.0.lock() {
            Some(answering) => answering.as_mut().poll(cx).map(Some),
            None => Poll::Ready(None),
        }
    }

    fn leave(&self) {
        let answering = self.0.lock().take();
        // Not under the lock: it lets others on, and they may be here.
        drop(answering);
    }
}
