//! Every fault of the proxy has its effect.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails here is a failed test"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use polylimit_test_servers::{Direction, Fault, FaultProxy, Kind, Server, until};

const TIMEOUT: Duration = Duration::from_millis(200);
/// What GET of the key answers: eleven bytes.
const REPLY: &[u8] = b"$5\r\nhello\r\n";
const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

fn start() -> (Server, FaultProxy) {
    let server = Server::start(Kind::Redis, &[]);
    server.command(&["SET", "k", "hello"]);
    let proxy = FaultProxy::start(server.address());
    (server, proxy)
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.set_nodelay(true).unwrap();
    client
}

/// How the reading of a reply ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Full,
    Closed,
    Reset,
    Silent,
}

/// Sends a GET and reads up to `most` bytes.
fn get(client: &mut TcpStream, most: usize) -> (Vec<u8>, Ended) {
    match client.write_all(GET) {
        Ok(()) => read(client, most),
        Err(_) => (Vec::new(), Ended::Reset),
    }
}

fn read(client: &mut TcpStream, most: usize) -> (Vec<u8>, Ended) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 256];
    while bytes.len() < most {
        match client.read(&mut buffer) {
            Ok(0) => return (bytes, Ended::Closed),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (bytes, Ended::Reset),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                return (bytes, Ended::Silent);
            }
        }
    }
    (bytes, Ended::Full)
}

fn passes(client: &mut TcpStream) -> bool {
    get(client, REPLY.len()) == (REPLY.to_vec(), Ended::Full)
}

#[test]
fn proxy_forwards_and_counts_bytes_and_commands() {
    let (_server, proxy) = start();
    let mut client = connect(&proxy);
    assert!(passes(&mut client) && passes(&mut client));
    client.write_all(b"*3\r\n$4\r\neval\r\n$8\r\nreturn 1\r\n$1\r\n0\r\n").unwrap();
    assert_eq!(read(&mut client, 4).0, b":1\r\n");
    assert_eq!((proxy.connections(), proxy.open_connections()), (1, 1));
    assert_eq!((proxy.commands("GET"), proxy.commands("EVAL"), proxy.all_commands()), (2, 1, 3));
    assert_eq!(proxy.bytes(Direction::Replies), 2 * REPLY.len() as u64 + 4);
    assert_eq!(proxy.bytes(Direction::Requests), 2 * GET.len() as u64 + 35);
    drop(client);
    until("the end is passed on", Duration::from_secs(5), || (proxy.open_connections() == 0).then_some(()));
}

#[test]
fn latency_delays_bytes_and_keeps_their_order() {
    let (_server, proxy) = start();
    let mut client = connect(&proxy);
    proxy.set_latency(Duration::from_millis(20), Duration::from_millis(20));
    let start = Instant::now();
    client.write_all(&GET.repeat(50)).unwrap();
    assert_eq!(read(&mut client, 50 * REPLY.len()).0, REPLY.repeat(50));
    let took = start.elapsed();
    // The requests are delayed concurrently: twice the latency, not fifty times.
    assert!(took >= Duration::from_millis(40) && took < Duration::from_millis(500), "{took:?}");
    proxy.pass();
    let start = Instant::now();
    assert!(passes(&mut client) && start.elapsed() < Duration::from_millis(20));
}

#[test]
fn bandwidth_limits_the_rate() {
    let (server, proxy) = start();
    server.command(&["SET", "k", &"x".repeat(10_000)]);
    let mut client = connect(&proxy);
    proxy.set_bandwidth(Some(50_000));
    let start = Instant::now();
    assert_eq!(get(&mut client, 10_010).1, Ended::Full);
    let took = start.elapsed();
    assert!(took > Duration::from_millis(150) && took < Duration::from_millis(600), "{took:?}");
}

#[test]
fn stalled_proxy_accepts_bytes_and_delivers_them_later() {
    let (server, proxy) = start();
    let mut client = connect(&proxy);
    proxy.set_stalled(true);
    let mut late = connect(&proxy);
    assert_eq!(get(&mut late, 1).1, Ended::Silent);
    assert_eq!(get(&mut client, 1).1, Ended::Silent);
    let gets = |server: &Server| server.info("cmdstat_get").starts_with("calls=2,");
    assert!(!server.query::<String>(&["INFO", "commandstats"]).contains("cmdstat_get:"));
    proxy.set_stalled(false);
    assert_eq!(read(&mut client, REPLY.len()), (REPLY.to_vec(), Ended::Full));
    assert_eq!(read(&mut late, REPLY.len()), (REPLY.to_vec(), Ended::Full));
    assert!(gets(&server));

    // Only the replies: the server runs the command.
    proxy.set_stalled_direction(Direction::Replies, true);
    assert_eq!(get(&mut client, 1).1, Ended::Silent);
    assert!(server.info("cmdstat_get").starts_with("calls=3,"));
}

