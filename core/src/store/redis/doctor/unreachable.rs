//! Why no connection can be made: the name, the socket, TLS, or a server that expects the other one of TLS and none.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::store::redis::config::target::Endpoint;
use crate::store::redis::transport::CONNECT_TIMEOUT;
use crate::store::redis::transport::cause::of_tls;
use crate::store::redis::transport::connect::{Address, Connector};
use crate::store::redis::transport::stream::server_name;

/// How long a server without TLS is waited for: one with TLS that gets plain text closes the connection or sends an alert at once.
const FIRST_BYTE: Duration = Duration::from_millis(500);

/// Why there is no connection to the server, and what to do.
pub(super) async fn cause(connector: &Connector, address: &Address) -> String {
    let found = match address {
        Address::Tcp(endpoint) => {
            timeout(CONNECT_TIMEOUT, of_tcp(connector, &connector.reached(endpoint))).await.ok()
        }
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
