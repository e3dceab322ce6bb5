//! The listeners of a server, from their start to their end.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use polylimit::Limiter;
#[cfg(target_os = "linux")]
use socket2::SockFilter;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::app::App;
use crate::caller::Caller;
use crate::connection::{Door, refuse};
use crate::counters::Rejection;
use crate::endpoint::{Endpoint, Place, Protocol};
use crate::error::ServeError;
use crate::life::Stage;
use crate::local_socket::{self, LocalListener, LocalStream};
use crate::log::LogRecord;
use crate::options::ServerOptions;
use crate::web::Routes;

/// The pause after the system has refused a connection, for example because there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a listener that takes no more connections still accepts those whose handshake had begun: many round trips of a network, and
/// longer than a busy system leaves a packet where it is.
const HANDSHAKES: Duration = Duration::from_millis(100);
/// The last part of the time for draining, without listeners; half of it where that is shorter.
const LAST: Duration = Duration::from_secs(2);
/// Silence on a connection after which the system looks whether the other end is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// The time between two looks at the configuration, and how many of them there are between two at the login of the store.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS_FOR_LOGIN: u32 = 10;

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
    /// Those beyond, for probes alone.
    probes: Arc<Semaphore>,
    /// How many one peer of another host may have, and has.
    most_of_peer: usize,
    of_peers: Mutex<HashMap<IpAddr, usize>>,
    /// Notified when one has ended.
    ended: Notify,
}

/// A place among the connections, for as long as this lives.
struct Seat {
    connections: Arc<Connections>,
    peer: Option<IpAddr>,
    permit: Option<OwnedSemaphorePermit>,
    /// Whether nothing but probes is answered.
    is_for_probes: bool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(peer) = self.peer {
            let mut of_peers = self.connections.of_peers.lock();
            if let Some(count) = of_peers.get_mut(&peer) {
                *count -= 1;
                if *count == 0 {
                    of_peers.remove(&peer);
                }
            }
        }
        // The task that waits for the end counts the permits.
        drop(self.permit.take());
        self.connections.ended.notify_one();
    }
}

impl Connections {
    fn new(most: usize, most_of_peer: usize, probes: usize) -> Arc<Self> {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let most = most.min(Semaphore::MAX_PERMITS);
        let (free, probes) = (semaphore(most), semaphore(probes));
        Arc::new(Self { free, most, probes, most_of_peer, of_peers: Mutex::default(), ended: Notify::new() })
    }

    /// A place for a connection of this peer. Where there is none, or the peer has its share, one for probes alone.
    fn place(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Seat> {
        let peer = peer.map(network_of).filter(|peer| !peer.is_loopback() && self.most_of_peer < self.most);
        let has_share = peer.is_none_or(|peer| {
            let mut of_peers = self.of_peers.lock();
            let count = of_peers.entry(peer).or_default();
            let is_below = *count < self.most_of_peer;
            *count += usize::from(is_below);
            is_below
        });
        let mut place = Seat {
            connections: Arc::clone(self),
            peer: peer.filter(|_| has_share),
            permit: None,
            is_for_probes: false,
        };
        place.permit = has_share.then(|| Arc::clone(&self.free).try_acquire_owned().ok()).flatten();
        if place.permit.is_none() {
            place.is_for_probes = true;
            place.permit = Some(Arc::clone(&self.probes).try_acquire_owned().ok()?);
        }
        Some(place)
    }

    /// Waits until none is open. It takes no permits, so that new ones may come meanwhile.
    async fn all_ended(&self) {
        while self.free.available_permits() < self.most {
            self.ended.notified().await;
        }
    }
}

/// The address, or the network that one host of IPv6 has at least.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) if address.is_loopback() => IpAddr::V6(address),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
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
    is_open: bool,
}

enum Socket {
    Tcp(TcpListener),
    Unix(LocalListener),
}

enum Stream {
    Tcp(TcpStream, SocketAddr),
    Unix(LocalStream),
}

