//! Sleeping until a moment, on a thread that drives a runtime and on a thread that waits while another drives.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::monotonic;
use crate::park;

/// Ends at a moment. On a thread that only waits, the thread checks the time itself, since the driving thread may be
/// late.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are polled"]
pub struct Sleep {
    until: Instant,
    /// Set where a runtime's timer keeps the time.
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// Waits until the given moment.
pub fn sleep_until(until: Instant) -> Sleep {
    Sleep { until, timer: None }
}

/// Waits for a duration.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until((monotonic::now() + duration).into())
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if park::is_waiting() {
            let is_past = park::is_past(self.until.into_std());
            return if is_past { Poll::Ready(()) } else { Poll::Pending };
        }
        let until = self.until;
        self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until))).as_mut().poll(cx)
    }
}

/// Waits for a future with a timeout; `None` when it passes.
pub async fn at_most<F: Future>(longest: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut end) = (pin!(future), sleep(longest));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        ready!(Pin::new(&mut end).poll(cx));
        Poll::Ready(None)
    })
    .await
}
