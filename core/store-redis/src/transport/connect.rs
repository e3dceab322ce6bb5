//! Makes connections: finds the server, opens the socket, negotiates TLS, and sends the handshake: authentication,
//! connection name, database and server time, in one round trip.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, RedisError, Value};
use socket2::{SockRef, TcpKeepalive};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

use crate::config::Settings;
use crate::config::address_map::AddressMap;
use crate::config::target::{Credentials, Endpoint, Endpoints, Secret, Target, Tls};
use crate::transport::CONNECT_TIMEOUT;
#[cfg(unix)]
use crate::transport::cause::of_socket;
use crate::transport::cause::{ConnectError, NO_TLS, WITHOUT_TLS, of_connection, of_name, of_tls};
use crate::transport::failure::{Failure, Refusal, UNREACHABLE};
use crate::transport::login::Login;
use crate::transport::refused::{LastRefusal, words};
use crate::transport::server_time::ServerTime;
use crate::transport::session::Session;
use crate::transport::stream::{Stream, client_config, server_name};
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::Error;
use polylimit_runtime::monotonic;
#[cfg(feature = "testing")]
use polylimit_runtime::simulation;

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

    /// The server as the user configured it, or as the sentinels or the cluster named it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Tcp(endpoint) => format!("the server at {endpoint}"),
            Self::Unix(path) => format!("the server at {}", path.display()),
            Self::Service { service, .. } => format!("the primary of {service}"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct OpenStream {
    pub(crate) stream: Stream,
    /// Whether the server has polylimit's module, in a version that this client can use.
    pub(crate) has_module: bool,
    /// The server's address, if sentinels reported it.
    pub(crate) primary: Option<Endpoint>,
}

/// Everything needed to connect to any server of a store.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) tls: Option<(Arc<ClientConfig>, Tls)>,
    /// Can be replaced while the store is in use.
    pub(crate) credentials: ArcSwapOption<Credentials>,
    /// The source of the credentials, unless those above are set.
    login: Option<Login>,
    pub(crate) sentinel_credentials: Option<Credentials>,
    /// The source of the credentials for each sentinel, unless those above are set. During a rotation, a sentinel
    /// refuses what another accepts, so each has its own.
    pub(crate) sentinel_logins: HashMap<Endpoint, Login>,
    pub(crate) database: u32,
    pub(crate) client_name: Box<str>,
    keepalive: Duration,
    /// The primary of the service to which the last connection was made.
    last_primary: ArcSwapOption<Endpoint>,
    /// Maps addresses that a cluster or sentinels announce to reachable ones.
    address_map: AddressMap,
    /// Whether the options allow the module.
    module: bool,
    /// How many connections in a row ended when their server was asked for the module, and not without that question.
    ended_by_module: AtomicU8,
    /// The last refusal by a server.
    pub(crate) refusal: LastRefusal,
    /// Why the last attempt to connect failed, in the doctor's words; `None` once one has succeeded.
    failed: ArcSwapOption<String>,
}

