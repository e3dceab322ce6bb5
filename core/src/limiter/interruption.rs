//! Waiting that somebody can end: for languages in which a thread that waits has to look after signals now and then.

use std::pin::pin;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::Error;
use crate::limiter::blocking;
use crate::limiter::call::{Answer, Call};
use crate::runtime::sleep::at_most;

impl blocking::Limiter {
    /// Does what the call says and waits on this thread, as [`call_store`](Self::call_store) does, until `stop` says to stop: then the
    /// answer is `None`. `stop` is asked each time that so long has passed without an answer, on this thread, and may use
    /// the limiter.
    ///
    /// A caller that stops waiting in [`acquire`](Self::acquire) gives up its place, and units that the store has spent for it
    /// are refunded, as [there](crate::Limiter::acquire). Another operation may have been applied.
    ///
    /// On a thread of a tokio runtime nothing is asked, and it waits to the end.
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
            // The runtime is left before anybody is asked, so that others, and `stop` itself, can drive it meanwhile.
            match driver.block_on(at_most(every, answer.as_mut())) {
                Ok(Some(answer)) => return Some(answer),
                Err(error) => return Some(Err(error)),
                Ok(None) if stop() => return None,
                Ok(None) => {}
            }
        }
    }
}
