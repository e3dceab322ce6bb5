//! What must not hang is given so long and no longer.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// What `act` answers, on a thread of its own; panics when it panics or does not come back.
pub(crate) fn within_reason<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = channel();
    let thread = thread::spawn(move || drop(done.send(act())));
    match wait.recv_timeout(PATIENCE) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it ended without an answer"))
        }
    }
}
