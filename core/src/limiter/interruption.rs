//! Waiting that the caller can interrupt, for languages in which a waiting thread has to handle signals now and then.

use std::pin::pin;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::Error;
use crate::limiter::blocking;
use crate::limiter::call::{Answer, Call};
use crate::runtime::sleep::at_most;

impl blocking::Limiter {
    /// Performs the call and blocks this thread, as [`call_store`](Self::call_store) does, until it is answered or `stop`
    /// returns `true`; then the answer is `None`. This thread calls `stop` each time `every` has passed without an
    /// answer, and `stop` may use the limiter.
    ///
    /// When an [`acquire`](Self::acquire) is stopped, the caller leaves the queue, and units that the store has spent for
    /// it are refunded, as described [there](crate::Limiter::acquire). Another operation may have been applied.
    ///
    /// On a thread of a tokio runtime `stop` is never called, and the call waits to the end.
    pub fn call_until(
        &self,
        call: &Call<'_>,
        every: Duration,
        mut stop: impl FnMut() -> bool,
    ) -> Option<Result<Answer, Error>> {
        if Handle::try_current().is_ok() {
            return Some(self.call_store(call));
        }
        let limiter = self.asynchronous();
        let driver = match limiter.shared().driver_to_wait_on() {
            Ok(driver) => driver,
            Err(error) => return Some(Err(error)),
        };
        let mut answer = pin!(limiter.call_store(call));
        loop {
            // The thread leaves the runtime before it calls `stop`, so that other threads and `stop` itself can drive it
            // meanwhile.
            match driver.block_on(at_most(every, answer.as_mut())) {
                Ok(Some(answer)) => return Some(answer),
                Err(error) => return Some(Err(error)),
                Ok(None) if stop() => return None,
                Ok(None) => {}
            }
        }
    }
}