impl Server {
    /// Opens the listeners of a server that asks this limiter. Connections wait until it runs.
    ///
    /// # Errors
    /// When a listener cannot be opened, or is reachable from other hosts without TLS and authentication; when a file cannot be used.
    pub async fn bind(limiter: Limiter, options: ServerOptions) -> Result<Self, ServeError> {
        if options.listen.is_empty() && options.listen_open.is_empty() && options.admin.is_none() {
            return Err(ServeError::new("no listener is named: give one, such as http://127.0.0.1:8180"));
        }
        if options.admin.as_ref().is_some_and(|admin| admin.protocol != Protocol::Http) {
            return Err(ServeError::new("the admin listener speaks HTTP: give http://, https:// or unix:"));
        }
        let app = Arc::new(App::new(limiter, options)?);
        let mut listeners = Vec::new();
        let options = &app.options;
        let callers = options.listen.iter().map(|endpoint| (endpoint, false, false));
        let open_callers = options.listen_open.iter().map(|endpoint| (endpoint, false, true));
        let admin = options.admin.iter().map(|endpoint| (endpoint, true, false));
        for (endpoint, is_admin, is_open) in callers.chain(open_callers).chain(admin) {
            let (endpoint, socket) = open(&app, endpoint, is_open).await?;
            listeners.push(Listener { endpoint, socket, is_admin, is_open });
        }
        let limits = app.options.limits;
        let callers = Connections::new(limits.connections, limits.connections, 0);
        let operators = Connections::new(
            limits.admin_connections,
            limits.admin_connections_of_peer,
            limits.probe_connections,
        );
        // What is there now is what the limiter has been built with.
        app.read_store_login();
        app.watch_events();
        Ok(Self { app, listeners, callers, operators })
    }

