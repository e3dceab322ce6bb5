//! A descriptor that an event loop watches, and that any thread can make readable.

#[cfg(target_os = "linux")]
pub use linux::EventDescriptor;
#[cfg(not(target_os = "linux"))]
pub use pair::EventDescriptor;

/// A file descriptor, or on Windows a socket.
#[cfg(unix)]
pub type RawDescriptor = std::os::fd::RawFd;
/// A file descriptor, or on Windows a socket.
#[cfg(windows)]
pub type RawDescriptor = std::os::windows::io::RawSocket;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    use super::RawDescriptor;

    /// A descriptor that is readable from the first [`raise`](Self::raise) until [`lower`](Self::lower).
    #[derive(Debug)]
    pub struct EventDescriptor(OwnedFd);

    impl EventDescriptor {
        /// # Errors
        /// When the process has as many descriptors as it may.
        pub fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        /// Ignores an error of the write: it fails only when the counter is full, and then the descriptor is readable already.
        pub fn raise(&self) {
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        /// Ignores an error of the read: it fails only when the descriptor is not readable.
        pub fn lower(&self) {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }

        pub fn descriptor(&self) -> RawDescriptor {
            self.0.as_raw_fd()
        }
    }
}

/// Two connected sockets: what is written to one makes the other readable.
#[cfg(not(target_os = "linux"))]
mod pair {
    use std::io::{self, Read as _, Write as _};
    #[cfg(windows)]
    use std::net::{Ipv4Addr, TcpListener, TcpStream as Socket};
    #[cfg(unix)]
    use std::os::fd::AsRawFd as _;
    #[cfg(unix)]
    use std::os::unix::net::UnixStream as Socket;
    #[cfg(windows)]
    use std::os::windows::io::AsRawSocket as _;

    use super::RawDescriptor;

    /// A descriptor that is readable from the first [`raise`](Self::raise) until [`lower`](Self::lower).
    #[derive(Debug)]
    pub struct EventDescriptor {
        written: Socket,
        watched: Socket,
    }

    impl EventDescriptor {
        /// # Errors
        /// When the process has as many descriptors as it may.
        pub fn new() -> io::Result<Self> {
            let (written, watched) = connected()?;
            written.set_nonblocking(true)?;
            watched.set_nonblocking(true)?;
            Ok(Self { written, watched })
        }

        /// Ignores an error of the write: it fails only when the socket is full, and then the other is readable already.
        pub fn raise(&self) {
            let _ = (&self.written).write(&[1]);
        }

        /// Ignores an error of the read: it fails only when the socket is not readable.
        pub fn lower(&self) {
            let mut read = [0; 64];
            while (&self.watched).read(&mut read).is_ok_and(|bytes| bytes == read.len()) {}
        }

        #[cfg(unix)]
        pub fn descriptor(&self) -> RawDescriptor {
            self.watched.as_raw_fd()
        }

        #[cfg(windows)]
        pub fn descriptor(&self) -> RawDescriptor {
            self.watched.as_raw_socket()
        }
    }

    #[cfg(unix)]
    fn connected() -> io::Result<(Socket, Socket)> {
        Socket::pair()
    }

    /// Windows has no pairs: one connects to the other, which takes no connection of another process.
    #[cfg(windows)]
    fn connected() -> io::Result<(Socket, Socket)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let written = Socket::connect(listener.local_addr()?)?;
        written.set_nodelay(true)?;
        loop {
            let (watched, peer) = listener.accept()?;
            if peer == written.local_addr()? {
                return Ok((written, watched));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_is_raised_by_other_threads_any_number_of_times() {
        let event = EventDescriptor::new().unwrap();
        assert_ne!(event.descriptor(), EventDescriptor::new().unwrap().descriptor());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| event.raise()));
            }
        });
        event.lower();
        event.lower();
    }
}
