//! Commands over RESP.

use std::io::Write;

use polylimit_server::ServerOptions;

use crate::support::{Running, command, exchange, expect, has_ended, limiter, started};

#[test]
fn operations_are_answered_in_one_array_each() {
    let server = started();
    let mut stream = server.resp();
    let tail = "$5\r\nstore\r\n$-1\r\n:0\r\n";
    for (line, expected) in [
        ("POLYLIMIT.CHECK api k", format!("*9\r\n:1\r\n:3\r\n:2\r\n:0\r\n:20000000\r\n:0\r\n{tail}")),
        ("polylimit.peek api k 3", format!("*9\r\n:0\r\n:3\r\n:2\r\n:20000000\r\n:20000000\r\n:0\r\n{tail}")),
        ("POLYLIMIT.CHECK api k 4", format!("*9\r\n:0\r\n:3\r\n:2\r\n:-1\r\n:20000000\r\n:0\r\n{tail}")),
        ("POLYLIMIT.TAKE api k 5", format!("*10\r\n:1\r\n:3\r\n:0\r\n:0\r\n:60000000\r\n:0\r\n{tail}:2\r\n")),
        (
            "POLYLIMIT.REFUND api k 2",
            format!("*10\r\n:1\r\n:3\r\n:2\r\n:0\r\n:20000000\r\n:0\r\n{tail}:0\r\n"),
        ),
        ("POLYLIMIT.CHARGE api k", format!("*10\r\n:1\r\n:3\r\n:1\r\n:0\r\n:40000000\r\n:0\r\n{tail}:0\r\n")),
        ("POLYLIMIT.RESET api k", format!("*10\r\n:1\r\n:3\r\n:3\r\n:0\r\n:0\r\n:0\r\n{tail}:0\r\n")),
    ] {
        exchange(&mut stream, &[line], &expected);
    }
}

#[test]
fn commands_of_one_read_are_answered_in_order() {
    let server = started();
    let mut stream = server.resp();
    let check = |remaining: u8, allowed: u8, wait: &str, reset: &str| {
        format!(
            "*9\r\n:{allowed}\r\n:3\r\n:{remaining}\r\n:{wait}\r\n:{reset}\r\n:0\r\n$5\r\nstore\r\n$-1\r\n:0\r\n"
        )
    };
    let expected = [
        check(2, 1, "0", "20000000"),
        check(1, 1, "0", "40000000"),
        "+PONG\r\n".to_owned(),
        check(0, 1, "0", "60000000"),
        "*10\r\n:1\r\n:3\r\n:3\r\n:0\r\n:0\r\n:0\r\n$5\r\nstore\r\n$-1\r\n:0\r\n:0\r\n".to_owned(),
        check(2, 1, "0", "20000000"),
    ];
    let line = "POLYLIMIT.CHECK api k";
    exchange(&mut stream, &[line, line, "PING", line, "POLYLIMIT.RESET api k", line], &expected.concat());
}

#[test]
fn command_that_comes_in_pieces_is_answered_once_it_is_complete() {
    let server = started();
    let mut stream = server.resp();
    let bytes = [command(&[b"PING", b"a"]), command(&[b"PING"])].concat();
    for piece in bytes.chunks(3) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    expect(&mut stream, "$1\r\na\r\n+PONG\r\n");
}

#[test]
fn connection_is_described_in_either_version() {
    let server = started();
    let mut stream = server.resp();
    exchange(
        &mut stream,
        &["CLIENT SETNAME me", "CLIENT GETNAME", "CLIENT SETINFO lib-name x"],
        "+OK\r\n$2\r\nme\r\n+OK\r\n",
    );
    exchange(&mut stream, &["SELECT 0", "COMMAND DOCS", "COMMAND"], "+OK\r\n*0\r\n*0\r\n");
    exchange(&mut stream, &["SELECT 1"], "-ERR DB index is out of range: there is only 0\r\n");
    exchange(&mut stream, &["HELLO 4"], "-NOPROTO unsupported protocol version\r\n");
    exchange(&mut stream, &["HELLO 3"], "%7\r\n$6\r\nserver\r\n$9\r\npolylimit\r\n");
    let rest = format!(
        "$7\r\nversion\r\n$5\r\n{}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:",
        env!("CARGO_PKG_VERSION")
    );
    expect(&mut stream, &rest);
    let mut rest = Vec::new();
    while !rest.ends_with(b"modules\r\n*0\r\n") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
        rest.push(byte[0]);
    }
    // Nil is written in the version that was chosen.
    exchange(
        &mut stream,
        &["POLYLIMIT.PEEK api v3"],
        "*9\r\n:1\r\n:3\r\n:3\r\n:0\r\n:0\r\n:0\r\n$5\r\nstore\r\n_\r\n:0\r\n",
    );
    exchange(&mut stream, &["QUIT"], "+OK\r\n");
    assert!(has_ended(&mut stream));
}