#[test]
fn reply_is_cut_reset_or_stalled_at_every_byte() {
    let (_server, proxy) = start();
    for n in 0..=REPLY.len() {
        for (fault, ended) in
            [(Fault::Cut, Ended::Closed), (Fault::Reset, Ended::Reset), (Fault::Stall, Ended::Silent)]
        {
            let mut client = connect(&proxy);
            // Bytes before the fault is armed do not count.
            assert!(passes(&mut client));
            let faults = proxy.triggered_faults();
            proxy.after(Direction::Replies, n as u64, fault.clone());
            let (bytes, how) = get(&mut client, usize::MAX);
            assert_eq!(how, ended, "{fault:?} after {n}");
            // A reset may overtake bytes.
            assert!(
                bytes == REPLY[..n] || fault == Fault::Reset && REPLY[..n].starts_with(&bytes),
                "{n}: {bytes:?}"
            );
            assert_eq!(proxy.triggered_faults(), faults + 1);
            assert!(passes(&mut connect(&proxy)), "the fault is triggered once");
        }
    }
}

#[test]
fn cut_request_does_not_reach_the_server() {
    let (server, proxy) = start();
    let mut client = connect(&proxy);
    proxy.after(Direction::Requests, 10, Fault::Cut);
    assert_eq!(get(&mut client, 1), (Vec::new(), Ended::Closed));
    assert!(!server.query::<String>(&["INFO", "commandstats"]).contains("cmdstat_get:"));
}

#[test]
fn bytes_are_flipped_and_inserted() {
    let (_server, proxy) = start();
    let mut client = connect(&proxy);
    for n in 0..REPLY.len() {
        proxy.after(Direction::Replies, n as u64, Fault::Flip(0x20));
        let mut expected = REPLY.to_vec();
        expected[n] ^= 0x20;
        assert_eq!(get(&mut client, REPLY.len()).0, expected);
        proxy.after(Direction::Replies, n as u64, Fault::Insert(b"+OK\r\n".to_vec()));
        let mut expected = REPLY.to_vec();
        expected.splice(n..n, *b"+OK\r\n");
        assert_eq!(get(&mut client, expected.len()).0, expected);
        assert!(passes(&mut client));
    }
}

#[test]
fn reply_is_duplicated() {
    let (_server, proxy) = start();
    let mut client = connect(&proxy);
    assert!(passes(&mut client));
    proxy.duplicate_reply();
    client.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    assert_eq!(read(&mut client, 14).0, b"+PONG\r\n+PONG\r\n");
    assert!(passes(&mut client));
}

#[test]
fn refusing_proxy_keeps_open_connections() {
    let (_server, proxy) = start();
    let mut client = connect(&proxy);
    assert!(passes(&mut client));
    proxy.set_refusing(true);
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(passes(&mut client));
    proxy.pass();
    assert!(passes(&mut connect(&proxy)));
}

#[test]
fn half_open_connection_is_silent_and_new_ones_pass() {
    let (server, proxy) = start();
    let mut client = connect(&proxy);
    assert!(passes(&mut client));
    proxy.half_open();
    assert_eq!(get(&mut client, 1).1, Ended::Silent);
    assert!(passes(&mut connect(&proxy)));
    // The client does not learn that the server is gone.
    server.kill();
    assert_eq!(get(&mut client, 1).1, Ended::Silent);
    proxy.pass();
    assert_eq!(get(&mut client, 1).1, Ended::Silent);
    drop(client);
    until("the connection of the client ends", Duration::from_secs(5), || {
        (proxy.open_connections() == 0).then_some(())
    });
}

#[test]
fn open_connections_are_cut_or_reset() {
    let (_server, proxy) = start();
    let mut client = connect(&proxy);
    assert!(passes(&mut client));
    proxy.cut();
    assert_eq!(read(&mut client, 1).1, Ended::Closed);
    let mut client = connect(&proxy);
    assert!(passes(&mut client));
    proxy.reset();
    assert_eq!(read(&mut client, 1).1, Ended::Reset);
    assert!(passes(&mut connect(&proxy)));
}

#[test]
fn upstream_server_can_be_replaced() {
    let (server, proxy) = start();
    let other = Server::start(Kind::Valkey, &[]);
    other.command(&["SET", "k", "other"]);
    let mut client = connect(&proxy);
    assert!(passes(&mut client));
    proxy.set_upstream(other.address());
    assert!(passes(&mut client));
    assert_eq!(get(&mut connect(&proxy), REPLY.len()).0, b"$5\r\nother\r\n");
    // A proxy without its server accepts connections and resets them.
    proxy.set_upstream(server.address());
    server.kill();
    assert_eq!(read(&mut connect(&proxy), 1).1, Ended::Reset);
}

#[test]
fn dropped_proxy_closes_all_connections() {
    let (_server, proxy) = start();
    let mut client = connect(&proxy);
    assert!(passes(&mut client));
    let address = proxy.address();
    drop(proxy);
    assert_ne!(read(&mut client, 1).1, Ended::Silent);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
