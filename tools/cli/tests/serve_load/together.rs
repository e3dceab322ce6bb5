//! Requests that are decided together, with another caller and with SIGKILL between their checks and the return of what they have spent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use polylimit_test_servers::FaultProxy;

use crate::program::{Program, SOON, Store};

/// How long a message between the server and the store takes: the units are missing for twice as long.
const LATENCY: Duration = Duration::from_secs(2);
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

/// A server whose messages to the store are slow, the store, and a request of which one key is used up and the other one was charged.
fn between_check_and_return() -> (Store, FaultProxy, Program, TcpStream) {
    let store = Store::start(SCARCE);
    let proxy = FaultProxy::start(store.address());
    let program = store.serve_through(proxy.address(), &[]);
    // The first one is admitted, and uses up the scarce key.
    assert!(answer(send(&program, "k")).contains(r#""allowed":true"#));
    assert_eq!(store.spent("k"), 1);
    proxy.set_latency(LATENCY, Duration::ZERO);
    let stream = send(&program, "k");
    let since = Instant::now();
    while store.spent("k") != 2 {
        assert!(since.elapsed() < SOON, "nothing is charged");
        std::thread::sleep(Duration::from_millis(5));
    }
    (store, proxy, program, stream)
}

#[test]
fn units_of_a_denied_request_are_missing_for_a_moment_and_returned_once() {
    let (store, _proxy, _program, stream) = between_check_and_return();
    // Another caller finds the unit missing, and then not any more.
    assert!(answer(stream).contains(r#""allowed":false"#));
    assert_eq!(store.spent("k"), 1);
    std::thread::sleep(2 * LATENCY);
    assert_eq!(store.spent("k"), 1);
}

#[test]
fn server_that_is_killed_before_it_returns_units_leaves_them_spent() {
    let (store, _proxy, program, _stream) = between_check_and_return();
    program.signal(Signal::SIGKILL);
    let _ = program.end();
    std::thread::sleep(2 * LATENCY);
    assert_eq!(store.spent("k"), 2);
}
