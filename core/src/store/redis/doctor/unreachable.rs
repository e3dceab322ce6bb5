//! Why no connection can be made: the name, the socket, TLS, or a server that expects the other one of TLS and none.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{self, CertificateError};

use crate::store::redis::config::target::Endpoint;
use crate::store::redis::transport::CONNECT_TIMEOUT;
use crate::store::redis::transport::connect::{Address, Connector};
use crate::store::redis::transport::stream::server_name;

/// How long a server without TLS is waited for: one with TLS that gets plain text closes the connection or sends an alert at once.
const FIRST_BYTE: Duration = Duration::from_millis(500);

/// The server as the user, the sentinels or the cluster have named it.
pub(super) fn name_of(address: &Address) -> String {
    match address {
        Address::Tcp(Endpoint { host, port }) if host.contains(':') => {
            format!("the server at [{host}]:{port}")
        }
        Address::Tcp(Endpoint { host, port }) => format!("the server at {host}:{port}"),
        Address::Unix(path) => format!("the server at {}", path.display()),
        Address::Service { service, .. } => format!("the primary of {service}"),
    }
}

/// Why there is no connection to the server, and what to do.
pub(super) async fn cause(connector: &Connector, address: &Address) -> String {
    let found = match address {
        Address::Tcp(endpoint) => timeout(CONNECT_TIMEOUT, of_tcp(connector, endpoint)).await.ok(),
        Address::Unix(path) => Some(UnixStream::connect(path).await.err().map(|error| {
            format!("its socket does not accept connections ({error}): see that it runs, and that this user may write to the socket")
        })),
        Address::Service { .. } => {
            Some(Some("its sentinels name none that can be reached: see that they run and know it".to_owned()))
        }
    };
    let unknown = || "it does not answer: see that it runs, and that host, port and TLS are right".to_owned();
    found.flatten().unwrap_or_else(unknown)
}

async fn of_tcp(connector: &Connector, endpoint: &Endpoint) -> Option<String> {
    let addresses: Vec<_> = match lookup_host((&*endpoint.host, endpoint.port)).await {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            return Some(format!("its name has no address ({error}): see that it is written right"));
        }
    };
    let mut tcp = match TcpStream::connect(&*addresses).await {
        Ok(tcp) => tcp,
        Err(error) => {
            return Some(format!(
                "it accepts no connections ({error}): see that it runs, and that host and port are right"
            ));
        }
    };
    if let Some((config, options)) = &connector.tls {
        let name = match server_name(options, &endpoint.host) {
            Ok(name) => name,
            Err(error) => return Some(error.message().to_owned()),
        };
        // A server without TLS may wait for the rest of what it takes for a command.
        return match timeout(CONNECT_TIMEOUT / 2, TlsConnector::from(Arc::clone(config)).connect(name, tcp))
            .await
        {
            Ok(shaken) => shaken.err().map(|error| of_tls(&error)),
            Err(_) => Some(
                "it does not answer a TLS handshake: if it has no TLS, write redis:// in the URL".to_owned(),
            ),
        };
    }
    tcp.write_all(b"PING\r\n").await.ok()?;
    let mut first = [0];
    match timeout(FIRST_BYTE, tcp.read(&mut first)).await {
        // A record of TLS begins with its type: an alert or a handshake.
        Ok(Ok(1)) if !matches!(first[0], 0x15 | 0x16) => None,
        Ok(Ok(_) | Err(_)) => {
            Some("it ends connections without TLS: if it has TLS, write rediss:// in the URL".to_owned())
        }
        Err(_) => None,
    }
}

/// What a failed handshake means.
fn of_tls(error: &io::Error) -> String {
    let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return format!("it ends the TLS handshake ({error}): if it has no TLS, write redis:// in the URL");
    };
    let advice = match inner {
        rustls::Error::InvalidMessage(_) => "it does not speak TLS: write redis:// in the URL",
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            // The second where an authority of the same name is trusted, such as an earlier one.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not trusted: name the certificate of its authority by tls_ca"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired: renew it, or set this host's clock"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet: set this host's clock"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name: write that name in the URL, or set tls_server_name"
            }
            CertificateError::Other(_) if inner.to_string().contains("CaUsedAsEndEntity") => {
                "its certificate is that of an authority (CA:TRUE), which a server may not have: let it sign another one, or make it with \
                 basicConstraints=CA:FALSE and name it by tls_ca"
            }
            _ => "its certificate cannot be used",
        },
        rustls::Error::AlertReceived(_) => {
            "it refuses the handshake: it may need a certificate of the client, by tls_cert and tls_key"
        }
        _ => "the TLS handshake fails",
    };
    format!("{advice} ({inner})")
}
