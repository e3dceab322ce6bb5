//! Clients that ask all the time, in threads of their own, and what they have got.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::program::{Program, SOON};
use crate::{grpc, http, resp};

/// The clients of each protocol that connect once and keep asking.
const CLIENTS: usize = 4;
/// The protocols, which are the keys that their clients ask for, unless they have many.
pub(crate) const PROTOCOLS: [&str; 3] = ["http", "grpc", "resp"];
/// How long the server waits for the first request of a client that connects while it stops. A client that was suspended for longer
/// gets no answer.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// How clients ask.
#[derive(Clone, Copy)]
pub(crate) struct Pattern {
    /// Between two requests of a client.
    pub(crate) pause: Duration,
    /// After this number of requests a client makes a new connection.
    pub(crate) requests_of_connection: u64,
    /// How many keys there are, or one for each protocol.
    pub(crate) keys: Option<u64>,
}

/// What the clients of one protocol have got.
#[derive(Default)]
pub(crate) struct Tally {
    /// Requests that were written, or may have been.
    pub(crate) asked: AtomicU64,
    /// Answers that admit.
    pub(crate) admitted: AtomicU64,
    /// Requests without an answer, on connections that had answered before or were opened long before.
    pub(crate) unanswered: AtomicU64,
    pub(crate) connections: AtomicU64,
}

/// What all clients of a protocol share.
pub(crate) struct Shared {
    pub(crate) address: SocketAddr,
    pub(crate) pattern: Pattern,
    pub(crate) protocol: &'static str,
    pub(crate) tally: Tally,
    /// Whether clients stop asking.
    ends: AtomicBool,
    /// Whether the server is killed: then connections break off.
    pub(crate) may_break: AtomicBool,
}

impl Shared {
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// The key of a request.
    pub(crate) fn key(&self, number: u64) -> String {
        match self.pattern.keys {
            // Neighbours are far from each other, as those of unrelated callers are.
            Some(keys) => format!("{}-{}", self.protocol, number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % keys),
            None => self.protocol.to_owned(),
        }
    }

    /// A new connection; `None` once there is no listener any more.
    pub(crate) fn connect(&self) -> Option<Connection> {
        match TcpStream::connect(self.address) {
            Ok(stream) => {
                stream.set_read_timeout(Some(SOON)).unwrap();
                stream.set_nodelay(true).unwrap();
                self.tally.connections.fetch_add(1, Ordering::Relaxed);
                Some(Connection { stream, since: Instant::now(), requests: 0 })
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => None,
            Err(_) if self.may_break.load(Ordering::SeqCst) => None,
            Err(error) => panic!("{}: no connection: {error}", self.protocol),
        }
    }

    pub(crate) fn admitted(&self, answers: u64) {
        self.tally.admitted.fetch_add(answers, Ordering::Relaxed);
    }

    /// Counts requests that got no answer. A server that stops may leave them on a connection that was silent; on a new one it
    /// answers the first request.
    pub(crate) fn unanswered(&self, connection: &Connection, requests: u64, why: &dyn std::fmt::Display) {
        self.tally.unanswered.fetch_add(requests, Ordering::Relaxed);
        let is_allowed = connection.requests > 0
            || connection.since.elapsed() >= FIRST_REQUEST
            || self.may_break.load(Ordering::SeqCst);
        assert!(is_allowed, "{}: the first request of a connection got no answer: {why}", self.protocol);
    }
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    since: Instant,
    /// How many have got their answers.
    pub(crate) requests: u64,
}

/// Clients that ask.
pub(crate) struct Load {
    shared: Vec<Arc<Shared>>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(program: &Program, pattern: Pattern) -> Self {
        let (mut all, mut threads) = (Vec::new(), Vec::new());
        for protocol in PROTOCOLS {
            let address = if protocol == "resp" { program.resp } else { program.http };
            let (tally, ends, may_break) = (Tally::default(), AtomicBool::new(false), AtomicBool::new(false));
            let shared = Arc::new(Shared { address, pattern, protocol, tally, ends, may_break });
            for number in 0..CLIENTS {
                let mine = Arc::clone(&shared);
                threads.push(std::thread::spawn(move || match mine.protocol {
                    "http" => http::ask(&mine, number as u64),
                    "grpc" => grpc::ask(&mine, number as u64),
                    // Some wait for each reply, and some send many commands at once.
                    _ => resp::ask(&mine, number as u64, if number.is_multiple_of(2) { 1 } else { 16 }),
                }));
            }
            all.push(shared);
        }
        Self { shared: all, threads }
    }

    /// Waits until each protocol has admitted this number of requests.
    pub(crate) fn wait_for(&self, admitted: u64) {
        let since = Instant::now();
        for shared in &self.shared {
            while shared.tally.admitted.load(Ordering::Relaxed) < admitted {
                assert!(since.elapsed() < SOON, "{} is not answered", shared.protocol);
                assert!(!self.threads.iter().all(JoinHandle::is_finished), "the clients have ended");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// From here on connections may break off at any time.
    pub(crate) fn may_break(&self) {
        for shared in &self.shared {
            shared.may_break.store(true, Ordering::SeqCst);
        }
    }

    /// Lets the clients stop asking.
    pub(crate) fn stop(&self) {
        for shared in &self.shared {
            shared.ends.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until all clients have ended, and returns what those of each protocol have got.
    pub(crate) fn end(self) -> Vec<Arc<Shared>> {
        for thread in self.threads {
            thread.join().expect("a client without an error");
        }
        self.shared
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.shared.iter().map(|shared| shared.tally.admitted.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn connections(&self) -> u64 {
        self.shared.iter().map(|shared| shared.tally.connections.load(Ordering::Relaxed)).sum()
    }
}

impl Tally {
    pub(crate) fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
