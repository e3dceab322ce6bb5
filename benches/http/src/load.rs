//! A client that keeps a fixed number of connections busy.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_quickack;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// How long after its end a slice may take to receive the last responses. A process that starts on a busy machine may take this
/// long to send its first response.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection with the bytes of its last response.
struct Connection {
    stream: TcpStream,
    buffer: Box<[u8; 4096]>,
}

/// The connections to one service. No request is under way between two slices.
pub(crate) struct Client {
    idle: Vec<Connection>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, connections: usize) -> io::Result<Self> {
        let mut idle = Vec::with_capacity(connections);
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            idle.push(Connection { stream, buffer: Box::new([0; 4096]) });
        }
        Ok(Self { idle })
    }

    /// Sends one request, and returns the response as text.
    pub(crate) async fn response(&mut self) -> io::Result<String> {
        let Some(connection) = self.idle.first_mut() else { return Err(ErrorKind::NotConnected.into()) };
        let length = timeout(PATIENCE, connection.exchange()).await??;
        Ok(String::from_utf8_lossy(&connection.buffer[..length]).into_owned())
    }

    /// Sends requests on all connections for a time, and returns how many were answered.
    pub(crate) async fn slice(&mut self, length: Duration) -> io::Result<u64> {
        let end = Instant::now() + length;
        let mut tasks = JoinSet::new();
        for mut connection in self.idle.drain(..) {
            tasks.spawn(async move {
                let mut responses = 0;
                while Instant::now() < end {
                    connection.exchange().await?;
                    responses += 1;
                }
                io::Result::Ok((connection, responses))
            });
        }
        let mut responses = 0;
        while let Some(ended) = timeout(length + PATIENCE, tasks.join_next()).await? {
            let (connection, own) = ended??;
            responses += own;
            self.idle.push(connection);
        }
        Ok(responses)
    }
}

impl Connection {
    /// Sends a request, waits for all of its response, and returns how many bytes that has. Any status but 200 is an error.
    async fn exchange(&mut self) -> io::Result<usize> {
        self.stream.write_all(REQUEST).await?;
        let mut received = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[received..]).await?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            received += read;
            if is_complete(&self.buffer[..received])? {
                return Ok(received);
            }
            // Otherwise a server that sends a response in two parts waits up to 40 ms for the acknowledgement of the first.
            set_tcp_quickack(&self.stream, true)?;
        }
    }
}

/// Whether these are all bytes of a response.
fn is_complete(bytes: &[u8]) -> io::Result<bool> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(bytes).map_err(io::Error::other)? else {
        return Ok(false);
    };
    if response.code != Some(200) {
        return Err(io::Error::other(String::from_utf8_lossy(bytes)));
    }
    let length = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|field| std::str::from_utf8(field.value).ok()?.parse::<usize>().ok());
    let length = length.ok_or_else(|| io::Error::other("a response without content-length"))?;
    Ok(bytes.len() >= head + length)
}
