//! Requests that are decided together, as another caller sees them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use polylimit_test_servers::FaultProxy;

use crate::program::{Program, SOON, Store};

/// How long a message between the server and the store takes.
const LATENCY: Duration = Duration::from_millis(500);
/// A policy whose keys admit one unit.
const SCARCE: &str = "[policies.scarce]\nquotas = \"1/366d fixed_window\"\n";

/// Sends a check of `load` and `scarce`, of the same key, and returns the connection.
fn send(program: &Program, key: &str) -> TcpStream {
    let of = |policy: &str| format!(r#"{{"policy":"{policy}","key":"{key}"}}"#);
    let body = format!(r#"{{"requests":[{},{}],"together":true}}"#, of("load"), of("scarce"));
    let mut stream = TcpStream::connect(program.http).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let length = body.len();
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn denied_request_spends_nothing_at_any_moment() {
    let store = Store::start(SCARCE);
    let proxy = FaultProxy::start(store.address());
    let program = store.serve_through(proxy.address(), &[]);
    // The first one is admitted, and uses up the scarce key.
    assert!(answer(send(&program, "k")).contains(r#""allowed":true"#));
    assert_eq!(store.spent("k"), 1);
    // A unit that was spent and given back would be missing for two messages.
    proxy.set_latency(LATENCY, Duration::ZERO);
    let (stream, since) = (send(&program, "k"), Instant::now());
    while since.elapsed() < 5 * LATENCY {
        assert_eq!(store.spent("k"), 1);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(answer(stream).contains(r#""allowed":false"#));
    assert_eq!(store.spent("k"), 1);
}
