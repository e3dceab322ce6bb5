//! A client of HTTP/1.1 that keeps its connection.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use crate::load::{Connection, Shared};

/// Asks until there is no listener any more.
pub(crate) fn ask(shared: &Shared, client: u64) {
    let mut number = client << 32;
    while !shared.ends()
        && let Some(mut connection) = shared.connect()
    {
        while connection.requests < shared.pattern.requests_of_connection && !shared.ends() {
            number += 1;
            let body = format!(r#"{{"policy":"load","key":"{}"}}"#, shared.key(number));
            match exchange(shared, &mut connection, &body) {
                Ok(is_kept) => {
                    connection.requests += 1;
                    if !is_kept {
                        break;
                    }
                }
                Err(why) => {
                    shared.unanswered(&connection, 1, &why);
                    break;
                }
            }
            std::thread::sleep(shared.pattern.pause);
        }
    }
}

/// Sends a request, and returns whether the server keeps the connection after its answer.
fn exchange(shared: &Shared, connection: &mut Connection, body: &str) -> std::io::Result<bool> {
    shared.tally.asked.fetch_add(1, Ordering::SeqCst);
    let length = body.len();
    let request = format!("POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}");
    connection.stream.write_all(request.as_bytes())?;
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        connection.stream.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
    let field = |name: &str| {
        head.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
    };
    let mut body = vec![0; field("content-length").unwrap().parse().unwrap()];
    connection.stream.read_exact(&mut body)?;
    let body = String::from_utf8(body).unwrap();
    let is_whole = head.starts_with("http/1.1 200") && body.contains(r#""allowed":true"#);
    assert!(
        is_whole && (body.contains(r#""source":"store""#) || body.contains(r#""source":"lease""#)),
        "{head}{body}"
    );
    shared.admitted(1);
    Ok(field("connection").as_deref() != Some("close"))
}
