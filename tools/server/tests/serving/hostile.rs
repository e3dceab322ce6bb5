//! Input that is too large, malformed or slow. The server answers or ends the connection, and goes on.

use std::io::{Read, Write};
use std::time::Duration;

use polylimit_server::{Limits, ServerOptions};
use serde_json::json;

use crate::support::{Reply, Running, command, connect, exchange, expect, has_ended, limiter, wait_until};

/// Short enough for a test, and long enough for a client on a loaded machine that is not slow on purpose.
const A_WHILE: Duration = Duration::from_secs(3);

fn with_limits(set: impl FnOnce(&mut Limits)) -> Running {
    let mut options = ServerOptions::default();
    set(&mut options.limits);
    Running::start(limiter().0, options)
}

/// The server still answers.
fn assert_alive(server: &Running) {
    assert_eq!(server.http().post("/v1/peek", &json!({ "policy": "api", "key": "alive" })).status, 200);
    exchange(&mut server.resp(), &["PING"], "+PONG\r\n");
}

#[test]
fn what_is_too_large_is_refused() {
    let server = with_limits(|limits| limits.requests = 2);
    let ask = |path: &str, body: &[u8]| server.http().send("POST", path, &[], body);
    let large = ask("/v1/check", &vec![b' '; (1 << 20) + 1]);
    assert_eq!((large.status, &large.json()["code"]), (413, &json!("too_large")));
    let key = "k".repeat(4 << 10);
    let of = |key: &str| json!({ "policy": "api", "key": key }).to_string();
    assert_eq!(
        (
            ask("/v1/check", of(&key).as_bytes()).status,
            ask("/v1/check", of(&(key.clone() + "k")).as_bytes()).status
        ),
        (200, 413)
    );
    let quotas = json!({ "policy": "5/s;".repeat(2_000), "key": "k" }).to_string();
    assert_eq!(ask("/v1/check", quotas.as_bytes()).status, 413);
    let three = json!({ "requests": [{ "key": "a" }, { "key": "b" }, { "key": "c" }] }).to_string();
    assert_eq!(ask("/v1/check", three.as_bytes()).status, 413);
    let long = "v".repeat(80 << 10);
    assert_eq!(server.http().send("GET", "/healthz", &[("x-long", &long)], b"").status, 431);
    let many: Vec<_> = (0..200).map(|_| ("x-many", "v")).collect();
    assert_eq!(server.http().send("GET", "/healthz", &many, b"").status, 431);
    let cookie = "c".repeat(5 << 10);
    let forward = server.http().send("GET", "/v1/forward/api?key=cookie:a", &[("cookie", &cookie)], b"");
    assert_eq!(forward.status, 413);
    // A head is counted once its connection has ended.
    let counted = r#"polylimit_server_rejected_total{protocol="http",reason="too_large"} 7"#;
    wait_until(|| server.admin().get("/metrics").body.contains(counted));
    assert_alive(&server);
}

#[test]
fn body_without_a_length_is_bounded_as_well() {
    let server = with_limits(|_| ());
    let mut stream = connect(server.address(0));
    stream
        .write_all(
            b"POST /v1/check HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .unwrap();
    let chunk = [&b"10000\r\n"[..], &vec![b' '; 0x1_0000], b"\r\n"].concat();
    for _ in 0..17 {
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    let mut bytes = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut bytes);
    assert_eq!(Reply::parse(&bytes).status, 413);
    assert_alive(&server);
}

#[test]
fn deep_json_does_not_end_the_server() {
    let server = with_limits(|_| ());
    for (open, close) in [("[", "]"), ("{\"requests\":[", "]}"), ("{\"key\":", "}")] {
        let deep = open.repeat(50_000) + &close.repeat(50_000);
        assert_eq!(server.http().send("POST", "/v1/check", &[], deep.as_bytes()).status, 400);
    }
    assert_alive(&server);
}

#[test]
fn bytes_that_are_no_http_get_400_or_nothing() {
    let server = with_limits(|_| ());
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let mut stream = connect(server.address(0));
        stream.write_all(bytes).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(has_ended(&mut stream), "{:?}", String::from_utf8_lossy(bytes));
    }
    assert_alive(&server);
}

