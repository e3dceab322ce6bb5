//! A server in a thread of its own, and a client over plain sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::{Limiter, Policy};
use polylimit_server::{Endpoint, Server, ServerHandle, ServerOptions, Signals};
use serde_json::Value;

/// How long a client waits for what has to come.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A server that runs until this is dropped.
pub(crate) struct Running {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) handle: ServerHandle,
    ended: Option<JoinHandle<bool>>,
}

impl Running {
    /// A server with these options, and a listener for HTTP, one for RESP and one for operators, unless the options have their own.
    pub(crate) fn start(limiter: Limiter, options: ServerOptions) -> Self {
        Self::launch(limiter, options, false)
    }

    /// The same, and signals of the process reload and stop it.
    pub(crate) fn start_with_signals(limiter: Limiter, options: ServerOptions) -> Self {
        Self::launch(limiter, options, true)
    }

    fn launch(limiter: Limiter, mut options: ServerOptions, takes_signals: bool) -> Self {
        if options.listen.is_empty() {
            options.listen =
                ["http://127.0.0.1:0", "resp://127.0.0.1:0"].map(|text| text.parse().unwrap()).to_vec();
            options.admin = Some("http://127.0.0.1:0".parse().unwrap());
        }
        let (tell, told) = mpsc::channel();
        let ended = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let signals = takes_signals.then(|| Signals::new().unwrap());
                let server = Server::bind(limiter, options).await.unwrap();
                tell.send((server.endpoints(), server.handle())).unwrap();
                match signals {
                    Some(signals) => signals.run(server).await,
                    None => server.run().await,
                }
            })
        });
        let (endpoints, handle) = told.recv_timeout(SOON).expect("a server that listens");
        Self { endpoints, handle, ended: Some(ended) }
    }

    /// Where a listener is: 0 and on in the order of the options.
    pub(crate) fn address(&self, at: usize) -> SocketAddr {
        let text = self.endpoints[at].to_string();
        text.split_once("://").unwrap().1.parse().unwrap()
    }

    pub(crate) fn http(&self) -> Client {
        Client(self.address(0))
    }

    pub(crate) fn resp(&self) -> TcpStream {
        connect(self.address(1))
    }

    pub(crate) fn admin(&self) -> Client {
        Client(self.address(2))
    }

    /// Stops the server, and returns whether every connection has ended by itself.
    pub(crate) fn stop(mut self) -> bool {
        self.handle.stop();
        self.ended.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(ended) = self.ended.take() {
            let _ = ended.join();
        }
    }
}

/// A limiter at a time that stands still, with the policies `api` and `login`.
pub(crate) fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::new(1_789_948_800_000_000).unwrap();
    let policy = |name, quotas| Policy::parse(name, quotas).unwrap();
    let limiter = Limiter::builder()
        .policy(policy("api", "3/minute token_bucket"))
        .policy(policy("login", "1/hour fixed_window; 5/day"))
        .policy(policy("model", "2 concurrent; 100/minute token_bucket"))
        .clock(clock.clone())
        .observe_keys(16)
        .build()
        .unwrap();
    (limiter, clock)
}

pub(crate) fn started() -> Running {
    Running::start(limiter().0, ServerOptions::default())
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A client that makes a connection for each request.
#[derive(Clone, Copy)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The reply in these bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }
}

impl Client {
    pub(crate) fn send(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut stream = connect(self.0);
        send_on(&mut stream, method, path, fields, body)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[], body.to_string().as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }
}

/// Sends one request, and reads until the server ends the connection.
pub(crate) fn send_on(
    stream: &mut (impl Read + Write),
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in fields {
        head = head + name + ": " + value + "\r\n";
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses the head does not read the body.
    let _ = stream.write_all(body);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    Reply::parse(&bytes)
}

/// The bytes of a command.
pub(crate) fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Sends commands at once, each with its words, and reads as many bytes as are expected; fails with what was received instead.
pub(crate) fn exchange(stream: &mut (impl Read + Write), commands: &[&str], expected: &str) {
    let mut bytes = Vec::new();
    for line in commands {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        bytes.extend(command(&words));
    }
    stream.write_all(&bytes).unwrap();
    expect(stream, expected);
}

/// Reads as many bytes as are expected.
pub(crate) fn expect(stream: &mut impl Read, expected: &str) {
    let mut got = Vec::new();
    let mut byte = [0];
    while got.len() < expected.len() {
        match stream.read(&mut byte) {
            Ok(1) => got.push(byte[0]),
            _ => break,
        }
        if !expected.as_bytes().starts_with(&got) {
            // The rest of the line shows what was received.
            while !got.ends_with(b"\n") && matches!(stream.read(&mut byte), Ok(1)) {
                got.push(byte[0]);
            }
            break;
        }
    }
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

/// Waits until something is so.
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let since = std::time::Instant::now();
    while !is_so() {
        assert!(since.elapsed() < SOON, "it does not come to be so");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the other end has ended the connection, once everything that it has sent was read.
pub(crate) fn has_ended(stream: &mut impl Read) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
