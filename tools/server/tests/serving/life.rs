//! The end of a server.

use std::io::{Read, Write};
use std::time::Duration;

use polylimit_server::ServerOptions;
use serde_json::json;

use crate::support::{Reply, Running, command, connect, exchange, expect, has_ended, limiter, started};

const HEAD: &[u8] = b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 28\r\n\r\n";
const BODY: &[u8] = br#"{"policy":"api","key":"one"}"#;

#[test]
fn request_that_has_begun_is_answered_after_the_stop() {
    let server = started();
    let mut stream = connect(server.address(0));
    stream.write_all(HEAD).unwrap();
    // The server has the head once it has answered another connection's later request.
    assert_eq!(server.http().get("/healthz").status, 200);
    std::thread::sleep(Duration::from_millis(100));
    server.handle.stop();
    std::thread::sleep(Duration::from_millis(100));
    stream.write_all(BODY).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let reply = Reply::parse(&bytes);
    assert_eq!((reply.status, &reply.json()["allowed"]), (200, &json!(true)));
    assert_eq!(reply.field("connection"), Some("close"));
    assert!(server.stop());
}

#[test]
fn server_is_unready_at_once_and_new_clients_are_still_answered() {
    let server = started();
    // Keeps the server from ending.
    let mut held = connect(server.address(0));
    held.write_all(HEAD).unwrap();
    // It is accepted before this later connection.
    assert_eq!(server.http().get("/healthz").status, 200);
    assert_eq!(server.admin().get("/readyz").status, 200);
    server.handle.stop();
    let unready = server.admin().get("/readyz");
    assert_eq!((unready.status, &unready.json()["code"]), (503, &json!("not_ready")));
    assert_eq!(server.http().post("/v1/check", &json!({ "policy": "api", "key": "late" })).status, 200);
    held.write_all(BODY).unwrap();
    assert!(has_ended(&mut held));
    assert!(server.stop());
}

#[test]
fn idle_connections_end_without_an_error() {
    let server = started();
    let mut http = connect(server.address(0));
    http.write_all(&[HEAD, BODY].concat()).unwrap();
    expect(&mut http, "HTTP/1.1 200 OK\r\n");
    let mut resp = server.resp();
    exchange(&mut resp, &["PING"], "+PONG\r\n");
    // These have sent nothing yet.
    let mut new = [connect(server.address(0)), server.resp()];
    server.handle.stop();
    for stream in [&mut http, &mut resp].into_iter().chain(&mut new) {
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    assert!(server.stop());
}

#[test]
fn replies_reach_a_client_that_goes_on_sending() {
    let mut options = ServerOptions::default();
    options.drain = Duration::from_secs(2);
    let (limiter, _clock) = limiter();
    let server = Running::start(limiter, options);
    let mut stream = server.resp();
    let mut sender = stream.try_clone().unwrap();
    server.handle.stop();
    // Without a pause, so that the server ends the connection between two commands, with more of them under way.
    let sends = std::thread::spawn(move || {
        let ping = command(&[b"PING"]);
        let mut sent = 0;
        while sender.write_all(&ping).is_ok() {
            sent += 1;
        }
        sent
    });
    let mut replies = Vec::new();
    let ended = stream.read_to_end(&mut replies);
    let _ = stream.shutdown(std::net::Shutdown::Both);
    let sent: usize = sends.join().unwrap();
    assert!(ended.is_ok() && replies.len().is_multiple_of(7) && !replies.is_empty(), "{ended:?}");
    assert!(replies.chunks(7).all(|reply| reply == b"+PONG\r\n") && replies.len() / 7 <= sent);
}

#[test]
fn commands_are_answered_until_their_client_is_silent() {
    let server = started();
    let mut stream = server.resp();
    exchange(&mut stream, &["PING"], "+PONG\r\n");
    stream.write_all(&command(&[b"PING"])).unwrap();
    server.handle.stop();
    expect(&mut stream, "+PONG\r\n");
    assert!(has_ended(&mut stream));
    assert!(server.stop());
}

#[test]
fn connections_that_do_not_end_are_closed_after_the_time_for_draining() {
    let mut options = ServerOptions::default();
    options.drain = Duration::from_millis(300);
    let (limiter, _clock) = limiter();
    let server = Running::start(limiter.clone(), options);
    let mut stream = connect(server.address(0));
    stream.write_all(HEAD).unwrap();
    assert_eq!(server.http().get("/healthz").status, 200);
    assert!(!server.stop());
    assert!(has_ended(&mut stream));
    assert_eq!(limiter.blocking().check("k").unwrap_err().kind(), polylimit::ErrorKind::Closed);
}