impl Connector {
    /// Reads the files that TLS needs.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
        let target = &settings.target;
        let tls = match &target.tls {
            Some(tls) => Some((client_config(tls)?, tls.clone())),
            None => None,
        };
        Ok(Self {
            tls,
            credentials: ArcSwapOption::from_pointee(target.credentials.clone()),
            login: target.changing.clone().map(Login::new),
            sentinel_credentials: target.sentinel_credentials.clone(),
            sentinel_logins: sentinel_logins(target),
            database: target.database,
            client_name: settings.client_name.clone(),
            keepalive: settings.keepalive,
            last_primary: ArcSwapOption::empty(),
            address_map: settings.address_map.as_deref().and_then(AddressMap::read).unwrap_or_default(),
            module: settings.module,
            ended_by_module: AtomicU8::new(0),
            refusal: LastRefusal::default(),
            failed: ArcSwapOption::empty(),
        })
    }

    pub(crate) fn after_fork(&self) -> Self {
        let logins = self.sentinel_logins.iter();
        let sentinel_logins =
            logins.map(|(sentinel, login)| (sentinel.clone(), login.after_fork())).collect();
        Self {
            tls: self.tls.clone(),
            credentials: ArcSwapOption::new(self.credentials.load_full()),
            login: self.login.as_ref().map(Login::after_fork),
            sentinel_credentials: self.sentinel_credentials.clone(),
            sentinel_logins,
            client_name: self.client_name.clone(),
            last_primary: ArcSwapOption::new(self.last_primary.load_full()),
            address_map: self.address_map.clone(),
            ended_by_module: AtomicU8::new(self.ended_by_module.load(Ordering::Relaxed)),
            refusal: LastRefusal::default(),
            failed: ArcSwapOption::empty(),
            ..*self
        }
    }

    /// Connects to the server at an address, and learns the server's time. For a service, connects to `primary`, or else
    /// to the server that its sentinels name, or else, while none of them answers, to the last known primary: a server
    /// that has become a replica refuses to write. It takes at most the longer of `longest` and [`CONNECT_TIMEOUT`].
    pub(crate) async fn connect(
        &self,
        address: &Address,
        primary: Option<Endpoint>,
        time: &ServerTime,
        longest: Duration,
    ) -> Result<OpenStream, Failure> {
        let connected = self.try_connect(address, primary, time, longest).await;
        let describe = |error: &ConnectError| {
            Arc::new(format!("{} cannot be used: {}", address.describe(), error.cause()))
        };
        let cause = connected.as_ref().err().map(describe);
        self.failed.store(cause);
        connected.map_err(Failure::from)
    }

    async fn try_connect(
        &self,
        address: &Address,
        mut primary: Option<Endpoint>,
        time: &ServerTime,
        longest: Duration,
    ) -> Result<OpenStream, ConnectError> {
        let longest = longest.max(CONNECT_TIMEOUT);
        let connecting = self.connecting(address, &mut primary, time, longest);
        let connected = timeout(longest, connecting).await.unwrap_or(Err(ConnectError::from(UNREACHABLE)));
        let (stream, has_module) = connected?;
        if let Some(primary) = &primary {
            self.last_primary.store(Some(Arc::new(primary.clone())));
        }
        Ok(OpenStream { stream, has_module, primary })
    }

    /// Boxed, so that the futures of all callers stay small, and are compiled once.
    fn connecting<'a>(
        &'a self,
        address: &'a Address,
        primary: &'a mut Option<Endpoint>,
        time: &'a ServerTime,
        longest: Duration,
    ) -> BoxFuture<'a, Result<(Stream, bool), ConnectError>> {
        Box::pin(async move {
            let fixed = self.credentials.load_full();
            let Some(login) = self.login.as_ref().filter(|_| fixed.is_none()) else {
                return self.begin(address, primary, fixed.as_deref(), time, longest).await;
            };
            let part = longest / 4 * 3;
            let credentials = login.credentials(part).await?;
            let mut begun = self.begin(address, primary, Some(&credentials), time, longest).await;
            if begun.as_ref().is_err_and(|error| error.failure.reason == Degradation::Auth) {
                let others = login.others_than(&credentials, part).await?;
                begun = self.begin(address, primary, Some(&others), time, longest).await;
            }
            begun.inspect(|_| login.accepted())
        })
    }

    /// Opens a connection and sends the first commands; once more, without the question for the module, where that may have ended it.
    async fn begin(
        &self,
        address: &Address,
        primary: &mut Option<Endpoint>,
        credentials: Option<&Credentials>,
        time: &ServerTime,
        longest: Duration,
    ) -> Result<(Stream, bool), ConnectError> {
        let asks = self.asks_for_module();
        let stream = self.open(address, primary, longest).await?;
        let begun = self.handshake(stream, credentials, time, asks).await;
        let has_ended = begun.as_ref().is_err_and(|error| {
            matches!(error.failure.reason, Degradation::Unreachable | Degradation::ConnectionLost)
        });
        if !asks || !has_ended {
            if asks && begun.is_ok() {
                self.ended_by_module.store(0, Ordering::Relaxed);
            }
            return begun;
        }
        let stream = self.open(address, primary, longest).await?;
        let begun = self.handshake(stream, credentials, time, false).await;
        if begun.is_ok() {
            self.ended_by_module.fetch_add(1, Ordering::Relaxed);
        }
        begun
    }

    /// Opens a connection to the server at an address. For a service, `primary` is the server in use from then on.
    async fn open(
        &self,
        address: &Address,
        primary: &mut Option<Endpoint>,
        longest: Duration,
    ) -> Result<Stream, ConnectError> {
        match address {
            Address::Tcp(endpoint) => self.tcp(endpoint, longest).await,
            #[cfg(unix)]
            Address::Unix(path) => {
                let connected = UnixStream::connect(path).await;
                Ok(Stream::Unix(connected.map_err(|error| not_connected(&error, of_socket))?))
            }
            // The URL of one has been refused.
            #[cfg(not(unix))]
            Address::Unix(_) => Err(UNREACHABLE.into()),
            Address::Service { service, sentinels } => {
                let named = match primary.take() {
                    Some(named) => named,
                    None => self.primary_or_last(service, sentinels).await?,
                };
                self.tcp(primary.insert(named), longest).await
            }
        }
    }

    async fn primary_or_last(&self, service: &str, sentinels: &[Endpoint]) -> Result<Endpoint, ConnectError> {
        let asking = self.primary(service, sentinels);
        let Some(last) = self.last_primary.load_full() else { return asking.await };
        // Hanging sentinels leave time to connect.
        match timeout(CONNECT_TIMEOUT / 2, asking).await {
            Ok(Ok(named)) => Ok(named),
            Ok(Err(_)) | Err(_) => Ok(Endpoint::clone(&last)),
        }
    }

    /// Why the last attempt to connect failed.
    pub(crate) fn failed(&self) -> Option<Arc<String>> {
        self.failed.load_full()
    }

    /// Connects to a server for a few commands.
    pub(crate) async fn session(&self, address: &Address) -> Result<Session, Failure> {
        let connected = self.connect(address, None, &ServerTime::default(), CONNECT_TIMEOUT).await?;
        Ok(Session::new(connected.stream))
    }

    /// The reachable address of an announced one.
    pub(crate) fn reached(&self, endpoint: &Endpoint) -> Endpoint {
        self.address_map.reached(endpoint)
    }

    /// As [`session`](Self::session), but a failure has its cause in words.
    pub(crate) async fn session_or_cause(&self, address: &Address) -> Result<Session, String> {
        let connected = self.try_connect(address, None, &ServerTime::default(), CONNECT_TIMEOUT).await;
        connected.map(|open| Session::new(open.stream)).map_err(|error| error.cause().into_owned())
    }

    /// Connects to an endpoint, with TLS if it is configured. A server without TLS may take the handshake for a command
    /// and wait for the rest of it. So the handshake gets only a part of `longest`, so that this is detected.
    pub(crate) async fn tcp(&self, endpoint: &Endpoint, longest: Duration) -> Result<Stream, ConnectError> {
        let endpoint = self.reached(endpoint);
        #[cfg(feature = "testing")]
        if let Some(connecting) = simulation::connect(&endpoint.host, endpoint.port) {
            let connected = connecting.await.map(Stream::Simulated);
            return connected.map_err(|error| not_connected(&error, of_connection));
        }
        let found = lookup_host((&*endpoint.host, endpoint.port)).await;
        let found = found.map_err(|error| not_connected(&error, of_name))?;
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
        let unusable = |cause: String| ConnectError { failure: UNREACHABLE, cause: Some(cause) };
        let name =
            server_name(options, &endpoint.host).map_err(|error| unusable(error.message().to_owned()))?;
        match timeout(longest / 4 * 3, TlsConnector::from(Arc::clone(config)).connect(name, tcp)).await {
            Ok(Ok(tls)) => Ok(Stream::Tls(Box::new(tls))),
            Ok(Err(error)) => Err(unusable(of_tls(&error))),
            Err(_) => Err(unusable(NO_TLS.to_owned())),
        }
    }

    /// Whether servers are asked for the module. Some proxies end a connection for a command that they do not know.
    pub(crate) fn asks_for_module(&self) -> bool {
        self.module && self.ended_by_module.load(Ordering::Relaxed) < MAX_ENDED_BY_MODULE
    }

    /// Sends the first commands on a connection, and learns the server's time, and whether it has the module.
    async fn handshake(
        &self,
        stream: Stream,
        credentials: Option<&Credentials>,
        time: &ServerTime,
        asks_for_module: bool,
    ) -> Result<(Stream, bool), ConnectError> {
        let mut commands = redis::pipe();
        if let Some(credentials) = credentials {
            commands.add_command(auth(credentials));
        }
        if self.database != 0 {
            commands.cmd("SELECT").arg(self.database);
        }
        let needed = commands.len();
        commands.cmd("CLIENT").arg("SETNAME").arg(&*self.client_name);
        if asks_for_module {
            commands.cmd(MODULE_VERSION);
        }
        // Last, so that its reply shows that no command before has ended the connection.
        commands.cmd("TIME");
        let sent = monotonic::now();
        let is_tls = matches!(stream, Stream::Tls(_));
        let mut session = Session::new(stream);
        // A server with TLS 1.3 refuses a client after the client's handshake.
        let began = async {
            session.send(&commands.get_packed_pipeline()).await?;
            session.first_byte().await
        };
        let began = began.await.map_err(|error| if is_tls { of_tls(&error) } else { WITHOUT_TLS.to_owned() });
        let cause = match began {
            Ok(TLS_ALERT | TLS_HANDSHAKE) if !is_tls => Some(WITHOUT_TLS.to_owned()),
            Ok(_) => None,
            Err(cause) => Some(cause),
        };
        if cause.is_some() {
            return Err(ConnectError { failure: UNREACHABLE, cause });
        }
        for _ in 0..needed {
            session.reply::<Value>().await.map_err(|error| ConnectError::refused(&error))?;
        }
        // The name is for operators; a user without the permission to set it connects without one.
        if let Err(error) = session.reply::<Value>().await {
            let failure = refused(&error);
            if error.code().is_none() || failure.reason == Degradation::MaxClients {
                return Err(failure.into());
            }
        }
        let has_module = asks_for_module && has_module(&mut session).await?;
        let server_us =
            session.reply().await.map_err(|error| ConnectError::refused(&error)).map(server_us)?;
        time.learn(server_us.ok_or(PROTOCOL)?, sent, monotonic::now());
        Ok((session.into_stream(), has_module))
    }
}

