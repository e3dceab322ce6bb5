//! The listeners of a server, from their start to their end.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polylimit::Limiter;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::app::App;
use crate::caller::Caller;
use crate::connection::{Door, refuse};
use crate::counters::Rejection;
use crate::endpoint::{Endpoint, Place, Protocol};
use crate::error::ServeError;
use crate::life::Stage;
use crate::options::ServerOptions;
use crate::web::Routes;

/// The pause after the system has refused a connection, for example because there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The last part of the time for draining, without listeners; half of it where that is shorter.
const LAST: Duration = Duration::from_secs(2);
/// Silence on a connection after which the system looks whether the other end is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A server whose listeners are open.
pub struct Server {
    app: Arc<App>,
    listeners: Vec<Listener>,
    callers: Arc<Connections>,
    /// Those of the admin listener have a bound of their own: operators look when there are too many callers.
    operators: Arc<Connections>,
}

/// The connections of some listeners.
struct Connections {
    /// One permit for each connection that may be open.
    free: Arc<Semaphore>,
    most: usize,
    /// Told when one has ended.
    ended: Notify,
}

impl Connections {
    fn new(most: usize) -> Arc<Self> {
        let most = most.min(Semaphore::MAX_PERMITS);
        Arc::new(Self { free: Arc::new(Semaphore::new(most)), most, ended: Notify::new() })
    }

    /// Waits until none is open. It takes no permits, so that new ones may come meanwhile.
    async fn all_ended(&self) {
        while self.free.available_permits() < self.most {
            self.ended.notified().await;
        }
    }
}

/// Reloads and stops a server that runs.
#[derive(Clone)]
pub struct ServerHandle {
    app: Arc<App>,
}

struct Listener {
    endpoint: Endpoint,
    socket: Socket,
    is_admin: bool,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Stream {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Server {
    /// Opens the listeners of a server that asks this limiter. Connections wait until it runs.
    ///
    /// # Errors
    /// When a listener cannot be opened, or is reachable from other hosts without TLS and authentication; when a file cannot be used.
    pub async fn bind(limiter: Limiter, options: ServerOptions) -> Result<Self, ServeError> {
        if options.listen.is_empty() && options.admin.is_none() {
            return Err(ServeError::new("no listener is named: give one, such as http://127.0.0.1:8180"));
        }
        if options.admin.as_ref().is_some_and(|admin| admin.protocol != Protocol::Http) {
            return Err(ServeError::new("the admin listener speaks HTTP: give http://, https:// or unix:"));
        }
        let app = Arc::new(App::new(limiter, options)?);
        let mut listeners = Vec::new();
        let admin = app.options.admin.iter().map(|endpoint| (endpoint, true));
        for (endpoint, is_admin) in app.options.listen.iter().map(|endpoint| (endpoint, false)).chain(admin) {
            let (endpoint, socket) = open(&app, endpoint).await?;
            listeners.push(Listener { endpoint, socket, is_admin });
        }
        let limits = app.options.limits;
        let [callers, operators] = [limits.connections, limits.admin_connections].map(Connections::new);
        Ok(Self { app, listeners, callers, operators })
    }

    /// Where the server listens, in the order of the options; the admin listener is the last one.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.listeners.iter().map(|listener| listener.endpoint.clone()).collect()
    }

    /// Reloads and stops the server while it runs.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle { app: Arc::clone(&self.app) }
    }

    /// Serves until the [handle](Self::handle) stops it. Then the server is not ready any more, and connections end once they have their
    /// answers. The listeners are closed once no connection is open, at the latest some time before the time for draining is over;
    /// connections that are left after that time are closed. At last the limiter is closed, which gives leased units back. Returns whether
    /// every connection has ended by itself.
    pub async fn run(self) -> bool {
        let Self { app, listeners, callers, operators } = self;
        let mut life = app.life.follow();
        let mut accepting = JoinSet::new();
        for Listener { endpoint, socket, is_admin } in listeners {
            let door = Door {
                app: Arc::clone(&app),
                protocol: endpoint.protocol,
                tls: endpoint.is_tls(),
                routes: Routes::new(&app, is_admin),
                life: life.clone(),
            };
            let connections = Arc::clone(if is_admin { &operators } else { &callers });
            accepting.spawn(accept(socket, door, connections));
        }
        life.reach(Stage::Draining).await;
        // Listeners stay open meanwhile: a client that has not heard yet gets an answer.
        let all_ended = || async { tokio::join!(callers.all_ended(), operators.all_ended()) };
        let drain = app.options.drain;
        let end = Instant::now() + drain;
        let _ = timeout(drain.saturating_sub(LAST.min(drain / 2)), all_ended()).await;
        remove_sockets(&app);
        app.life.advance(Stage::Closing);
        // Each listener accepts first what the system has accepted for it.
        while accepting.join_next().await.is_some() {}
        let drained = timeout_at(end, all_ended()).await.is_ok();
        let limiter = app.limiter.clone();
        // Closing may wait for a store.
        let _ = tokio::task::spawn_blocking(move || limiter.close()).await;
        drained
    }
}

impl ServerHandle {
    /// Reads the file of tokens and the certificates again. The document of limits is followed without this.
    ///
    /// # Errors
    /// When a file cannot be used: then what it said before stays in force.
    pub fn reload(&self) -> Result<(), ServeError> {
        self.app.reload()
    }

