//! The byte stream to a server: TCP, a Unix socket or TLS.

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

/// The number of bytes that one read of unseen input takes.
const UNSEEN_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// Whether the server has closed its side, as far as the system knows; valid only while no reply is expected.
    pub(crate) fn is_finished(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = match self {
            Self::Tcp(tcp) => SockRef::from(tcp).peek(&mut byte),
            Self::Tls(tls) => SockRef::from(tls.get_ref().0).peek(&mut byte),
            Self::Unix(unix) => SockRef::from(unix).peek(&mut byte),
        };
        // No available input is the normal case: an idle server sends nothing but the end of a TLS session.
        !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Reads input that has arrived but that the runtime has not seen: the runtime checks only when all tasks have had
    /// their turn. [`WouldBlock`](io::ErrorKind::WouldBlock) when there is none.
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

    /// Whether a failed write may have sent a part of its data: TLS splits data into records and writes each of them
    /// separately.
    pub(crate) fn may_fail_in_between(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Makes the socket send a reset when it is closed, so that the server discards input that it has not read yet. Has
    /// no effect on sockets without a reset.
    pub(crate) fn reset_when_closed(&self) {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
            Self::Unix(_) => return,
        };
        // If this fails, the socket is closed normally.
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
