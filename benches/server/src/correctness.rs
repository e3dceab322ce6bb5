//! Before a server is timed, it is asked about a key until its limit is reached: it has to admit every request up to it, and to deny the next.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use polylimit_test_servers::redis;

use crate::grpc;
use crate::messages::{SHOULD_RATE_LIMIT, THROTTLE, should_rate_limit, throttle};
use crate::servers::{Polylimit, Ratelimit, Throttlecrab};

pub(crate) fn polylimit(server: &Polylimit) -> Result<(), Box<dyn Error>> {
    let body = |name: &str| format!(r#"{{"policy":"once","key":"{name}"}}"#);
    admits(1, "polylimit over HTTP", || http(server.http, "/v1/check", &body("http")))?;
    let message = || should_rate_limit("once", "grpc");
    admits(1, "polylimit over gRPC", || grpc::run(grpc::ask(server.http, SHOULD_RATE_LIMIT, message())))?;
    // redis-cell returns whether a request is limited; a burst of 0 admits one.
    let throttle = ["CL.THROTTLE", "throttle", "0", "1", "3600"];
    admits(1, "CL.THROTTLE of polylimit", || Ok(resp(server.resp, &throttle)? == 0))?;
    let check = ["POLYLIMIT.CHECK", "once", "resp"];
    admits(1, "POLYLIMIT.CHECK", || Ok(resp(server.resp, &check)? == 1))
}

/// With a `max_burst` of 1, throttlecrab 0.4.40 admits every request, and with 0 it refuses them; so its key may be used twice.
pub(crate) fn throttlecrab(server: &Throttlecrab) -> Result<(), Box<dyn Error>> {
    let body = r#"{"key":"http","max_burst":2,"count_per_period":2,"period":3600}"#;
    admits(2, "throttlecrab over HTTP", || http(server.http, "/throttle", body))?;
    let message = || throttle("grpc", 2, 3_600);
    admits(2, "throttlecrab over gRPC", || grpc::run(grpc::ask(server.grpc, THROTTLE, message())))?;
    let command = ["THROTTLE", "resp", "2", "2", "3600"];
    admits(2, "THROTTLE of throttlecrab", || Ok(resp(server.resp, &command)? == 1))
}

pub(crate) fn ratelimit(server: &Ratelimit, key: &str) -> Result<(), Box<dyn Error>> {
    let message = || should_rate_limit("once", key);
    admits(1, "envoyproxy/ratelimit", || grpc::run(grpc::ask(server.grpc, SHOULD_RATE_LIMIT, message())))
}

/// Asks about a key that may be used this number of times.
fn admits(
    times: usize,
    what: &str,
    mut ask: impl FnMut() -> Result<bool, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    for number in 1..=times + 1 {
        let is_admitted = ask()?;
        if is_admitted != (number <= times) {
            let outcome = if is_admitted { "admitted" } else { "denied" };
            return Err(format!(
                "{what}: request {number} about a key that may be used {times} times was {outcome}"
            )
            .into());
        }
    }
    Ok(())
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