    /// Ends [`Server::run`].
    pub fn stop(&self) {
        self.app.life.advance(Stage::Draining);
    }

    pub(crate) fn log(&self, line: &str) {
        self.app.log(line);
    }

    /// What became of the document of limits, for the operator that has asked for it to be read again.
    pub(crate) fn configuration_error(&self) -> Option<Box<str>> {
        self.app.limiter.configuration()?.error
    }
}

async fn open(app: &App, endpoint: &Endpoint) -> Result<(Endpoint, Socket), ServeError> {
    let failed =
        |error: &dyn std::fmt::Display| ServeError::new(format!("cannot listen on {endpoint}: {error}"));
    match &endpoint.place {
        Place::Unix(path) => {
            let listener = bind_unix(path, app.options.socket_mode).map_err(|error| failed(&error))?;
            Ok((endpoint.clone(), Socket::Unix(listener)))
        }
        Place::Tcp { address, tls } => {
            if *tls && app.tls.is_none() {
                return Err(failed(&"TLS needs a certificate: give --certificate and --key"));
            }
            let addresses: Vec<_> = lookup_host(address).await.map_err(|error| failed(&error))?.collect();
            let is_local = addresses.iter().all(|address| address.ip().is_loopback());
            let is_secure = *tls && app.authenticates();
            if !(is_local || is_secure || app.options.insecure) {
                return Err(failed(
                    &"other hosts can reach it, so it needs TLS (--certificate, --key) and authenticated callers (--tokens or \
                      --client-ca); --insecure listens without",
                ));
            }
            let listener = TcpListener::bind(&*addresses).await.map_err(|error| failed(&error))?;
            let bound = listener.local_addr().map_err(|error| failed(&error))?;
            Ok((endpoint.at(bound), Socket::Tcp(listener)))
        }
    }
}

/// Opens a Unix socket. A socket that a dead process has left there is replaced; anything else is not.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

fn remove_sockets(app: &App) {
    for endpoint in app.options.listen.iter().chain(&app.options.admin) {
        if let Place::Unix(path) = &endpoint.place {
            let _ = fs::remove_file(path);
        }
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Stream::of_tcp(stream, peer)
            }
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }

    /// Closes the listener, and returns the connections that it has and that are not accepted yet: closing alone would reset them.
    fn close(self) -> io::Result<impl Iterator<Item = Stream>> {
        enum Listening {
            Tcp(std::net::TcpListener),
            Unix(std::os::unix::net::UnixListener),
        }
        let listening = match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                take_no_more(&listener);
                Listening::Tcp(listener)
            }
            // Its file is gone, so that there will be no more.
            Self::Unix(listener) => Listening::Unix(listener.into_std()?),
        };
        let accept = move || match &listening {
            Listening::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Stream::of_tcp(TcpStream::from_std(stream)?, peer)
            }
            Listening::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(UnixStream::from_std(stream)?))
            }
        };
        Ok(std::iter::from_fn(move || accept().ok()))
    }
}

/// Lets the system drop what asks a listener for a new connection. Its client asks again after a second, and is then refused; without
/// this, one that is accepted between the last look and the end of the listener would be reset.
#[cfg(target_os = "linux")]
fn take_no_more(listener: &std::net::TcpListener) {
    // The program `return 0` of the packet filter: no byte of a packet is kept.
    let drop_all = socket2::SockFilter::new(0x06, 0, 0, 0);
    // A system without the filter has that gap.
    let _ = SockRef::from(listener).attach_filter(&[drop_all]);
}

#[cfg(not(target_os = "linux"))]
fn take_no_more(_listener: &std::net::TcpListener) {}

impl Stream {
    fn of_tcp(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        Ok(Self::Tcp(stream, peer))
    }
}

/// Accepts connections until the server closes its listeners. Connections live on in tasks of their own.
async fn accept(socket: Socket, mut door: Door, connections: Arc<Connections>) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = door.life.reach(Stage::Closing) => break,
        };
        match accepted {
            Ok(stream) => start(stream, &door, &connections),
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
    if let Ok(streams) = socket.close() {
        streams.for_each(|stream| start(stream, &door, &connections));
    }
}

/// Starts the task of a connection.
fn start(stream: Stream, door: &Door, connections: &Arc<Connections>) {
    let door = door.clone();
    let (connections, permit) = (Arc::clone(connections), Arc::clone(&connections.free).try_acquire_owned());
    tokio::spawn(async move {
        let Ok(permit) = permit else {
            door.app.counters.rejected(door.protocol, Rejection::Connections);
            match stream {
                Stream::Tcp(stream, _) => refuse(stream, door.protocol, door.tls).await,
                Stream::Unix(stream) => refuse(stream, door.protocol, false).await,
            }
            return;
        };
        // The compiler lays this future out by itself: with all that it contains, the task's would be too deep.
        match stream {
            Stream::Tcp(stream, peer) => {
                let caller = Caller { peer: Some(peer.ip()), ..Caller::default() };
                Box::pin(door.serve(stream, caller)).await;
            }
            Stream::Unix(stream) => {
                let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
                Box::pin(door.serve(stream, Caller { uid, ..Caller::default() })).await;
            }
        }
        drop(permit);
        connections.ended.notify_one();
    });
}
