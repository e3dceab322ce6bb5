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

use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::call::Answer;
use crate::limiter::completion::owned_call::OwnedRequest;
use crate::runtime::close_signal::closed;

/// A call under way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

pub(crate) struct Waiting {
    place: Arc<Source>,
    /// Where its answer arrives; none as long as it has not been polled: mostly it needs no waiting.
    answered: Option<Receiver<Told>>,
}

type Told = Result<Answer, Error>;

struct Source {
    limiter: Limiter,
    request: OwnedRequest,
    /// What waits; nothing any more once it is over, or nobody wants it.
    answering: Mutex<Option<Answering>>,
}

impl Waiting {
    pub(crate) fn new(limiter: &Limiter, request: OwnedRequest, answering: Answering) -> Self {
        let (limiter, answering) = (limiter.clone(), Mutex::new(Some(answering)));
        Self { place: Arc::new(Source { limiter, request, answering }), answered: None }
    }
}

impl Future for Waiting {
    type Output = Told;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Told> {
        let Self { place, answered } = &mut *self;
        let answered = if let Some(answered) = answered {
            answered
        } else {
            // What wakes it comes too late to be heard here: it is polled there first of all.
            if let Poll::Ready(told) = place.poll(&mut Context::from_waker(Waker::noop())) {
                place.leave();
                return Poll::Ready(told);
            }
            let (tell, told) = oneshot::channel();
            place.limiter.shared().driver()?.spawn(Arc::clone(place).wait(tell));
            answered.insert(told)
        };
        Pin::new(answered).poll(cx).map(|told| told.unwrap_or_else(|_| Err(closed())))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The place in line is free at once. The task ends because nobody listens any more.
        self.place.leave();
        if let Some(answered) = &mut self.answered {
            answered.close();
            // What was told and not heard.
            if let Ok(told) = answered.try_recv() {
                self.place.give_back(&told);
            }
        }
    }
}

impl Source {
    async fn wait(self: Arc<Self>, mut tell: Sender<Told>) {
        let told = tokio::select! {
            biased;
            () = tell.closed() => return,
            told = poll_fn(|cx| self.poll(cx)) => told,
        };
        self.leave();
        if let Err(unheard) = tell.send(told) {
            self.give_back(&unheard);
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Told> {
        match &mut *self.answering.lock() {
            Some(answering) => answering.as_mut().poll(cx),
            None => Poll::Ready(Err(closed())),
        }
    }

    fn leave(&self) {
        let answering = self.answering.lock().take();
        // Not under the lock: it lets others on, and they may be here.
        drop(answering);
    }

    /// Nobody uses what was admitted: its units are others'.
    fn give_back(self: &Arc<Self>, told: &Told) {
        let Ok(Answer::Decision(decision)) = told else { return };
        if !decision.allowed() || decision.source().is_outage() {
            return;
        }
        if self.limiter.answers_at_once() {
            // Who closes the limiter meanwhile wants nothing of it.
            let _ = self.limiter.blocking().refund(self.request.request());
        } else if let Ok(driver) = self.limiter.shared().driver() {
            let place = Arc::clone(self);
            // What the store cannot give back stays spent, as with any refund.
            driver.spawn(async move { drop(place.limiter.refund(place.request.request()).await) });
        }
    }
}
