//! The network of the simulation: connections of two pipes, whose bytes arrive in order and late, in parts, or not at all.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use polylimit::testing::simulation::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::world::World;

/// The world, which sockets, servers and the run of the schedule share; all are on one thread.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<World>>);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    /// Shares a world.
    pub fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    /// The world. No lock is held across a wait.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The direction of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the server reads.
    Server = 0,
    /// What the client reads.
    Client = 1,
}

/// How a pipe ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// After everything that was sent.
    Closed,
    /// At once: what was not read is lost.
    Reset,
}

/// A direction of a connection.
#[derive(Debug)]
pub struct Pipe {
    segments: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// All bytes that were ever sent, and that the reader has taken.
    sent: u64,
    taken: u64,
    last_at: Instant,
    ended: Option<(Instant, Ending)>,
    /// Nothing arrives until then, for a connection that is half open.
    held_until: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// What a reader finds.
#[derive(Debug)]
pub enum Arrived {
    /// Some bytes.
    Bytes(Vec<u8>),
    /// The end.
    Ended(Ending),
    /// Nothing yet, and when there may be something.
    Later(Option<Instant>),
}

impl Pipe {
    fn new(now: Instant) -> Self {
        Self {
            segments: VecDeque::new(),
            bytes: 0,
            sent: 0,
            taken: 0,
            last_at: now,
            ended: None,
            held_until: None,
            reader: None,
            writer: None,
        }
    }

    /// Sends bytes that arrive at a time, or after what was sent before. Returns how many were sent over the pipe with them; nothing
    /// if the pipe has ended.
    pub fn send(&mut self, bytes: &[u8], at: Instant) -> Option<u64> {
        if self.ended.is_some() {
            return None;
        }
        if !bytes.is_empty() {
            self.last_at = self.last_at.max(at);
            self.bytes += bytes.len();
            self.sent += bytes.len() as u64;
            self.segments.push_back((self.last_at, bytes.into()));
            self.wake();
        }
        Some(self.sent)
    }

    /// Ends the pipe at a time; the first end counts.
    pub fn end(&mut self, at: Instant, ending: Ending) {
        let at = if ending == Ending::Closed { at.max(self.last_at) } else { at };
        self.ended.get_or_insert((at, ending));
        self.wake();
    }

    /// Loses everything on its way, whatever its end was to be.
    pub fn reset(&mut self, now: Instant) {
        self.truncate(0);
        self.ended = Some((now, Ending::Reset));
        self.wake();
    }

    /// Loses what is on its way, but for the first bytes.
    pub fn truncate(&mut self, mut kept: usize) {
        for (_, bytes) in &mut self.segments {
            bytes.truncate(kept);
            kept -= bytes.len();
        }
        self.segments.retain(|(_, bytes)| !bytes.is_empty());
        self.bytes = self.segments.iter().map(|(_, bytes)| bytes.len()).sum();
    }

    /// The number of bytes on their way.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lets nothing arrive until then.
    pub fn hold(&mut self, until: Instant) {
        self.held_until = Some(until);
        self.wake();
    }

    /// Wakes reader and writer, because what they wait for may have changed.
    pub fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn arrived(&mut self, now: Instant, held: Option<Instant>, most: usize) -> Arrived {
        if let Some(until) = held.max(self.held_until).filter(|until| *until > now) {
            return Arrived::Later(Some(until));
        }
        if let Some((at, Ending::Reset)) = self.ended
            && at <= now
        {
            return Arrived::Ended(Ending::Reset);
        }
        match (self.segments.front_mut(), self.ended) {
            (Some((at, bytes)), _) if *at <= now => {
                let taken: Vec<u8> = bytes.drain(..most.min(bytes.len())).collect();
                if bytes.is_empty() {
                    self.segments.pop_front();
                }
                self.bytes -= taken.len();
                self.taken += taken.len() as u64;
                if let Some(writer) = self.writer.take() {
                    writer.wake();
                }
                Arrived::Bytes(taken)
            }
            (Some((at, _)), ended) => Arrived::Later(Some(ended.map_or(*at, |(end, _)| end.min(*at)))),
            (None, Some((at, ending))) if at <= now => Arrived::Ended(ending),
            (None, ended) => Arrived::Later(ended.map(|(at, _)| at)),
        }
    }
}

/// A connection of a process to a server.
#[derive(Debug)]
pub struct Connection {
    /// The number of the process.
    pub process: usize,
    /// The number of the server.
    pub server: usize,
    /// By [`Side`].
    pub pipes: [Pipe; 2],
    /// The client has closed its end.
    pub is_left: bool,
    /// The channels that the client has subscribed to.
    pub(crate) channels: BTreeSet<Vec<u8>>,
    /// The next command may use a slot that the server imports.
    pub(crate) is_asking: bool,
    /// Messages about refunds on their way to the client.
    pub(crate) messages: VecDeque<Message>,
}

/// A message about a refund.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// How many bytes the client has read when it has read the message.
    pub(crate) ends_at: u64,
    pub(crate) policy: usize,
    pub(crate) key: usize,
    /// The number of the execution that refunded the key.
    pub(crate) execution: u64,
}

impl Connection {
    /// A connection made now.
    pub fn new(process: usize, server: usize) -> Self {
        let now = Instant::now();
        let pipes = [Pipe::new(now), Pipe::new(now)];
        Self {
            process,
            server,
            pipes,
            is_left: false,
            channels: BTreeSet::new(),
            is_asking: false,
            messages: VecDeque::new(),
        }
    }

