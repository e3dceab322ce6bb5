//! A server for the tests, and a plain connection to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server of a test's own, which ends with this value. Tests empty it, so it is never one that was there already.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let program = std::env::var("POLYLIMIT_TEST_REDIS_SERVER").unwrap_or("redis-server".to_owned());
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, address: format!("127.0.0.1:{port}") }
    }

    pub(crate) fn connect(&self) -> Connection {
        for _ in 0..200 {
            if let Ok(stream) = TcpStream::connect(&self.address) {
                stream.set_nodelay(true).unwrap();
                let mut connection = Connection { stream: BufReader::new(stream) };
                self.assert_own(&mut connection);
                return connection;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("no server at {}", self.address);
    }

    /// Somebody else may have taken the port in between.
    fn assert_own(&self, connection: &mut Connection) {
        let info = String::from_utf8(connection.command(&[b"INFO", b"server"]).bulk()).unwrap();
        let own = format!("process_id:{}", self.child.id());
        assert!(info.lines().any(|line| line == own), "another server is at {}", self.address);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What a server replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Bulk(Vec<u8>),
    Nil,
    Integer(i64),
    Status(String),
    Error(String),
    Array(Vec<Value>),
}

impl Value {
    pub(crate) fn bulk(self) -> Vec<u8> {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("not a bulk string: {other:?}"),
        }
    }

    pub(crate) fn integer(self) -> i64 {
        match self {
            Self::Integer(number) => number,
            other => panic!("not an integer: {other:?}"),
        }
    }
}

pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Sends a command that is encoded already.
    pub(crate) fn send(&mut self, command: &[u8]) -> Value {
        self.stream.get_mut().write_all(command).unwrap();
        self.receive()
    }

    pub(crate) fn command(&mut self, words: &[&[u8]]) -> Value {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend(format!("${}\r\n", word.len()).bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
        self.send(&command)
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let text = line[1..].trim_end().to_owned();
        match line.as_bytes()[0] {
            b'+' => Value::Status(text),
            b'-' => Value::Error(text),
            b':' => Value::Integer(text.parse().unwrap()),
            b'$' if text == "-1" => Value::Nil,
            b'$' => {
                let mut bytes = vec![0; text.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Value::Bulk(bytes)
            }
            b'*' => Value::Array((0..text.parse().unwrap()).map(|_| self.receive()).collect()),
            other => panic!("unknown reply {other}"),
        }
    }
}
