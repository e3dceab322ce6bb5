//! A server in this process, and its clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use polylimit::Limiter;
use polylimit_server::{Server, ServerHandle, ServerOptions};
use serde_json::Value;
use tokio::runtime::Runtime;

/// How long an answer may take: the cases test decisions, not speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of one limiter, until this is dropped.
pub(crate) struct Service {
    handle: ServerHandle,
    addresses: [String; 3],
}

impl Service {
    pub(crate) fn start(runtime: &Runtime, limiter: &Limiter) -> Result<Self, String> {
        let mut options = ServerOptions::default();
        for text in ["http://127.0.0.1:0", "resp://127.0.0.1:0"] {
            options
                .listen
                .push(text.parse().map_err(|error: polylimit_server::ServeError| error.to_string())?);
        }
        options.admin = Some(
            "http://127.0.0.1:0".parse().map_err(|error: polylimit_server::ServeError| error.to_string())?,
        );
        options.drain = Duration::ZERO;
        let bound = runtime.block_on(Server::bind(limiter.clone(), options));
        let server = bound.map_err(|error| error.to_string())?;
        let [http, resp, admin] = &server.endpoints()[..] else {
            return Err("not three listeners".to_owned());
        };
        let address =
            |text: String| text.split_once("://").map_or_else(String::new, |(_, rest)| rest.to_owned());
        let addresses = [http, resp, admin].map(|endpoint| address(endpoint.to_string()));
        let handle = server.handle();
        runtime.spawn(server.run());
        Ok(Self { handle, addresses })
    }

    pub(crate) fn http(&self) -> Result<HttpClient, String> {
        HttpClient::connect(&self.addresses[0])
    }

    /// A connection to the listener for operators.
    pub(crate) fn admin(&self) -> Result<HttpClient, String> {
        HttpClient::connect(&self.addresses[2])
    }

    pub(crate) fn resp(&self) -> Result<redis::Connection, String> {
        let client = redis::Client::open(format!("redis://{}/", self.addresses[1]));
        let connect = || client?.get_connection_with_timeout(PATIENCE);
        connect().map_err(|error: redis::RedisError| error.to_string())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

/// One connection over HTTP/1.1.
pub(crate) struct HttpClient {
    stream: BufReader<TcpStream>,
}

/// An answer over HTTP.
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The JSON of the body; a string for text.
    pub(crate) body: Value,
}

impl HttpClient {
    fn connect(address: &str) -> Result<Self, String> {
        let connect = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Self { stream: BufReader::new(stream) })
        };
        connect().map_err(|error: std::io::Error| error.to_string())
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Result<Reply, String> {
        self.send("POST", path, "", &body.to_string())
    }

    /// Sends a request, with further lines of its header, each with its end.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        fields: &str,
        body: &str,
    ) -> Result<Reply, String> {
        self.exchange(method, path, fields, body).map_err(|error| format!("{method} {path}: {error}"))
    }

    fn exchange(&mut self, method: &str, path: &str, fields: &str, body: &str) -> std::io::Result<Reply> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (mut line, mut length) = (String::new(), 0);
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).unwrap_or_default().parse().map_err(std::io::Error::other)?;
        while line != "\r\n" {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Reply { status, body })
    }
}