#[test]
fn slow_head_ends_its_connection() {
    let server = with_limits(|limits| limits.head_time = A_WHILE);
    // The second one has the first bytes of an HTTP/2 preface.
    let mut slow = [&b""[..], b"PRI * HT", b"GET / HTTP/1.1\r\nx: "].map(|bytes| {
        let mut stream = connect(server.address(0));
        stream.write_all(bytes).unwrap();
        stream
    });
    for stream in &mut slow {
        assert!(has_ended(stream));
    }
    let metrics = server.admin().get("/metrics").body;
    assert!(metrics.contains(r#"{protocol="http",reason="slow_head"} 3"#), "{metrics}");
    assert_alive(&server);
}

#[test]
fn slow_body_is_408() {
    let server = with_limits(|limits| limits.body_time = A_WHILE);
    let mut stream = connect(server.address(0));
    stream
        .write_all(b"POST /v1/check HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 9\r\n\r\n{")
        .unwrap();
    let mut bytes = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut bytes);
    assert_eq!(Reply::parse(&bytes).status, 408);
    assert_alive(&server);
}

#[test]
fn bytes_that_are_no_command_end_the_connection() {
    let server = with_limits(|_| ());
    for (bytes, told) in [
        (&b"POST / HTTP/1.1\r\n"[..], "-ERR Protocol error: expected an array of bulk strings\r\n"),
        (b"*1000000000\r\n", "-ERR Protocol error: too many arguments: allowed are up to 64\r\n"),
        (b"*1\r\n$1000000000\r\n", "-ERR Protocol error: a bulk string is too long\r\n"),
        (b"*-1\r\n", "-ERR Protocol error: a length is no number\r\n"),
        (&b"*1\r\n".repeat(100_000), "-ERR Protocol error: expected a bulk string\r\n"),
        (b"*1\r\n$4\r\nPINGPING\r\n", "-ERR Protocol error: a bulk string is longer than it says\r\n"),
    ] {
        let mut stream = server.resp();
        // What came before is answered.
        let _ = stream.write_all(&[&command(&[b"PING"]), bytes].concat());
        expect(&mut stream, &format!("+PONG\r\n{told}"));
        assert!(has_ended(&mut stream));
    }
    assert_alive(&server);
}

#[test]
fn command_that_is_too_large_or_too_slow_ends_the_connection() {
    let server = with_limits(|limits| {
        limits.body = 64 << 10;
        limits.head_time = A_WHILE;
    });
    let mut stream = server.resp();
    let _ = stream.write_all(b"*3\r\n$15\r\nPOLYLIMIT.CHECK\r\n$40000\r\n");
    let _ = stream.write_all(&vec![b'a'; 40_000]);
    let _ = stream.write_all(b"\r\n$40000\r\n");
    let _ = stream.write_all(&vec![b'a'; 30_000]);
    expect(&mut stream, "-ERR Protocol error: a command has more than 65536 bytes\r\n");
    assert!(has_ended(&mut stream));
    let mut stream = server.resp();
    stream.write_all(b"*1\r\n$4\r\nPI").unwrap();
    assert!(has_ended(&mut stream));
    let long = "k".repeat(5_000);
    exchange(
        &mut server.resp(),
        &[&format!("POLYLIMIT.CHECK api {long}")],
        "-INVALID_ARGUMENT a key or a policy has 5000 bytes",
    );
    assert_alive(&server);
}

#[test]
fn connections_beyond_the_most_are_refused_and_counted() {
    let server = with_limits(|limits| limits.connections = 2);
    let mut held = [server.resp(), server.resp()];
    for stream in &mut held {
        exchange(stream, &["PING"], "+PONG\r\n");
    }
    let mut refused = server.resp();
    expect(&mut refused, "-ERR max number of clients reached\r\n");
    assert!(has_ended(&mut refused));
    let mut refused = connect(server.address(0));
    expect(&mut refused, "HTTP/1.1 503 Service Unavailable\r\n");
    // Operators look just then: their listener has a bound of its own.
    let metrics = server.admin().get("/metrics").body;
    for line in [
        r#"rejected_total{protocol="http",reason="connections"} 1"#,
        r#"rejected_total{protocol="resp",reason="connections"} 1"#,
        r#"polylimit_server_connections{protocol="resp"} 2"#,
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    exchange(&mut held[0], &["QUIT"], "+OK\r\n");
    assert!(has_ended(&mut held[0]));
    // The place is free once the server has noticed.
    let since = std::time::Instant::now();
    loop {
        let mut stream = server.resp();
        stream.write_all(&command(&[b"PING"])).unwrap();
        let mut first = [0; 1];
        if std::io::Read::read(&mut stream, &mut first).is_ok() && first == *b"+" {
            break;
        }
        assert!(since.elapsed() < crate::support::SOON, "there is no place");
    }
}

#[test]
fn operators_have_a_bound_too() {
    let server = with_limits(|limits| limits.admin_connections = 1);
    let mut held = connect(server.address(2));
    held.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    expect(&mut held, "HTTP/1.1 200 OK\r\n");
    // Probes are still answered, once for each connection, and nothing else is.
    assert_eq!((server.admin().get("/healthz").status, server.admin().get("/readyz").status), (200, 200));
    let refused = server.admin().get("/v1/stats");
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("too_many_connections")));
    drop(held);
    wait_until(|| server.admin().get("/v1/stats").status == 200);
    let server = with_limits(|limits| (limits.admin_connections, limits.probe_connections) = (1, 0));
    let mut held = connect(server.address(2));
    held.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    expect(&mut held, "HTTP/1.1 200 OK\r\n");
    expect(&mut connect(server.address(2)), "HTTP/1.1 503 Service Unavailable\r\n");
    assert_alive(&server);
}

