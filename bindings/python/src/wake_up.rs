//! A file descriptor that an event loop watches and that any thread can make readable.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

#[cfg(target_os = "linux")]
pub(crate) struct WakeUp(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl WakeUp {
    pub(crate) fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable. The counter cannot overflow, because the loop reads it between two writes.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable again.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) struct WakeUp {
    written: std::os::unix::net::UnixStream,
    read: std::os::unix::net::UnixStream,
}

#[cfg(not(target_os = "linux"))]
impl WakeUp {
    pub(crate) fn new() -> io::Result<Self> {
        let (written, read) = std::os::unix::net::UnixStream::pair()?;
        written.set_nonblocking(true)?;
        read.set_nonblocking(true)?;
        Ok(Self { written, read })
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        let _ = io::Write::write(&mut &self.written, &[1]);
    }

    /// Makes the descriptor unreadable again.
    pub(crate) fn clear(&self) {
        let _ = io::Read::read(&mut &self.read, &mut [0_u8; 64]);
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}
