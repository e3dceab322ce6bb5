//! A service that differs from a plain server: a proxy that changes commands, or answers them itself.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::port::Port;

/// A command, as its arguments.
pub type Arguments = Vec<Vec<u8>>;

/// Changes a command, or answers it: with bytes of the protocol.
type Change = dyn Fn(&mut Arguments) -> Option<Vec<u8>> + Send + Sync;

/// A proxy to one server that imitates a service. Each connection handles one command after the other. Dropping it closes
/// all its connections.
pub struct Service {
    port: Port,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    upstream: SocketAddr,
    change: Box<Change>,
    ended: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Service {
    /// Imitates a service by a change of each command to the server at `upstream`.
    pub fn start(
        upstream: SocketAddr,
        change: impl Fn(&mut Arguments) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let port = Port::reserve();
        let listener = TcpListener::bind(port.address()).expect("the port is ours");
        let shared = Arc::new(Shared {
            upstream,
            change: Box::new(change),
            ended: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let inner = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            for client in listener.incoming() {
                if inner.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), shared) = (client, Arc::clone(&inner)) else { continue };
                thread::spawn(move || shared.serve(&client));
            }
        });
        Self { port, shared, thread: Some(thread) }
    }

    /// Refuses `TIME` in scripts, in the words of Redis, as some services do.
    pub fn without_time_in_scripts(upstream: SocketAddr) -> Self {
        // The server itself refuses ROLE in scripts. It knows the changed scripts by other hashes.
        let hashes = Mutex::new(HashMap::<Vec<u8>, Vec<u8>>::new());
        Self::start(upstream, move |command| {
            let name = command[0].to_ascii_uppercase();
            let mut hashes = hashes.lock().expect("no panic under the lock");
            if name == b"EVALSHA" {
                let Some(hash) = hashes.get(&command[1]) else {
                    return Some(b"-NOSCRIPT No matching script. Please use EVAL.\r\n".to_vec());
                };
                command[1].clone_from(hash);
            }
            if name == b"EVAL" {
                let source = String::from_utf8(command[1].clone()).expect("a script is text");
                let changed = source.replace("'TIME'", "'ROLE'");
                hashes.insert(hash(upstream, &source), hash(upstream, &changed));
                command[1] = changed.into_bytes();
            }
            None
        })
    }

    /// Does not know the first line of scripts, `#!lua`: in the words of Redis 6.2.
    pub fn without_first_line_of_scripts(upstream: SocketAddr) -> Self {
        const WORDS: &[u8] =
            b"-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#' \r\n";
        Self::start(upstream, |command| {
            let refused = command[0].eq_ignore_ascii_case(b"EVAL") && command[1].starts_with(b"#!");
            refused.then(|| WORDS.to_vec())
        })
    }

    /// Does not know some commands, or subcommands after a space; in any case of letters.
    pub fn without_commands(upstream: SocketAddr, names: &'static [&'static str]) -> Self {
        Self::start(upstream, |command| {
            let words = command.iter().take(2).map(|word| String::from_utf8_lossy(word).to_ascii_uppercase());
            let words: Vec<String> = words.collect();
            let refused = names.contains(&&*words[0]) || names.contains(&&*words.join(" "));
            let name = words[0].to_ascii_lowercase();
            refused.then(|| {
                format!("-ERR unknown command '{name}', with args beginning with: \r\n").into_bytes()
            })
        })
    }

    /// The port to connect to, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the listener.
        drop(TcpStream::connect(self.port.address()));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        for open in self.shared.open.lock().expect("no panic under the lock").drain(..) {
            drop(open.shutdown(Shutdown::Both));
        }
    }
}

impl Shared {
    fn serve(&self, client: &TcpStream) {
        let Ok(server) = TcpStream::connect(self.upstream) else { return };
        for socket in [client, &server] {
            drop(socket.set_nodelay(true));
            let socket = socket.try_clone().expect("a descriptor");
            self.open.lock().expect("no panic under the lock").push(socket);
        }
        if self.ended.load(Ordering::SeqCst) {
            return;
        }
        drop(self.relay(client, &server));
        for socket in [client, &server] {
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    fn relay(&self, mut client: &TcpStream, mut server: &TcpStream) -> io::Result<()> {
        let (mut requests, mut replies) = (BufReader::new(client), BufReader::new(server));
        let (mut command, mut reply) = (Vec::new(), Vec::new());
        loop {
            command.clear();
            let mut arguments = read_message(&mut requests, &mut command)?;
            if let Some(answer) = (self.change)(&mut arguments) {
                client.write_all(&answer)?;
                continue;
            }
            server.write_all(&packed(&arguments))?;
            if arguments[0].eq_ignore_ascii_case(b"SUBSCRIBE") {
                // From here on, the server sends at any time.
                return thread::scope(|scope| {
                    let ended = scope.spawn(|| {
                        let ended = io::copy(&mut replies, &mut &*client);
                        drop(client.shutdown(Shutdown::Both));
                        ended
                    });
                    drop(io::copy(&mut requests, &mut &*server));
                    drop(server.shutdown(Shutdown::Both));
                    ended.join().expect("no panic").map(drop)
                });
            }
            reply.clear();
            read_message(&mut replies, &mut reply)?;
            client.write_all(&reply)?;
        }
    }
}

/// Appends a message of the protocol to `raw`, and returns the bulk strings that it consists of.
fn read_message(from: &mut impl BufRead, raw: &mut Vec<u8>) -> io::Result<Arguments> {
    let start = raw.len();
    if from.read_until(b'\n', raw)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = String::from_utf8_lossy(&raw[start..]).trim_end().to_owned();
    let length = || line[1..].parse::<i64>().map_err(|_| io::ErrorKind::InvalidData);
    match line.as_bytes().first() {
        Some(b'$') => {
            let Ok(length) = usize::try_from(length()?) else { return Ok(Vec::new()) };
            let start = raw.len();
            from.take(length as u64 + 2).read_to_end(raw)?;
            Ok(vec![raw[start..start + length].to_vec()])
        }
        Some(b'*') => {
            let mut all = Vec::new();
            for _ in 0..length()? {
                all.extend(read_message(from, raw)?);
            }
            Ok(all)
        }
        _ => Ok(Vec::new()),
    }
}

/// The hash of a script, as the server computes it.
fn hash(upstream: SocketAddr, source: &str) -> Vec<u8> {
    let client = redis::Client::open(format!("redis://{upstream}")).expect("a URL");
    let mut connection = client.get_connection().expect("a connection");
    redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut connection).expect("a hash")
}

fn packed(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for argument in arguments {
        command.arg(argument);
    }
    command.get_packed_command()
}
