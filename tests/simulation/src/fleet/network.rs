//! The network of the fleet: what is under way, in the order of its arrival, in microseconds.
//!
//! tokio's timers count milliseconds, so the bytes do not wait in timers: the run takes one [`Delivery`] after the other out of the
//! [`Network`] and sets the paused time to it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use fastrand::Rng;
use polylimit::testing::simulation::{Connecting, Machine, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// Something that arrives at a time.
#[derive(Debug)]
pub(super) enum Delivery {
    /// Bytes at the server.
    ToServer(usize, Vec<u8>),
    /// Bytes at a process.
    ToClient(usize, Vec<u8>),
    /// The client has closed its end of a connection.
    ServerEnds(usize),
    /// An attempt of a process to connect.
    Connects(usize, oneshot::Sender<io::Result<usize>>),
}

struct Scheduled {
    at_us: u64,
    number: u64,
    delivery: Delivery,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// The earliest is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_us, other.number).cmp(&(self.at_us, self.number))
    }
}

/// A connection of a process to the server.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) process: usize,
    /// What has arrived for the client, from `read` on.
    inbox: Vec<u8>,
    read: usize,
    has_ended: bool,
    reader: Option<Waker>,
    /// When the last bytes of each direction arrive: none overtake others.
    last_us: [u64; 2],
    /// What has arrived at the server and is no whole command yet.
    pub(super) input: Vec<u8>,
}

/// The connections and what is under way.
pub(super) struct Network {
    pub(super) now_us: u64,
    scheduled: BinaryHeap<Scheduled>,
    number: u64,
    pub(super) connections: Vec<Option<Connection>>,
    /// Until when each process is partitioned.
    partitioned_until_us: Vec<u64>,
    pub(super) is_down: bool,
    /// The time of each way, without jitter.
    one_way_us: u64,
    /// What is added to the way of replies.
    pub(super) slower_us: u64,
    random: Rng,
    pub(super) opened: u64,
    pub(super) open: u64,
    pub(super) most_open: u64,
}

impl Network {
    pub(super) fn new(processes: usize, round_trip_us: u64, seed: u64) -> Self {
        Self {
            now_us: 0,
            scheduled: BinaryHeap::new(),
            number: 0,
            connections: Vec::new(),
            partitioned_until_us: vec![0; processes],
            is_down: false,
            one_way_us: round_trip_us / 2,
            slower_us: 0,
            random: Rng::with_seed(seed ^ 0x6e65_7477_6f72_6b73),
            opened: 0,
            open: 0,
            most_open: 0,
        }
    }

    /// Takes what arrives up to a time.
    pub(super) fn next_until(&mut self, until_us: u64) -> Option<(u64, Delivery)> {
        if self.scheduled.peek()?.at_us > until_us {
            return None;
        }
        self.scheduled.pop().map(|next| (next.at_us, next.delivery))
    }

    /// When the next delivery is due.
    pub(super) fn next_at_us(&self) -> Option<u64> {
        self.scheduled.peek().map(|next| next.at_us)
    }

    fn schedule(&mut self, at_us: u64, delivery: Delivery) {
        self.number += 1;
        self.scheduled.push(Scheduled { at_us, number: self.number, delivery });
    }

    /// When something of a process arrives that is sent at a time: up to a fifth later by chance, and after a partition.
    fn arrives_us(&mut self, process: usize, sent_us: u64) -> u64 {
        let way_us = self.one_way_us + self.random.u64(..=self.one_way_us / 5);
        (sent_us + way_us).max(self.partitioned_until_us[process])
    }

    pub(super) fn connection(&mut self, id: usize) -> Option<&mut Connection> {
        self.connections.get_mut(id)?.as_mut()
    }

    /// Sends bytes to a process at a time.
    pub(super) fn send_to_client(&mut self, id: usize, sent_us: u64, bytes: Vec<u8>) {
        let Some(process) = self.connection(id).map(|connection| connection.process) else { return };
        let at_us = self.arrives_us(process, sent_us) + self.slower_us;
        let Some(connection) = self.connection(id) else { return };
        connection.last_us[1] = connection.last_us[1].max(at_us);
        let at_us = connection.last_us[1];
        self.schedule(at_us, Delivery::ToClient(id, bytes));
    }

    fn send_to_server(&mut self, id: usize, delivery: Delivery) {
        let now_us = self.now_us;
        let Some(process) = self.connection(id).map(|connection| connection.process) else { return };
        let at_us = self.arrives_us(process, now_us);
        let Some(connection) = self.connection(id) else { return };
        connection.last_us[0] = connection.last_us[0].max(at_us);
        let at_us = connection.last_us[0];
        self.schedule(at_us, delivery);
    }

    /// Bytes have arrived at a process.
    pub(super) fn receive(&mut self, id: usize, bytes: &[u8]) {
        if let Some(connection) = self.connection(id) {
            connection.inbox.extend_from_slice(bytes);
            connection.wake();
        }
    }

