//! What bounds a connection that is slow, idle or greedy, with bounds that are small enough for a test.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use polylimit_server::{Limits, ServerOptions};
use serde_json::json;

use crate::support::{Running, SOON, command, connect, expect, has_ended, limiter, wait_until};

const SHORT: Duration = Duration::from_millis(300);

fn with_limits(set: impl FnOnce(&mut Limits)) -> Running {
    let mut options = ServerOptions::default();
    set(&mut options.limits);
    Running::start(limiter().0, options)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(SOON, work).await.expect("an answer") })
}

#[test]
fn streams_beyond_the_most_wait() {
    let server = with_limits(|limits| limits.streams = 2);
    run(async {
        let stream = tokio::net::TcpStream::connect(server.address(0)).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let open = || async {
            let mut sender = sender.clone().ready().await.unwrap();
            let request = http::Request::post("http://limits/v1/peek").body(()).unwrap();
            sender.send_request(request, false).unwrap()
        };
        let finish = |mut body: h2::SendStream<bytes::Bytes>| {
            body.send_data(r#"{"policy":"api","key":"k"}"#.into(), true).unwrap();
        };
        // The client knows the bound once it has an answer.
        let (response, body) = open().await;
        finish(body);
        assert_eq!(response.await.unwrap().status(), 200);
        assert_eq!(sender.current_max_send_streams(), 2);
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(open().await);
        }
        let (mut third, body) = open().await;
        finish(body);
        assert!(tokio::time::timeout(SHORT, &mut third).await.is_err());
        let (response, body) = held.pop().unwrap();
        finish(body);
        assert_eq!(response.await.unwrap().status(), 200);
        assert_eq!(third.await.unwrap().status(), 200);
        connection.abort();
    });
}

#[test]
fn head_over_http_2_that_is_too_large_is_431_and_the_connection_goes_on() {
    let server = with_limits(|limits| limits.head = 8 << 10);
    run(async {
        let stream = tokio::net::TcpStream::connect(server.address(0)).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        for (bytes, expected) in [(10, 200), (12 << 10, 431), (10, 200)] {
            sender = sender.ready().await.unwrap();
            let request = http::Request::get("http://limits/healthz").header("x-long", "v".repeat(bytes));
            let (response, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
            assert_eq!(response.await.unwrap().status(), expected);
        }
        connection.abort();
    });
}

#[test]
fn idle_connection_over_http_1_ends() {
    let server = with_limits(|limits| limits.idle_time = SHORT);
    let mut stream = connect(server.address(0));
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    expect(&mut stream, "HTTP/1.1 200 OK\r\n");
    assert!(has_ended(&mut stream));
}

#[test]
fn client_that_takes_no_replies_is_cut() {
    let server = with_limits(|limits| limits.write_time = SHORT);
    let mut stream = server.resp();
    stream.set_write_timeout(Some(SOON)).unwrap();
    let text = vec![b'a'; 60 << 10];
    let ping = command(&[b"PING", &text]);
    let since = std::time::Instant::now();
    // Both sockets are full at some time; from then on the server waits.
    while stream.write_all(&ping).is_ok() {
        assert!(since.elapsed() < SOON, "the server takes everything");
    }
    wait_until(|| {
        server.admin().get("/metrics").body.contains(r#"polylimit_server_connections{protocol="resp"} 0"#)
    });
}

#[test]
fn events_are_told_to_64_listeners_at_a_time() {
    let server = with_limits(|_| ());
    let listen = || -> TcpStream {
        let mut stream = connect(server.address(2));
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        stream
    };
    let mut listeners: Vec<_> = (0..64).map(|_| listen()).collect();
    for stream in &mut listeners {
        expect(stream, "HTTP/1.1 200 OK\r\n");
    }
    let refused = server.admin().get("/v1/events");
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("too_many_listeners")));
    drop(listeners.pop());
    // The place is free once the server has noticed.
    wait_until(|| {
        let mut stream = listen();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        head == *b"HTTP/1.1 200"
    });
}

#[test]
fn old_connection_ends_with_its_next_answer() {
    let server = with_limits(|limits| limits.connection_age = Some(Duration::from_millis(50)));
    let mut stream = connect(server.address(0));
    // However late a request comes to it, it has an answer.
    wait_until(|| {
        std::thread::sleep(Duration::from_millis(60));
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut answer = [0; 512];
        let length = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.contains("connection: close\r\n")
    });
    assert!(has_ended(&mut stream));
    run(async {
        let stream = tokio::net::TcpStream::connect(server.address(0)).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        let ended = tokio::spawn(connection);
        let request = http::Request::get("http://localhost/healthz").body(()).unwrap();
        let (answer, _) = sender.send_request(request, true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 200);
        // The server says GOAWAY, and the connection ends.
        assert!(ended.await.unwrap().is_ok());
    });
}

#[test]
fn old_connection_ends_after_its_grace_with_what_never_ends() {
    let server = with_limits(|limits| {
        limits.connection_age = Some(Duration::from_millis(50));
        limits.connection_grace = Duration::from_millis(50);
    });
    // The admin listener sends events for ever.
    let mut events = connect(server.address(2));
    events.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert!(has_ended(&mut events));
    let mut silent = connect(server.address(0));
    exchange_health(&mut silent);
    assert!(has_ended(&mut silent));
    run(async {
        let stream = tokio::net::TcpStream::connect(server.address(2)).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        let ended = tokio::spawn(connection);
        let request = http::Request::get("http://localhost/v1/events").body(()).unwrap();
        let (answer, _) = sender.send_request(request, true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        // It is cut.
        loop {
            match body.data().await {
                Some(Ok(_)) => {}
                Some(Err(_)) => break,
                None => panic!("the stream of events has an end"),
            }
        }
        drop(sender);
        let _ = ended.await.unwrap();
    });
}

fn exchange_health(stream: &mut TcpStream) {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    expect(stream, "HTTP/1.1 200 OK\r\n");
}