/// Reads the reply to the question for the module, which a server without it refuses.
async fn has_module(session: &mut Session) -> Result<bool, ConnectError> {
    let replied = session.reply::<u64>().await;
    if replied.as_ref().is_err_and(RedisError::is_io_error) {
        return Err(UNREACHABLE.into());
    }
    Ok(replied.is_ok_and(|protocol| protocol == MODULE_PROTOCOL))
}

fn sentinel_logins(target: &Target) -> HashMap<Endpoint, Login> {
    let (Some(changing), Endpoints::Sentinel { sentinels, .. }) =
        (&target.sentinel_changing, &target.endpoints)
    else {
        return HashMap::new();
    };
    sentinels.iter().map(|sentinel| (sentinel.clone(), Login::new(changing.clone()))).collect()
}

impl ConnectError {
    fn refused(error: &RedisError) -> Self {
        let failure = refused(error);
        let is_refused = failure.reason == Degradation::Refused;
        let cause = is_refused.then(|| format!("it refuses a command of every connection: {}", words(error)));
        Self { failure, cause }
    }
}

/// The first bytes of TLS records.
const TLS_ALERT: u8 = 0x15;
const TLS_HANDSHAKE: u8 = 0x16;

/// Connects to the first address of a name that accepts: some may be unreachable, such as those of a network to which
/// this host has a route only.
async fn first_to_accept(addresses: impl Iterator<Item = SocketAddr>) -> Result<TcpStream, ConnectError> {
    let connect = |address| async move {
        TcpStream::connect(address).await.map_err(|error| not_connected(&error, of_connection))
    };
    happy_eyeballs(addresses.map(connect).collect()).await
}

