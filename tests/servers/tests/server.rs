//! Servers start, are commanded, suspended, killed and restarted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails here is a failed test"
)]

use std::time::{Duration, Instant};

use polylimit_test_servers::redis::{self, Commands};
use polylimit_test_servers::{Dataset, Kind, Server, until};

fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// A client that connects to the port.
fn connect(url: &str) -> redis::RedisResult<redis::Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(Duration::from_secs(1))?;
    connection.set_read_timeout(Some(Duration::from_millis(200)))?;
    Ok(connection)
}

#[test]
fn server_has_its_settings_and_leaves_no_process_or_files() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &["maxmemory 64mb"]);
        let (pid, dir) = (server.pid(), server.dir().to_owned());
        let (_, memory): (String, String) = server.query(&["CONFIG", "GET", "maxmemory"]);
        assert_eq!(memory, (64 << 20).to_string());
        let field = if kind == Kind::Redis { "redis_version" } else { "valkey_version" };
        assert!(!server.info(field).is_empty());
        let mut client = connect(&server.url()).unwrap();
        assert_eq!(client.set::<_, _, String>("key", "value").unwrap(), "OK");
        drop(server);
        assert!(!exists(pid) && !dir.exists());
    }
}

#[test]
fn restart_keeps_the_port_and_optionally_the_data() {
    let server = Server::start(Kind::Redis, &[]);
    let port = server.port();
    let mut pid = server.pid();
    for (dataset, kept) in [(Dataset::Kept, true), (Dataset::Empty, false)] {
        server.command(&["SET", "key", "value"]);
        server.restart(dataset);
        assert_eq!(server.query::<bool>(&["EXISTS", "key"]), kept);
        assert!(server.port() == port && server.pid() != pid);
        pid = server.pid();
    }
    server.kill();
    assert!(!server.is_running() && !exists(pid) && connect(&server.url()).is_err());
    server.restart(Dataset::Empty);
    assert!(connect(&server.url()).is_ok());
}

#[test]
fn killed_server_reloads_its_append_only_file() {
    let server = Server::start(Kind::Valkey, &["appendonly yes", "appendfsync always"]);
    server.command(&["SET", "key", "value"]);
    server.kill();
    server.restart(Dataset::Kept);
    assert!(server.query::<bool>(&["EXISTS", "key"]));
    server.kill();
    server.restart(Dataset::Empty);
    assert!(!server.query::<bool>(&["EXISTS", "key"]));
}

#[test]
fn reserved_server_has_a_url_before_it_is_started() {
    let server = Server::options(Kind::Redis).reserve();
    assert!(connect(&server.url()).is_err());
    server.restart(Dataset::Empty);
    assert!(connect(&server.url()).is_ok());
}

#[test]
fn suspended_server_accepts_bytes_and_does_not_reply() {
    let server = Server::start(Kind::Redis, &[]);
    let mut client = connect(&server.url()).unwrap();
    server.stop();
    assert!(client.incr::<_, _, i64>("key", 1).unwrap_err().is_timeout());
    server.cont();
    until("the late command runs", Duration::from_secs(5), || {
        server.query::<bool>(&["EXISTS", "key"]).then_some(())
    });
    // Dropping a stopped server ends it as well.
    server.stop();
    let pid = server.pid();
    drop(server);
    assert!(!exists(pid));
}

#[test]
fn passwords_apply_to_clients_and_not_to_the_harness() {
    let server = Server::options(Kind::Redis).password("first").start();
    assert!(connect(&server.url()).is_ok());
    assert!(connect(&server.url().replace(":first@", "")).unwrap().get::<_, Option<String>>("key").is_err());
    server.command(&["CONFIG", "SET", "requirepass", "second"]);
    assert!(connect(&server.url()).is_err());

    let server = Server::options(Kind::Valkey).user("app", "secret").start();
    assert!(connect(&server.url()).is_ok());
    server.command(&["ACL", "DELUSER", "app"]);
    assert!(connect(&server.url()).is_err());
    server.command(&["CONFIG", "SET", "maxclients", "1"]);
    server.command(&["PING"]);
}

#[test]
fn clock_of_a_running_server_can_be_set() {
    let server = Server::options(Kind::Redis).fake_clock().start();
    let now = || {
        let (s, us): (i64, i64) = server.query(&["TIME"]);
        s * 1_000_000 + us
    };
    let start = (now(), Instant::now());
    for offset_us in [3_600_000_000, -3_600_000_000, 1_500_000, 0] {
        server.set_clock_offset_us(offset_us);
        let expected = start.0 + i64::try_from(start.1.elapsed().as_micros()).unwrap() + offset_us;
        let difference = (now() - expected).abs();
        assert!(difference < 200_000, "at {offset_us}: {difference} us off");
        let seen: i64 = server.query(&["EVAL", "return tonumber(redis.call('TIME')[1])", "0"]);
        assert!((seen - expected / 1_000_000).abs() <= 1, "scripts see it too");
    }
}

#[test]
fn concurrent_servers_have_different_ports() {
    let servers: Vec<Server> = (0..8).map(|_| Server::start(Kind::Redis, &[])).collect();
    let ports: std::collections::BTreeSet<u16> = servers.iter().map(Server::port).collect();
    assert_eq!(ports.len(), servers.len());
}

#[test]
fn server_always_has_a_unix_socket() {
    let server = Server::start(Kind::Valkey, &[]);
    let mut client = connect(&format!("redis+unix://{}", server.socket().display())).unwrap();
    assert_eq!(client.incr::<_, _, i64>("key", 1).unwrap(), 1);
}
