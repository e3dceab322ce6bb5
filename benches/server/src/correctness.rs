//! Before a server is timed, it is asked twice about a key that may be used once: it has to admit the first request and deny the second.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use polylimit_test_servers::redis;

use crate::grpc;
use crate::messages::{SHOULD_RATE_LIMIT, THROTTLE, should_rate_limit, throttle};
use crate::servers::{Polylimit, Ratelimit, Throttlecrab};

const KEY: &str = "correctness";

pub(crate) fn polylimit(server: &Polylimit) -> Result<(), Box<dyn Error>> {
    let body = |name: &str| format!(r#"{{"policy":"once","key":"{name}"}}"#);
    twice("polylimit over HTTP", || http(server.http, "/v1/check", &body("http")))?;
    let message = || should_rate_limit("once", "grpc");
    twice("polylimit over gRPC", || grpc::run(grpc::ask(server.http, SHOULD_RATE_LIMIT, message())))?;
    // redis-cell tells whether a request is limited; a burst of 0 admits one.
    let throttle = ["CL.THROTTLE", "throttle", "0", "1", "3600"];
    twice("CL.THROTTLE of polylimit", || Ok(resp(server.resp, &throttle)? == 0))?;
    let check = ["POLYLIMIT.CHECK", "once", "resp"];
    twice("POLYLIMIT.CHECK", || Ok(resp(server.resp, &check)? == 1))
}

/// throttlecrab admits `max_burst` requests at once, or one where that is 0 or 1.
pub(crate) fn throttlecrab(server: &Throttlecrab) -> Result<(), Box<dyn Error>> {
    let body = r#"{"key":"http","max_burst":1,"count_per_period":1,"period":3600}"#;
    twice("throttlecrab over HTTP", || http(server.http, "/throttle", body))?;
    let message = || throttle(KEY, 1, 1);
    twice("throttlecrab over gRPC", || grpc::run(grpc::ask(server.grpc, THROTTLE, message())))?;
    let command = ["THROTTLE", "resp", "1", "1", "3600"];
    twice("THROTTLE of throttlecrab", || Ok(resp(server.resp, &command)? == 1))
}

pub(crate) fn ratelimit(server: &Ratelimit, key: &str) -> Result<(), Box<dyn Error>> {
    let message = || should_rate_limit("once", key);
    twice("envoyproxy/ratelimit", || grpc::run(grpc::ask(server.grpc, SHOULD_RATE_LIMIT, message())))
}

fn twice(what: &str, mut admits: impl FnMut() -> Result<bool, Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    match (admits()?, admits()?) {
        (true, false) => Ok(()),
        told => Err(format!("{what}: a key that may be used once got {told:?}, true for admitted").into()),
    }
}

/// The field `allowed` of the answer to a `POST`.
fn http(address: SocketAddr, path: &str, body: &str) -> Result<bool, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match (answer.contains(r#""allowed":true"#), answer.contains(r#""allowed":false"#)) {
        (true, false) => Ok(true),
        (false, true) => Ok(false),
        _ => Err(format!("{path} does not say whether it admits: {answer}").into()),
    }
}

/// The first number of a reply.
fn resp(address: SocketAddr, command: &[&str]) -> Result<i64, Box<dyn Error>> {
    let mut connection = redis::Client::open(format!("redis://{address}/"))?.get_connection()?;
    let mut asked = redis::cmd(command[0]);
    let reply: redis::Value = asked.arg(&command[1..]).query(&mut connection)?;
    match reply {
        redis::Value::Array(fields) => match fields.first() {
            Some(redis::Value::Int(first)) => Ok(*first),
            other => Err(format!("{}: the first field is {other:?}", command[0]).into()),
        },
        other => Err(format!("{}: the reply is {other:?}", command[0]).into()),
    }
}