/// The errors of a system without room for another socket.
#[cfg(unix)]
const NO_RESOURCES: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
/// `WSAEMFILE` and `WSAENOBUFS` of Windows.
#[cfg(not(unix))]
const NO_RESOURCES: [i32; 2] = [10_024, 10_055];

fn not_connected(error: &io::Error, describe: fn(&io::Error) -> String) -> ConnectError {
    match error.raw_os_error() {
        Some(code) if NO_RESOURCES.contains(&code) => Failure::not_applied(Degradation::NoResources).into(),
        _ => ConnectError { failure: UNREACHABLE, cause: Some(describe(error)) },
    }
}

/// The `AUTH` command. It must not be logged: the redis crate's `Debug` output of a command contains the password.
pub(crate) fn auth(credentials: &Credentials) -> Cmd {
    let mut command = redis::cmd("AUTH");
    command.arg(credentials.username.as_ref().map(Secret::reveal)).arg(credentials.password.reveal());
    command
}

/// Replies with the number of the module's protocol. An unknown command is refused before rights are examined, so that no server without the
/// module logs it.
pub(crate) const MODULE_VERSION: &str = "POLYLIMIT.VERSION";
/// After this many connections in a row that ended at the question for the module, no server is asked any more.
const MAX_ENDED_BY_MODULE: u8 = 2;
/// The protocol of this version.
pub(crate) const MODULE_PROTOCOL: u64 = 2;

