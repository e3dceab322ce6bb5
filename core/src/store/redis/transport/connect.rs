//! Makes connections: finds the server, opens the socket, negotiates TLS, and sends the handshake.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

use crate::error::Error;
use crate::rules::decision::Degradation;
use crate::store::redis::config::Settings;
use crate::store::redis::config::target::{Credentials, Endpoint, Endpoints, Tls};
use crate::store::redis::transport::CONNECT_TIMEOUT;
use crate::store::redis::transport::failure::{Failure, UNREACHABLE};
use crate::store::redis::transport::happy_eyeballs::happy_eyeballs;
use crate::store::redis::transport::server_time::ServerTime;
use crate::store::redis::transport::session::Session;
use crate::store::redis::transport::stream::Stream;
use crate::store::redis::transport::tls;

/// The address of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp(Endpoint),
    Unix(PathBuf),
    /// The primary of a service, as the sentinels report it.
    Service {
        service: Box<str>,
        sentinels: Box<[Endpoint]>,
    },
}

impl Address {
    /// The address of a single server; for a cluster, an error with its seed nodes.
    pub(crate) fn of(endpoints: &Endpoints) -> Result<Self, &[Endpoint]> {
        Ok(match endpoints {
            Endpoints::Tcp(endpoint) => Self::Tcp(endpoint.clone()),
            Endpoints::Unix(path) => Self::Unix(path.clone()),
            Endpoints::Sentinel { service, sentinels } => {
                Self::Service { service: service.clone(), sentinels: sentinels.clone() }
            }
            Endpoints::Cluster { seeds } => return Err(seeds),
        })
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: Stream,
    /// The server's address, if sentinels reported it.
    pub(crate) primary: Option<Endpoint>,
}

/// Everything needed to connect to any server of a store.
#[derive(Debug)]
pub(crate) struct Connector {
    tls: Option<(Arc<ClientConfig>, Tls)>,
    /// Can be replaced while the store is in use.
    pub(crate) credentials: ArcSwapOption<Credentials>,
    pub(crate) sentinel_credentials: Option<Credentials>,
    pub(crate) database: u32,
    pub(crate) client_name: Box<str>,
    keepalive: Duration,
}

impl Connector {
    /// Reads the files that TLS needs.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
        let target = &settings.target;
        let tls = match &target.tls {
            Some(tls) => Some((tls::client_config(tls)?, tls.clone())),
            None => None,
        };
        Ok(Self {
            tls,
            credentials: ArcSwapOption::from_pointee(target.credentials.clone()),
            sentinel_credentials: target.sentinel_credentials.clone(),
            database: target.database,
            client_name: settings.client_name.clone(),
            keepalive: settings.keepalive,
        })
    }

    /// The same, for a forked child.
    pub(crate) fn after_fork(&self) -> Self {
        Self {
            tls: self.tls.clone(),
            credentials: ArcSwapOption::new(self.credentials.load_full()),
            sentinel_credentials: self.sentinel_credentials.clone(),
            client_name: self.client_name.clone(),
            ..*self
        }
    }

    /// Uses other credentials for connections made from now on.
    pub(crate) fn set_credentials(&self, credentials: Credentials) {
        self.credentials.store(Some(Arc::new(credentials)));
    }

    /// Connects to the server at an address, and learns the server's time. For a service, connects to the server that
    /// was `told` to be its primary, or else to the one that its sentinels name. It takes at most the longer of
    /// `longest` and [`CONNECT_TIMEOUT`].
    pub(crate) async fn connect(
        &self,
        address: &Address,
        told: Option<Endpoint>,
        time: &ServerTime,
        longest: Duration,
    ) -> Result<Connected, Failure> {
        let connecting = async {
            let mut primary = None;
            let stream = match address {
                Address::Tcp(endpoint) => self.tcp(endpoint).await?,
                Address::Unix(path) => Stream::Unix(UnixStream::connect(path).await.map_err(not_connected)?),
                Address::Service { service, sentinels } => {
                    let named = match told {
                        Some(told) => told,
                        None => self.primary(service, sentinels).await?,
                    };
                    let stream = self.tcp(&named).await?;
                    primary = Some(named);
                    stream
                }
            };
            Ok(Connected { stream: self.greet(stream, time).await?, primary })
        };
        timeout(longest.max(CONNECT_TIMEOUT), connecting).await.unwrap_or(Err(UNREACHABLE))
    }

    /// Connects to a server for a few commands.
    pub(crate) async fn session(&self, address: &Address) -> Result<Session, Failure> {
        let connected = self.connect(address, None, &ServerTime::default(), CONNECT_TIMEOUT).await?;
        Ok(Session::new(connected.stream))
    }

    pub(crate) async fn tcp(&self, endpoint: &Endpoint) -> Result<Stream, Failure> {
        let found = lookup_host((&*endpoint.host, endpoint.port)).await.map_err(not_connected)?;
        let tcp = first_to_accept(found).await?;
        // A connection works without these options, if the platform refuses them.
        let _ = tcp.set_nodelay(true);
        let socket = SockRef::from(&tcp);
        let _ = socket.set_tcp_keepalive(
            &TcpKeepalive::new().with_time(self.keepalive).with_interval(self.keepalive / 3),
        );
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_user_timeout(Some(self.keepalive * 2));
        let Some((config, options)) = &self.tls else { return Ok(Stream::Tcp(tcp)) };
        let name = tls::server_name(options, &endpoint.host).map_err(|_| UNREACHABLE)?;
        let tls = TlsConnector::from(Arc::clone(config)).connect(name, tcp).await;
        tls.map(|tls| Stream::Tls(Box::new(tls))).map_err(|_| UNREACHABLE)
    }
}

/// Connects to the first address of a name that accepts: some may be unreachable, such as those of a network to which
/// this host has a route only.
async fn first_to_accept(addresses: impl Iterator<Item = SocketAddr>) -> Result<TcpStream, Failure> {
    happy_eyeballs(addresses.map(accepted_at).collect()).await
}

async fn accepted_at(address: SocketAddr) -> Result<TcpStream, Failure> {
    TcpStream::connect(address).await.map_err(not_connected)
}

/// The reason for a failed connection.
#[expect(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
fn not_connected(error: io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
            Failure::not_applied(Degradation::NoResources)
        }
        _ => UNREACHABLE,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// An address at which connections neither succeed nor fail, since its backlog is full.
    fn hanging() -> (Socket, Vec<std::net::TcpStream>, SocketAddr) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let connect = || std::net::TcpStream::connect_timeout(&address, CONNECT_TIMEOUT / 10);
        let filling = std::iter::from_fn(|| connect().ok()).collect();
        (socket, filling, address)
    }

    #[test]
    fn an_address_that_hangs_holds_up_no_other() {
        let (_listening, _filling, hanging) = hanging();
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let good = server.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connected = runtime.block_on(async {
            timeout(CONNECT_TIMEOUT, first_to_accept([hanging, hanging, good].into_iter())).await
        });
        assert_eq!(connected.unwrap().unwrap().peer_addr().unwrap(), good);
    }
}
