//! The byte stream to a server: TCP, a Unix socket or TLS; and the TLS configuration, from the options.
//!
//! The cryptography provider is named explicitly (ring), so that other crates in the process cannot change it. Messages
//! name the option and the file; they never contain anything that was read from it.

pub(crate) mod trust;

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::client::TlsStream;

use crate::config::target::{Identity, Tls};
use crate::transport::stream::trust::{Verifier, certificates, unreadable};
use polylimit_rules::error::Error;
#[cfg(feature = "testing")]
use polylimit_runtime::simulation::Socket;

/// The number of bytes that one read of unseen input takes.
const UNSEEN_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "testing")]
    Simulated(Box<dyn Socket>),
}

impl Stream {
    /// Whether the server has closed its side, as far as the system knows; valid only while no reply is expected.
    pub(crate) fn is_finished(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = match self {
            Self::Tcp(tcp) => SockRef::from(tcp).peek(&mut byte),
            Self::Tls(tls) => SockRef::from(tls.get_ref().0).peek(&mut byte),
            #[cfg(unix)]
            Self::Unix(unix) => SockRef::from(unix).peek(&mut byte),
            #[cfg(feature = "testing")]
            Self::Simulated(socket) => return socket.has_input_or_end(),
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
            #[cfg(unix)]
            Self::Unix(unix) => (&*SockRef::from(&*unix)).read(&mut bytes)?,
            #[cfg(feature = "testing")]
            Self::Simulated(socket) => socket.read_arrived(&mut bytes)?,
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
            #[cfg(unix)]
            Self::Unix(_) => return,
            #[cfg(feature = "testing")]
            Self::Simulated(socket) => return socket.reset_when_closed(),
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
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(feature = "testing")]
            Self::Simulated(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(feature = "testing")]
            Self::Simulated(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(feature = "testing")]
            Self::Simulated(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "testing")]
            Self::Simulated(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The configuration of every handshake. Reads the files synchronously.
pub(crate) fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::new(tls, Arc::clone(&provider))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|reason| Error::invalid_argument(format!("TLS cannot be used: {reason}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = certificates("tls_cert", certificate)?;
            let private_key = private_key(key)?;
            builder.with_client_auth_cert(chain, private_key).map_err(|reason| {
                Error::invalid_argument(format!(
                    "tls_cert {} and tls_key {} cannot be used together: {reason}",
                    certificate.display(),
                    key.display()
                ))
            })?
        }
    };
    Ok(Arc::new(config))
}

/// The name that a host's certificate must contain.
pub(crate) fn server_name(tls: &Tls, host: &str) -> Result<ServerName<'static>, Error> {
    let name = tls.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned()).map_err(|_| {
        Error::invalid_argument(
            "the host is not a name that a certificate can have: set tls_server_name to one that is",
        )
    })
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(file).map_err(|reason| unreadable("tls_key", file, "private key", &reason))
}

#[cfg(test)]
mod tests;