const PROTOCOL: Failure = Failure::not_applied(Degradation::Protocol);

/// Redirections do not apply to the commands of a handshake.
fn refused(error: &RedisError) -> Failure {
    if error.code().is_none() {
        return if error.is_io_error() { UNREACHABLE } else { PROTOCOL };
    }
    match Refusal::read(error) {
        Refusal::Failed(failure) => failure,
        Refusal::ReadOnly => Failure::not_applied(Degradation::ReadOnly),
        Refusal::NoScript
        | Refusal::NoFirstLine
        | Refusal::Moved { .. }
        | Refusal::Ask { .. }
        | Refusal::TryAgain => PROTOCOL,
    }
}

/// Parses the reply to `TIME`: seconds and microseconds.
pub(crate) fn server_us((seconds, micros): (u64, u64)) -> Option<u64> {
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// The delay before the next attempt starts while one is running. RFC 8305, section 5, recommends 250 ms, and at least
/// 100 ms, on the open internet; a store is near, and connecting to it takes a second at most.
const ATTEMPT_DELAY: Duration = Duration::from_millis(50);

/// The result of the first attempt to succeed. Attempts start in order, each as soon as the previous one has failed or
/// takes longer than the delay. If all fail, returns the last failure.
pub(crate) async fn happy_eyeballs<T, E: From<Failure>>(
    attempts: Vec<impl Future<Output = Result<T, E>>>,
) -> Result<T, E> {
    let mut attempts = attempts.into_iter().peekable();
    let mut begun = FuturesUnordered::new();
    let mut failure = UNREACHABLE.into();
    loop {
        begun.extend(attempts.next());
        let ended = if attempts.peek().is_some() {
            // A slow attempt continues alongside the next one.
            let Ok(ended) = timeout(ATTEMPT_DELAY, begun.next()).await else { continue };
            ended
        } else {
            begun.next().await
        };
        match ended {
            Some(Ok(found)) => return Ok(found),
            Some(Err(failed)) => failure = failed,
            None => return Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::net::{Ipv4Addr, TcpListener};
    use std::pin::Pin;

    use socket2::{Domain, Socket, Type};

    use super::*;
    use polylimit_rules::decision::Degradation;

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
    fn hanging_address_does_not_delay_the_others() {
        let (_listening, _filling, hanging) = hanging();
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let good = server.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connected = runtime.block_on(async {
            timeout(CONNECT_TIMEOUT, first_to_accept([hanging, hanging, good].into_iter())).await
        });
        assert_eq!(connected.unwrap().unwrap().peer_addr().unwrap(), good);
    }

    type Attempt = Pin<Box<dyn Future<Output = Result<u32, Failure>>>>;

    const REFUSED: Failure = Failure::permanent(Degradation::Auth);

    fn hangs() -> Attempt {
        Box::pin(pending())
    }

    fn ends(with: Result<u32, Failure>) -> Attempt {
        Box::pin(ready(with))
    }

    fn first(attempts: Vec<Attempt>) -> Result<Result<u32, Failure>, tokio::time::error::Elapsed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { timeout(20 * ATTEMPT_DELAY, happy_eyeballs(attempts)).await })
    }

    #[test]
    fn hanging_attempt_does_not_delay_the_others() {
        assert_eq!(first(vec![hangs(), hangs(), ends(Err(REFUSED)), ends(Ok(4)), ends(Ok(5))]), Ok(Ok(4)));
        assert_eq!(first(vec![hangs(), ends(Ok(2)), hangs()]), Ok(Ok(2)));
    }

    #[test]
    fn last_failure_is_returned_when_all_attempts_fail() {
        assert_eq!(first(vec![ends(Err(UNREACHABLE)), ends(Err(REFUSED))]), Ok(Err(REFUSED)));
        assert_eq!(first(vec![]), Ok(Err(UNREACHABLE)));
    }

    #[test]
    fn slow_attempt_is_awaited_after_the_others_failed() {
        let late = Box::pin(async {
            tokio::time::sleep(2 * ATTEMPT_DELAY).await;
            Ok(1)
        });
        assert_eq!(first(vec![late, ends(Err(REFUSED)), ends(Err(UNREACHABLE))]), Ok(Ok(1)));
        assert!(first(vec![hangs(), ends(Err(REFUSED))]).is_err());
    }
}