#[test]
fn mistakes_are_errors_and_the_connection_goes_on() {
    let server = started();
    let mut stream = server.resp();
    for (line, expected) in [
        ("GET k", "-ERR unknown command 'GET'"),
        ("POLYLIMIT.NONE api k", "-ERR unknown command 'POLYLIMIT.NONE'"),
        ("POLYLIMIT.CHECK api", "-ERR wrong number of arguments for 'polylimit.check' command"),
        ("POLYLIMIT.CHECK api k x", "-INVALID_ARGUMENT the cost cannot be read"),
        ("POLYLIMIT.CHECK api k 1000000000001", "-INVALID_ARGUMENT cost is 1000000000001"),
        ("POLYLIMIT.CHECK other k", "-INVALID_ARGUMENT "),
        ("AUTH token", "-ERR AUTH was sent"),
        ("CLIENT KILL 1", "-ERR CLIENT has only"),
    ] {
        exchange(&mut stream, &[line], expected);
        let mut byte = [0];
        while byte[0] != b'\n' {
            std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
        }
    }
    exchange(&mut stream, &["PING"], "+PONG\r\n");
}

#[test]
fn client_of_redis_asks_without_knowing_the_difference() {
    let server = Running::start(limiter().0, ServerOptions::default());
    let client = redis::Client::open(format!("redis://{}/?protocol=resp3", server.address(1))).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut ask = |quantity: i64| -> Vec<i64> {
        redis::cmd("CL.THROTTLE")
            .arg("user")
            .arg(4)
            .arg(5)
            .arg(60)
            .arg(quantity)
            .query(&mut connection)
            .unwrap()
    };
    assert_eq!((ask(5), ask(1)), (vec![0, 5, 0, -1, 60], vec![1, 5, 0, 12, 60]));
    let mut pipe = redis::pipe();
    for _ in 0..100 {
        pipe.cmd("POLYLIMIT.TAKE").arg("api").arg("pipelined");
    }
    let taken: Vec<Vec<redis::Value>> = pipe.query(&mut connection).unwrap();
    let units = taken.iter().map(|answer| match answer[9] {
        redis::Value::Int(units) => units,
        ref other => panic!("{other:?} is no number"),
    });
    assert_eq!((taken.len(), units.sum::<i64>()), (100, 3));
}

#[test]
fn transaction_is_carried_out_or_spends_nothing() {
    let server = started();
    let mut stream = server.resp();
    let throttle = "CL.THROTTLE k 15 30 60";
    exchange(
        &mut stream,
        &["MULTI", throttle, "PING", throttle, "EXEC"],
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n+PONG\r\n*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n:4\r\n",
    );
    exchange(
        &mut stream,
        &["MULTI", throttle, "NONE", throttle, "EXEC"],
        "+OK\r\n+QUEUED\r\n-ERR unknown command 'NONE'",
    );
    let mut stream = server.resp();
    exchange(
        &mut stream,
        &["MULTI", "POLYLIMIT.CHECK", "EXEC"],
        "+OK\r\n-ERR wrong number of arguments for 'polylimit.check' command\r\n-EXECABORT",
    );
    let mut stream = server.resp();
    exchange(
        &mut stream,
        &["MULTI", throttle, "MULTI", "DISCARD", "EXEC", throttle],
        "+OK\r\n+QUEUED\r\n-ERR MULTI calls can not be nested\r\n+OK\r\n-ERR EXEC without MULTI\r\n*5\r\n:0\r\n:16\r\n:13\r\n",
    );
}

#[test]
fn probes_of_clients_are_answered() {
    let server = started();
    let mut stream = server.resp();
    exchange(&mut stream, &["ECHO hello", "RESET", "TIME"], "$5\r\nhello\r\n+RESET\r\n*2\r\n$10\r\n");
    for line in ["PING\r\n", "ping\n"] {
        let mut stream = server.resp();
        stream.write_all(&line.as_bytes()[..2]).unwrap();
        stream.write_all(&line.as_bytes()[2..]).unwrap();
        expect(&mut stream, "+PONG\r\n");
    }
}