    /// The connection has ended for the client.
    pub(super) fn end(&mut self, id: usize) {
        if let Some(connection) = self.connection(id) {
            connection.has_ended = true;
            connection.wake();
        }
    }

    /// The server takes a connection, or refuses it.
    pub(super) fn accept(&mut self, process: usize, told: oneshot::Sender<io::Result<usize>>) {
        if self.partitioned_until_us[process] > self.now_us {
            return self.schedule(self.partitioned_until_us[process], Delivery::Connects(process, told));
        }
        if self.is_down {
            let _ = told.send(Err(io::ErrorKind::ConnectionRefused.into()));
            return;
        }
        self.connections.push(Some(Connection {
            process,
            inbox: Vec::new(),
            read: 0,
            has_ended: false,
            reader: None,
            last_us: [0; 2],
            input: Vec::new(),
        }));
        self.opened += 1;
        self.open += 1;
        self.most_open = self.most_open.max(self.open);
        let id = self.connections.len() - 1;
        if told.send(Ok(id)).is_err() {
            // The attempt was given up meanwhile.
            self.close(id);
        }
    }

    /// The server forgets a connection.
    pub(super) fn close(&mut self, id: usize) {
        if let Some(place) = self.connections.get_mut(id)
            && place.take().is_some()
        {
            self.open -= 1;
        }
    }

    /// Resets all connections, as a server does that ends.
    pub(super) fn reset_all(&mut self) {
        for id in 0..self.connections.len() {
            self.end(id);
        }
    }

    /// Nothing of these processes arrives until then.
    pub(super) fn partition(&mut self, processes: usize, until_us: u64) {
        for until in &mut self.partitioned_until_us[..processes] {
            *until = until_us;
        }
    }
}

impl Connection {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Reads what has arrived; `None` when there is nothing yet.
    fn take(&mut self, into: &mut [u8]) -> Option<usize> {
        let length = into.len().min(self.inbox.len() - self.read);
        if length == 0 {
            return self.has_ended.then_some(0);
        }
        into[..length].copy_from_slice(&self.inbox[self.read..self.read + length]);
        self.read += length;
        if self.read == self.inbox.len() {
            self.inbox.clear();
            self.read = 0;
        }
        Some(length)
    }
}

/// The network, which sockets and the run share; all are on one thread.
#[derive(Clone)]
pub(super) struct SharedNetwork(Arc<Mutex<Network>>);

impl SharedNetwork {
    pub(super) fn new(network: Network) -> Self {
        Self(Arc::new(Mutex::new(network)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Network> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The machine that the limiters of the fleet see.
pub(super) struct FleetMachine {
    network: SharedNetwork,
    random: std::cell::RefCell<Rng>,
}

impl FleetMachine {
    pub(super) fn new(network: SharedNetwork, seed: u64) -> Self {
        Self { network, random: Rng::with_seed(seed ^ 0x6c69_6d69_7465_7273).into() }
    }
}

impl Machine for FleetMachine {
    /// A host is the number of the process behind its name's hyphen.
    fn connect(&self, host: &str, _: u16) -> Connecting {
        let process: usize = host.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let network = self.network.clone();
        let (told, tells) = oneshot::channel();
        {
            let mut network = network.lock();
            let now_us = network.now_us;
            let at_us = network.arrives_us(process, now_us) + network.one_way_us;
            network.schedule(at_us, Delivery::Connects(process, told));
        }
        Box::pin(async move {
            let id = tells.await.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionRefused.into()))?;
            Ok(Box::new(FleetSocket { network, id }) as Box<dyn Socket>)
        })
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().u64(..)
    }
}

/// The client's end of a connection.
struct FleetSocket {
    network: SharedNetwork,
    id: usize,
}

impl fmt::Debug for FleetSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetSocket({})", self.id)
    }
}

impl Socket for FleetSocket {
    fn has_input_or_end(&self) -> bool {
        self.network.lock().connection(self.id).is_none_or(|it| it.has_ended || it.read < it.inbox.len())
    }

    fn read_arrived(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.network.lock().connection(self.id) {
            Some(connection) => connection.take(into).ok_or_else(|| io::ErrorKind::WouldBlock.into()),
            None => Ok(0),
        }
    }

    fn reset_when_closed(&self) {}
}

impl AsyncRead for FleetSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut network = self.network.lock();
        let Some(connection) = network.connection(self.id) else { return Poll::Ready(Ok(())) };
        if let Some(length) = connection.take(buf.initialize_unfilled()) {
            buf.advance(length);
            return Poll::Ready(Ok(()));
        }
        connection.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for FleetSocket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut network = self.network.lock();
        if network.connection(self.id).is_none_or(|connection| connection.has_ended) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        network.send_to_server(self.id, Delivery::ToServer(self.id, bytes.into()));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for FleetSocket {
    fn drop(&mut self) {
        self.network.lock().send_to_server(self.id, Delivery::ServerEnds(self.id));
    }
}
