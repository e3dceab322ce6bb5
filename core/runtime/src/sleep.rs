//! Sleeping until a moment, on a thread that drives a runtime and on a thread that waits while another drives.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::monotonic::{self, Instant};
use crate::park;

/// Ends at a moment. On a thread that only waits, the thread checks the time itself, since the driving thread may be
/// late.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are polled"]
pub struct Sleep {
    until: Instant,
    /// Set where a runtime's timer keeps the time. In WebAssembly there is none, and nothing that sleeps is offered.
    #[cfg(not(target_family = "wasm"))]
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// Waits until the given moment.
pub fn sleep_until(until: Instant) -> Sleep {
    Sleep {
        until,
        #[cfg(not(target_family = "wasm"))]
        timer: None,
    }
}

/// Waits for a duration.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(monotonic::now() + duration)
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if park::is_waiting() {
            let is_past = park::is_past(self.until);
            return if is_past { Poll::Ready(()) } else { Poll::Pending };
        }
        self.poll_timer(cx)
    }
}

impl Sleep {
    #[cfg(not(target_family = "wasm"))]
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = self.until.into();
        self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until))).as_mut().poll(cx)
    }

    #[cfg(target_family = "wasm")]
    fn poll_timer(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        if self.until <= monotonic::now() { Poll::Ready(()) } else { Poll::Pending }
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
