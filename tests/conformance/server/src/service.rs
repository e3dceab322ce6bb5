//! A server in this process, and its clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use polylimit::Limiter;
use polylimit_server::{Server, ServerHandle, ServerOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// How long an answer may take: the cases test decisions, not speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of one limiter, until this is dropped.
pub(crate) struct Service {
    handle: ServerHandle,
    addresses: [String; 2],
}

impl Service {
    pub(crate) fn start(runtime: &Runtime, limiter: &Limiter) -> Result<Self, String> {
        let mut options = ServerOptions::default();
        for text in ["http://127.0.0.1:0", "resp://127.0.0.1:0"] {
            options
                .listen
                .push(text.parse().map_err(|error: polylimit_server::ServeError| error.to_string())?);
        }
        options.drain = Duration::ZERO;
        let bound = runtime.block_on(Server::bind(limiter.clone(), options));
        let server = bound.map_err(|error| error.to_string())?;
        let [http, resp] = &server.endpoints()[..] else { return Err("not two listeners".to_owned()) };
        let address =
            |text: String| text.split_once("://").map_or_else(String::new, |(_, rest)| rest.to_owned());
        let addresses = [address(http.to_string()), address(resp.to_string())];
        let handle = server.handle();
        runtime.spawn(server.run());
        Ok(Self { handle, addresses })
    }

    pub(crate) fn http(&self) -> Result<HttpClient, String> {
        let connect = || {
            let stream = TcpStream::connect(&self.addresses[0])?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(HttpClient { stream: BufReader::new(stream) })
        };
        connect().map_err(|error: std::io::Error| error.to_string())
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

impl HttpClient {
    /// Sends a body, and returns that of the answer; that of an error as `{"error": code}`.
    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Result<Value, String> {
        self.exchange(path, &body.to_string()).map_err(|error| error.to_string())
    }

    fn exchange(&mut self, path: &str, body: &str) -> std::io::Result<Value> {
        let request =
            format!("POST {path} HTTP/1.1\r\nhost: limits\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (mut line, mut length) = (String::new(), 0);
        self.stream.read_line(&mut line)?;
        let is_answer = line.starts_with("HTTP/1.1 200");
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
        let answer: Value = serde_json::from_slice(&bytes)?;
        Ok(if is_answer { answer } else { json!({ "error": answer["code"], "detail": answer["detail"] }) })
    }
}