    /// Where the server listens, in the order of the options, those without tokens after the others; the admin listener is the last one.
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
        for Listener { endpoint, .. } in &listeners {
            app.log(&LogRecord::info("listening", format!("listening on {endpoint}")));
        }
        let mut life = app.life.follow();
        let mut accepting = JoinSet::new();
        tokio::spawn(watch(Arc::downgrade(&app)));
        for Listener { endpoint, socket, is_admin, is_open } in listeners {
            let door = Door {
                app: Arc::clone(&app),
                protocol: endpoint.protocol,
                tls: endpoint.is_tls(),
                routes: Routes::new(&app, is_admin),
                is_open,
                is_for_probes: false,
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
        if !drained {
            let message = "connections were left after the time for draining, and were closed";
            app.log(&LogRecord::warn("connections_left", message));
        }
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
    /// When a file cannot be used: then what it said before remains active.
    pub fn reload(&self) -> Result<(), ServeError> {
        self.app.reload()
    }

    /// Ends [`Server::run`].
    pub fn stop(&self) {
        self.app.life.advance(Stage::Draining);
    }

    pub(crate) fn log(&self, record: &LogRecord) {
        self.app.log(record);
    }

    pub(crate) fn read_store_login(&self) {
        self.app.read_store_login();
    }

    /// What became of the document of limits, for the operator that has asked for it to be read again.
    pub(crate) fn configuration_error(&self) -> Option<Box<str>> {
        self.app.limiter.admin().configuration()?.error
    }
}

/// Looks at what changes without a request, for as long as the server lives.
async fn watch(app: Weak<App>) {
    for look in 0_u32.. {
        let Some(current) = app.upgrade() else { return };
        current.watch_configuration();
        if look.is_multiple_of(LOOKS_FOR_LOGIN) && current.options.store_login.is_some() {
            // The file may be on a slow file system.
            let _ = tokio::task::spawn_blocking(move || current.read_store_login()).await;
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn open(app: &App, endpoint: &Endpoint, is_open: bool) -> Result<(Endpoint, Socket), ServeError> {
    let failed =
        |error: &dyn std::fmt::Display| ServeError::new(format!("cannot listen on {endpoint}: {error}"));
    match &endpoint.place {
        Place::Unix(path) => {
            let listener =
                LocalListener::bind(path, app.options.socket_mode).map_err(|error| failed(&error))?;
            Ok((endpoint.clone(), Socket::Unix(listener)))
        }
        Place::Tcp { address, tls } => {
            if *tls && app.tls.is_none() {
                return Err(failed(&"TLS needs a certificate: give --certificate and --key"));
            }
            let addresses: Vec<_> = lookup_host(address).await.map_err(|error| failed(&error))?.collect();
            let is_local = addresses.iter().all(|address| address.ip().is_loopback());
            if is_open && !is_local {
                return Err(failed(
                    &"other hosts can reach it, and it asks for no token: allowed are loopback and Unix sockets",
                ));
            }
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

fn remove_sockets(app: &App) {
    for endpoint in app.options.listen.iter().chain(&app.options.listen_open).chain(&app.options.admin) {
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
            Self::Unix(listener) => listener.accept().await.map(Stream::Unix),
        }
    }

    /// Lets the system drop packets that ask for a new connection: their client asks again after a second, and is then refused. Handshakes
    /// that have begun end as usual, since a client that has its answer to the first packet takes the connection for open.
    fn take_no_more(&self) {
        // The file of a Unix socket is gone, so that there will be no more.
        #[cfg(target_os = "linux")]
        if let Self::Tcp(listener) = self {
            let syn_alone = [
                // Loads the byte of the TCP header with the flags (RFC 9293, 3.1).
                SockFilter::new(0x30, 0, 0, 13),
                // Goes on with the next line if SYN is set, and else with the one after it.
                SockFilter::new(0x45, 0, 1, 0x02),
                // Keeps no byte of the packet, or all of them.
                SockFilter::new(0x06, 0, 0, 0),
                SockFilter::new(0x06, 0, 0, u32::MAX),
            ];
            // On a system without the filter, a connection that is made between the last look and the end of the listener is reset.
            let _ = SockRef::from(listener).attach_filter(&syn_alone);
        }
    }

    /// Closes the listener, and returns the connections that it has and that are not accepted yet: closing alone would reset them.
    fn close(self) -> io::Result<impl Iterator<Item = Stream>> {
        let mut accept: Box<dyn FnMut() -> io::Result<Stream> + Send> = match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                Box::new(move || {
                    let (stream, peer) = listener.accept()?;
                    stream.set_nonblocking(true)?;
                    Stream::of_tcp(TcpStream::from_std(stream)?, peer)
                })
            }
            Self::Unix(listener) => {
                let mut accept = listener.accept_last()?;
                Box::new(move || accept().map(Stream::Unix))
            }
        };
        Ok(std::iter::from_fn(move || accept().ok()))
    }
}

impl Stream {
    fn of_tcp(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        Ok(Self::Tcp(stream, peer))
    }
}

/// Accepts connections until the server closes its listeners. Connections live on in tasks of their own.
async fn accept(socket: Socket, door: Door, connections: Arc<Connections>) {
    let mut life = door.life.clone();
    let closing = async {
        life.reach(Stage::Closing).await;
        socket.take_no_more();
        sleep(HANDSHAKES).await;
    };
    let accepting = async {
        loop {
            match socket.accept().await {
                Ok(stream) => start(stream, &door, &connections),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    };
    tokio::select! {
        () = closing => {}
        () = accepting => {}
    }
    if let Ok(streams) = socket.close() {
        streams.for_each(|stream| start(stream, &door, &connections));
    }
}

/// Starts the task of a connection.
fn start(stream: Stream, door: &Door, connections: &Arc<Connections>) {
    let mut door = door.clone();
    let peer = match &stream {
        Stream::Tcp(_, peer) => Some(peer.ip()),
        Stream::Unix(_) => None,
    };
    let place = connections.place(peer);
    tokio::spawn(async move {
        let Some(_place) = place.inspect(|place| door.is_for_probes = place.is_for_probes) else {
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
                let uid = local_socket::user(&stream);
                Box::pin(door.serve(stream, Caller { uid, ..Caller::default() })).await;
            }
        }
    });
}
