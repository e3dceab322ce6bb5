//! A server of the tests: the core of the module decides, and a test sees and holds back what arrives.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use polylimit_redis::call::Call;
use polylimit_redis::keyspace::{Change, Effect, Found, Keyspace};
use polylimit_redis::policies::Policies;

use crate::transport::connect::MODULE_PROTOCOL;

/// What becomes of calls that concern a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// They are applied, and the replies wait.
    Hold,
    /// They are applied, and the connection is lost.
    Lose,
    /// They are refused.
    Refuse,
}

#[derive(Default)]
struct State {
    values: HashMap<Vec<u8>, Vec<u8>>,
    policies: Policies,
    /// By a part of the key.
    faults: HashSet<(Fault, &'static str)>,
    /// The keys of all calls.
    called: Vec<Vec<u8>>,
}

#[derive(Clone, Default)]
pub(super) struct Server(Arc<(Mutex<State>, Condvar)>);

impl Server {
    /// Starts the server; returns its port, too. Its threads end with the test's process.
    pub(super) fn start() -> (Self, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (server, port) = (Self::default(), listener.local_addr().unwrap().port());
        let of_connections = server.clone();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (server, connection) = (of_connections.clone(), connection.unwrap());
                thread::spawn(move || server.serve(connection));
            }
        });
        (server, port)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    /// Lets calls fail that concern keys with this part.
    pub(super) fn inject(&self, fault: Fault, part: &'static str) {
        self.state().faults.insert((fault, part));
    }

    /// Lets all calls succeed again, those that are held back first.
    pub(super) fn heal(&self) {
        self.state().faults.clear();
        self.0.1.notify_all();
    }

    /// The number of entries on keys with this part that have arrived.
    pub(super) fn called(&self, part: &str) -> usize {
        self.state().called.iter().filter(|key| has(key, part)).count()
    }

    /// Decides everything as it arrives; replies leave in the same order.
    fn serve(&self, connection: TcpStream) -> io::Result<()> {
        let mut input = BufReader::new(connection.try_clone()?);
        let (replies, leaving) = channel();
        let server = self.clone();
        thread::spawn(move || server.reply(connection, &leaving));
        loop {
            let words = read_command(&mut input)?;
            let reply = match &*words[0] {
                b"POLYLIMIT.VERSION" => (vec![], format!(":{MODULE_PROTOCOL}\r\n").into_bytes()),
                b"TIME" => (vec![], b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n".to_vec()),
                b"POLYLIMIT.DECIDE" => (words[4..].to_vec(), self.decide(&words)),
                _ => (vec![], b"+OK\r\n".to_vec()),
            };
            let _ = replies.send(reply);
        }
    }

    fn reply(&self, mut output: TcpStream, replies: &Receiver<(Vec<Vec<u8>>, Vec<u8>)>) {
        for (keys, reply) in replies {
            let mut state = self.state();
            while state.fails(&keys, Fault::Hold) {
                state = self.0.1.wait(state).unwrap();
            }
            if state.fails(&keys, Fault::Lose) || output.write_all(&reply).is_err() {
                let _ = output.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    fn decide(&self, words: &[Vec<u8>]) -> Vec<u8> {
        let [_, policy, call, holds, keys @ ..] = words else { panic!("{} words", words.len()) };
        let mut state = self.state();
        state.called.extend_from_slice(keys);
        if state.fails(keys, Fault::Refuse) {
            return b"-ERR refused\r\n".to_vec();
        }
        let policy = state.policies.named(policy).unwrap();
        let (call, mut reply) = (Call::read(call, holds, keys.len()).unwrap(), Vec::new());
        call.decide(&policy, 1_700_000_000_000_000, &mut Values(&mut state.values, keys), &mut reply);
        [format!("${}\r\n", reply.len()).as_bytes(), &reply, b"\r\n"].concat()
    }
}

impl State {
    fn fails(&self, keys: &[Vec<u8>], fault: Fault) -> bool {
        self.faults.iter().any(|(it, part)| *it == fault && keys.iter().any(|key| has(key, part)))
    }
}

fn has(key: &[u8], part: &str) -> bool {
    String::from_utf8_lossy(key).contains(part)
}

/// The values of a call's keys.
struct Values<'a>(&'a mut HashMap<Vec<u8>, Vec<u8>>, &'a [Vec<u8>]);

impl Values<'_> {
    fn found(&self, key: usize) -> Found<'_> {
        self.0.get(&self.1[key]).map_or(Found::Nothing, |value| Found::String(value))
    }

    fn apply(&mut self, key: usize, change: Change) {
        let key = &self.1[key];
        match change {
            Change::Nothing => {}
            Change::Delete => drop(self.0.remove(key)),
            Change::Overwrite(bytes) | Change::Set(bytes, _) => {
                self.0.insert(key.clone(), bytes.into_vec());
            }
            Change::Write(at, bytes, _) => {
                let value = self.0.get_mut(key).unwrap();
                value.truncate(at);
                value.extend_from_slice(&bytes);
            }
        }
    }
}

impl Keyspace for Values<'_> {
    fn update(&mut self, key: usize, decide: &mut dyn FnMut(Found<'_>) -> Effect) {
        let change = decide(self.found(key)).change;
        self.apply(key, change);
    }

    fn update_together(&mut self, keys: Range<usize>, decide: &mut dyn FnMut(&[Found<'_>]) -> Vec<Effect>) {
        let found: Vec<_> = keys.clone().map(|key| self.found(key)).collect();
        for (key, effect) in keys.zip(decide(&found)) {
            self.apply(key, effect.change);
        }
    }
}

fn read_command(input: &mut impl BufRead) -> io::Result<Vec<Vec<u8>>> {
    let number = |input: &mut dyn BufRead| {
        let mut line = String::new();
        input.read_line(&mut line)?;
        line.trim_end()
            .get(1..)
            .and_then(|digits| digits.parse().ok())
            .ok_or(io::ErrorKind::UnexpectedEof.into())
    };
    let count: io::Result<usize> = number(input);
    let word = |_| {
        let mut word = vec![0; number(input)? + 2];
        input.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        Ok(word)
    };
    (0..count?).map(word).collect()
}
