//! The byte stream to a server, whatever it runs over.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// So many bytes are read at a time of what is not seen.
const UNSEEN_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// Whether the server has closed its side, as far as the system knows already; only for while nothing is asked of it.
    pub(crate) fn is_finished(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = match self {
            Self::Tcp(tcp) => SockRef::from(tcp).peek(&mut byte),
            Self::Tls(tls) => SockRef::from(tls.get_ref().0).peek(&mut byte),
            Self::Unix(unix) => SockRef::from(unix).peek(&mut byte),
        };
        // Nothing to read yet is how it has to be: what a server says that is asked nothing is, in TLS, that it closes.
        !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Reads what has arrived and the runtime has not seen: it looks only when all tasks have had their turn.
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when there is nothing.
    pub(crate) fn read_unseen(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        let mut bytes = [0; UNSEEN_BYTES];
        let read = match self {
            Self::Tcp(tcp) => (&*SockRef::from(&*tcp)).read(&mut bytes)?,
            Self::Unix(unix) => (&*SockRef::from(&*unix)).read(&mut bytes)?,
            Self::Tls(tls) => {
                let (tcp, session) = tls.get_mut();
                if session.read_tls(&mut &*SockRef::from(&*tcp))? == 0 {
                    return Ok(0);
                }
                session.process_new_packets().map_err(io::Error::other)?;
                session.reader().read(&mut bytes)?
            }
        };
        into.extend_from_slice(&bytes[..read]);
        Ok(read)
    }

    /// Whether a write that failed may have sent part of what it was given: TLS divides it into records, of which each is
    /// written for itself.
    pub(crate) fn may_fail_in_between(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Has the socket reset when it is closed, so that the server drops what it has not read of it yet. Does nothing
    /// where there is nothing to reset.
    pub(crate) fn reset_when_closed(&self) {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
            Self::Unix(_) => return,
        };
        // It is about to be closed either way.
        let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