    /// The next message that the client has read in whole.
    pub(crate) fn heard(&mut self) -> Option<Message> {
        let taken = self.pipes[Side::Client as usize].taken;
        self.messages.pop_front_if(|message| message.ends_at <= taken)
    }
}

/// One end of a connection, which reads.
struct Reader {
    shared: Shared,
    id: u64,
    side: Side,
    timer: Pin<Box<Sleep>>,
}

impl Reader {
    fn new(shared: Shared, id: u64, side: Side) -> Self {
        Self { shared, id, side, timer: Box::pin(sleep_until(Instant::now())) }
    }

    fn arrived(&self, most: usize, waker: Option<&Waker>) -> Arrived {
        let mut world = self.shared.lock();
        let held = world.held_until(self.id, self.side);
        let Some(connection) = world.connections.get_mut(&self.id) else {
            return Arrived::Ended(Ending::Reset);
        };
        let pipe = &mut connection.pipes[self.side as usize];
        let arrived = pipe.arrived(Instant::now(), held, most);
        match (&arrived, waker) {
            (Arrived::Later(_), Some(waker)) => pipe.reader = Some(waker.clone()),
            (Arrived::Bytes(_), _) if self.side == Side::Client => world.hear(self.id),
            _ => {}
        }
        arrived
    }

    fn poll(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Arrived> {
        loop {
            match self.arrived(most, Some(cx.waker())) {
                Arrived::Later(None) => return Poll::Pending,
                Arrived::Later(Some(next)) => {
                    self.timer.as_mut().reset(next);
                    ready!(self.timer.as_mut().poll(cx));
                }
                arrived => return Poll::Ready(arrived),
            }
        }
    }
}

/// Runs the server's end of a connection: executes its commands in order.
pub async fn serve(shared: Shared, id: u64) {
    let mut reader = Reader::new(shared.clone(), id, Side::Server);
    let mut input = Vec::new();
    loop {
        match poll_fn(|cx| reader.poll(cx, usize::MAX)).await {
            Arrived::Bytes(bytes) => input.extend_from_slice(&bytes),
            Arrived::Later(_) => {}
            Arrived::Ended(_) => break,
        }
        while let Some((words, used)) = read_command(&input) {
            input.drain(..used);
            shared.lock().execute(id, &words);
        }
    }
    shared.lock().leave(id);
}

/// The first command of the input, and its length; `None` while it is not whole.
pub(crate) fn read_command(input: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let line = |at: &mut usize| {
        let length = input.get(*at..)?.windows(2).position(|two| two == b"\r\n")?;
        let number = std::str::from_utf8(&input[*at + 1..*at + length]).ok()?.parse::<usize>().ok()?;
        *at += length + 2;
        Some(number)
    };
    let count = line(&mut at)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = line(&mut at)?;
        words.push(input.get(at..at + length)?.to_vec());
        at += length + 2;
        if at > input.len() {
            return None;
        }
    }
    Some((words, at))
}

/// The client's end of a connection.
pub struct SimulatedSocket {
    reader: Reader,
    resets: std::sync::atomic::AtomicBool,
}

impl fmt::Debug for SimulatedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedSocket({})", self.reader.id)
    }
}

impl SimulatedSocket {
    /// The client's end of the connection with that number.
    pub fn new(shared: Shared, id: u64) -> Self {
        Self { reader: Reader::new(shared, id, Side::Client), resets: false.into() }
    }
}

impl Socket for SimulatedSocket {
    fn has_input_or_end(&self) -> bool {
        !matches!(self.reader.arrived(0, None), Arrived::Later(_))
    }

    fn read_arrived(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.reader.arrived(into.len(), None) {
            Arrived::Bytes(bytes) => {
                into[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            }
            Arrived::Ended(Ending::Closed) => Ok(0),
            Arrived::Ended(Ending::Reset) => Err(io::ErrorKind::ConnectionReset.into()),
            Arrived::Later(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn reset_when_closed(&self) {
        self.resets.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

impl AsyncRead for SimulatedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(self.reader.poll(cx, buf.remaining())) {
            Arrived::Bytes(bytes) => buf.put_slice(&bytes),
            Arrived::Ended(Ending::Reset) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Arrived::Ended(Ending::Closed) | Arrived::Later(_) => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimulatedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Reader { shared, id, .. } = &self.reader;
        let mut world = shared.lock();
        let (at, most, window) = world.before_write(*id);
        let is_dead = world.is_dead(*id);
        let Some(connection) = world.connections.get_mut(id) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let ended = |(at, _): (Instant, Ending)| at <= Instant::now();
        if connection.pipes[Side::Client as usize].ended.is_some_and(ended) || is_dead {
            let process = connection.process;
            world.ledger.disconnect(process);
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let pipe = &mut connection.pipes[Side::Server as usize];
        let taken = bytes.len().min(most).min(window.saturating_sub(pipe.bytes));
        if taken == 0 {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        pipe.send(&bytes[..taken], at);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimulatedSocket {
    fn drop(&mut self) {
        let ending = if *self.resets.get_mut() { Ending::Reset } else { Ending::Closed };
        let Reader { shared, id, .. } = &self.reader;
        let mut world = shared.lock();
        let (at, ..) = world.before_write(*id);
        if let Some(connection) = world.connections.get_mut(id) {
            connection.is_left = true;
            connection.pipes[Side::Server as usize].end(at, ending);
        }
    }
}