#[test]
fn body_that_is_declared_too_large_or_encoded_is_refused_at_once() {
    let server = with_limits(|_| ());
    for expects in ["", "expect: 100-continue\r\n"] {
        let mut stream = connect(server.address(0));
        let head =
            format!("POST /v1/check HTTP/1.1\r\nhost: a\r\n{expects}content-length: 1073741824\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        expect(&mut stream, "HTTP/1.1 413 Payload Too Large\r\n");
    }
    let body = json!({ "policy": "api", "key": "k" }).to_string();
    let send = |path: &str, encoding: &str| {
        server.http().send("POST", path, &[("content-encoding", encoding)], body.as_bytes()).status
    };
    assert_eq!((send("/v1/check", "gzip"), send("/v1/check", "identity")), (415, 200));
    // A proxy hands on what its client has said about a body that is not there.
    assert_eq!(send("/v1/forward/api", "gzip"), 200);
}

#[test]
fn web_pages_cannot_ask() {
    let server = with_limits(|_| ());
    let body = json!({ "policy": "api", "key": "k" }).to_string();
    let send = |path: &str, fields: &[(&str, &str)]| {
        let reply = server.http().send("POST", path, fields, body.as_bytes());
        (reply.status, reply.field("content-type").unwrap_or_default().starts_with("application/problem"))
    };
    for path in ["/v1/check", "/v1/charge", "/v1/reset", "/v1/decide"] {
        for foreign in [("origin", "http://evil.com"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            assert_eq!(send(path, &[foreign]), (403, true), "{path} {foreign:?}");
        }
    }
    assert_eq!(send("/v1/peek", &[("origin", "http://localhost"), ("sec-fetch-site", "same-origin")]).0, 200);
    assert_eq!(send("/v1/forward/api", &[("origin", "http://evil.com")]).0, 200);
    let under = |path: &str, host: &str| {
        let mut stream = connect(server.address(0));
        let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        Reply::parse(&bytes).status
    };
    for (host, status) in [
        ("evil.com", 421),
        ("evil.com:80", 421),
        ("127.0.0.1:1", 200),
        ("[::1]:1", 200),
        ("limits", 200),
        ("localhost", 200),
    ] {
        assert_eq!(under("/v1/peek", host), status, "{host}");
    }
    assert_eq!(under("/v1/forward/api", "evil.com"), 200);
}
