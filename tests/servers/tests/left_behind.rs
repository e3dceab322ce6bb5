//! A test process that panics, ends or is killed leaves no server behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails here is a failed test"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polylimit_test_servers::{Kind, Server, until};

/// Says in the environment that this process is the one to be ended, and how.
const ROLE: &str = "POLYLIMIT_TEST_ENDING";

/// No test of its own: the process that the tests below start and end.
#[test]
fn victim() {
    let Ok(role) = std::env::var(ROLE) else { return };
    // Made by a thread that ends before the server may.
    let server = std::thread::spawn(|| Server::start(Kind::Redis, &[])).join().unwrap();
    println!("pid {}", server.pid());
    server.command(&["PING"]);
    match role.as_str() {
        "panic" => panic!("as it was told"),
        "exit" => std::process::exit(0),
        _ => std::thread::sleep(Duration::from_secs(60)),
    }
}

/// Whether it runs: of an ended process that nobody has reaped yet the command line is empty.
fn runs(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Starts the victim, which leaves its files in `dir`, and answers the id of its server.
fn start(role: &str, dir: &Path) -> (Child, u32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("TMPDIR", dir);
    command.args(["--exact", "victim", "--nocapture"]).env(ROLE, role).env("RUST_BACKTRACE", "0");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("pid ")?.1.parse().unwrap()));
    (child, pid.expect("the id of its server"))
}

#[test]
fn no_server_outlives_its_test() {
    let dir = tempfile::tempdir().unwrap();
    for role in ["panic", "exit", "kill"] {
        let (mut child, pid) = start(role, dir.path());
        if role == "kill" {
            assert!(runs(pid));
            child.kill().unwrap();
        }
        child.wait().unwrap();
        until("the server ends", Duration::from_secs(5), || (!runs(pid)).then_some(()));
    }
}
