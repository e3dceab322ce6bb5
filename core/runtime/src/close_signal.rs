//! A signal that an object was closed.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::sync::Semaphore;

use polylimit_rules::error::{Error, ErrorKind};

/// A one-way switch from open to closed.
#[derive(Debug)]
pub struct CloseSignal {
    /// Never has permits; only its closing is of use.
    open: Semaphore,
}

impl Default for CloseSignal {
    fn default() -> Self {
        Self { open: Semaphore::new(0) }
    }
}

impl CloseSignal {
    pub fn close(&self) {
        self.open.close();
    }

    pub fn is_closed(&self) -> bool {
        self.open.is_closed()
    }

    /// Waits until the signal is closed.
    pub async fn closed(&self) {
        drop(self.open.acquire().await);
    }

    /// The output of `future`, or the `closed` error if the signal is closed first. A future that is ready at once costs
    /// no more than polling it.
    pub async fn unless_closed<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let (mut future, mut closing) = (pin!(future), pin!(self.closed()));
        poll_fn(|cx| {
            if self.is_closed() {
                return Poll::Ready(Err(closed()));
            }
            match future.as_mut().poll(cx) {
                Poll::Pending => closing.as_mut().poll(cx).map(|()| Err(closed())),
                ready @ Poll::Ready(_) => ready,
            }
        })
        .await
    }
}

/// The error of every operation on a closed object.
#[cold]
pub fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the limiter is closed")
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match pin!(future).poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_waits_ends_when_it_is_closed() {
        let closing = CloseSignal::default();
        assert_eq!(now(closing.unless_closed(ready(Ok(1)))), Some(Ok(1)));
        assert_eq!(now(closing.unless_closed(pending::<Result<(), Error>>())), None);
        let mut waiting = pin!(closing.unless_closed(pending::<Result<(), Error>>()));
        assert_eq!(now(waiting.as_mut()), None);
        closing.close();
        closing.close();
        assert_eq!(now(waiting), Some(Err(closed())));
        assert_eq!(now(closing.unless_closed(ready(Ok(1)))), Some(Err(closed())));
        assert_eq!(now(closing.closed()), Some(()));
    }
}
