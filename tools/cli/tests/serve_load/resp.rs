//! A client of RESP that sends one command at a time, or many.

use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;

use crate::load::{Connection, Shared};

/// Asks until there is no listener any more, with this number of commands at once.
pub(crate) fn ask(shared: &Shared, client: u64, commands: u64) {
    let mut number = client << 32;
    while !shared.ends()
        && let Some(mut connection) = shared.connect()
    {
        while connection.requests < shared.pattern.requests_of_connection && !shared.ends() {
            let mut bytes = Vec::new();
            for _ in 0..commands {
                number += 1;
                let key = shared.key(number);
                let length = key.len();
                bytes.extend(
                    format!("*3\r\n$15\r\nPOLYLIMIT.CHECK\r\n$4\r\nload\r\n${length}\r\n{key}\r\n").bytes(),
                );
            }
            shared.tally.asked.fetch_add(commands, Ordering::SeqCst);
            let before = connection.requests;
            if let Err(why) = exchange(shared, &mut connection, &bytes, commands) {
                shared.unanswered(&connection, before + commands - connection.requests, &why);
                break;
            }
            std::thread::sleep(shared.pattern.pause);
        }
    }
}

fn exchange(shared: &Shared, connection: &mut Connection, bytes: &[u8], commands: u64) -> io::Result<()> {
    // The server may have closed its half after replies that are read below.
    let written = connection.stream.write_all(bytes);
    for _ in 0..commands {
        // Nine values, of which the first is whether it is admitted and the seventh the source.
        let reply = lines(connection, 11)?;
        assert_eq!(reply[..2], ["*9", ":1"], "{reply:?}");
        assert!(["store", "lease"].contains(&&*reply[8]), "{reply:?}");
        shared.admitted(1);
        connection.requests += 1;
    }
    written
}

/// Reads lines of a reply.
fn lines(connection: &mut Connection, count: usize) -> io::Result<Vec<String>> {
    let (mut lines, mut line, mut byte) = (Vec::new(), Vec::new(), [0]);
    while lines.len() < count {
        connection.stream.read_exact(&mut byte)?;
        line.push(byte[0]);
        if line.ends_with(b"\r\n") {
            lines.push(String::from_utf8(line.split_off(0)).unwrap().trim_end().to_owned());
        }
    }
    Ok(lines)
}
