//! The file descriptor that an event loop watches.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use polylimit::ErrorKind;
use rustix::event::{EventfdFlags, eventfd};

use crate::failure::Failure;

/// Readable from the first `raise` until `lower`.
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> Result<Self, Failure> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        event.map(Self).map_err(|error| {
            Failure::new(
                ErrorKind::Internal,
                format!("the system gives no file descriptor to watch: {error}"),
            )
        })
    }

    /// Writing fails only when the counter is full, and then it is readable already.
    pub(crate) fn raise(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Reading fails only when it is not readable.
    pub(crate) fn lower(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
