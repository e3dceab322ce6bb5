//! Unix sockets, and what stands for them on a system on which programs cannot use them: listening and connecting fail there.

#[cfg(unix)]
pub(crate) use unix::{LocalListener, LocalStream, connect, user};
#[cfg(not(unix))]
pub(crate) use without::{LocalListener, LocalStream, connect, user};

/// Accepts a connection with each call.
type AcceptLast = Box<dyn FnMut() -> std::io::Result<LocalStream> + Send>;

#[cfg(unix)]
mod unix {
    use std::fs;
    use std::io;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::path::Path;

    use tokio::net::{UnixListener, UnixStream};

    use super::AcceptLast;

    pub(crate) type LocalStream = UnixStream;

    pub(crate) struct LocalListener(UnixListener);

    impl LocalListener {
        /// Opens a socket whose file has this mode. One that a dead process has left there is replaced; anything else is not.
        pub(crate) fn bind(path: &Path, mode: u32) -> io::Result<Self> {
            let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
            if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
                fs::remove_file(path)?;
            }
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            Ok(Self(listener))
        }

        pub(crate) async fn accept(&self) -> io::Result<LocalStream> {
            Ok(self.0.accept().await?.0)
        }

        /// Accepts the connections that it has already.
        pub(crate) fn accept_last(self) -> io::Result<AcceptLast> {
            let listener = self.0.into_std()?;
            Ok(Box::new(move || {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                UnixStream::from_std(stream)
            }))
        }
    }

    pub(crate) async fn connect(path: &Path) -> io::Result<LocalStream> {
        UnixStream::connect(path).await
    }

    /// The number of the user at the other end.
    pub(crate) fn user(stream: &LocalStream) -> Option<u32> {
        stream.peer_cred().ok().map(|credentials| credentials.uid())
    }
}

#[cfg(not(unix))]
mod without {
    use std::convert::Infallible;
    use std::io;
    use std::path::Path;

    use super::AcceptLast;

    /// There is none.
    pub(crate) type LocalStream = tokio::net::TcpStream;

    pub(crate) struct LocalListener(Infallible);

    impl LocalListener {
        pub(crate) fn bind(_path: &Path, _mode: u32) -> io::Result<Self> {
            Err(missing())
        }

        #[expect(clippy::unused_async, reason = "as on other systems")]
        pub(crate) async fn accept(&self) -> io::Result<LocalStream> {
            match self.0 {}
        }

        pub(crate) fn accept_last(self) -> io::Result<AcceptLast> {
            match self.0 {}
        }
    }

    #[expect(clippy::unused_async, reason = "as on other systems")]
    pub(crate) async fn connect(_path: &Path) -> io::Result<LocalStream> {
        Err(missing())
    }

    pub(crate) fn user(_stream: &LocalStream) -> Option<u32> {
        None
    }

    fn missing() -> io::Error {
        io::Error::other(
            "programs on this system cannot use Unix sockets: name an address, as in http://127.0.0.1:8180",
        )
    }
}
