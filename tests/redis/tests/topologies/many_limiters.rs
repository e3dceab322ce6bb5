//! Limiters that come and go leave nothing behind.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use polylimit_test_servers::{Cluster, Kind, Server, until};

use super::quiet;

const LIMITERS: usize = 500;
/// What an allocator keeps.
const SPARE_KIB: usize = 8 << 10;

/// Has a process of its own make and drop limiters, so that nothing else counts.
fn churn(url: &str, servers: &[&Server]) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_polylimit-churn"))
        .args([url, &LIMITERS.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    println!("threads, descriptors, KiB before and after: {line}");
    let numbers: Vec<usize> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [threads, descriptors, kib, threads_after, descriptors_after, kib_after] = numbers.as_slice() else {
        panic!("not six numbers: {line}")
    };
    assert!(threads_after <= threads && descriptors_after <= descriptors, "{line}");
    assert!(*kib_after <= kib + SPARE_KIB, "{line}");
    // It still lives.
    until("all connections are closed", Duration::from_secs(5), || {
        let list =
            |server: &&Server| server.query::<String>(&["CLIENT", "LIST"]).contains(" name=polylimit ");
        (!servers.iter().any(list)).then_some(())
    });
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn of_one_server() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    churn(&format!("{}?deadline=20s", server.url()), &[&server]);
}

#[test]
fn of_a_cluster() {
    let _shared = quiet::shared();
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let nodes = [cluster.node(0), cluster.node(1), cluster.node(2)];
    churn(&format!("{}?deadline=20s", cluster.url()), &nodes);
}
