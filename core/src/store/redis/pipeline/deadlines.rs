//! Waiting for something while the operations in a queue reach their deadlines.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use atomic_waker::AtomicWaker;
use tokio::time::sleep_until;

use crate::store::redis::pipeline::queue::Queue;
use crate::store::redis::transport::failure::Failure;

/// Waits for a future; meanwhile every operation in the queue is answered by its deadline. The future is polled whenever
/// a operation arrives as well.
pub(crate) async fn expiring<F: Future>(
    queue: &Queue,
    task: &AtomicWaker,
    late: Failure,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    let mut timer = pin!(sleep_until(Instant::now().into()));
    poll_fn(|cx| {
        task.register(cx.waker());
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        while let Some(next) = queue.expire(Instant::now(), late) {
            timer.as_mut().reset(next.into());
            if timer.as_mut().poll(cx).is_pending() {
                break;
            }
        }
        Poll::Pending
    })
    .await
}
