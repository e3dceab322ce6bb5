//! Servers end when their test process panics, exits or is killed.
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

/// The environment variable that makes this process the one that ends, and how.
const ROLE: &str = "POLYLIMIT_TEST_ENDING";

/// The process that the test below starts and ends.
#[test]
#[ignore = "not a test: a test starts it in a process of its own"]
fn victim() {
    let role = std::env::var(ROLE).unwrap();
    // Started by a thread that ends before the server does.
    let server = std::thread::spawn(|| Server::start(Kind::Redis, &[])).join().unwrap();
    println!("pid {}", server.pid());
    server.command(&["PING"]);
    match role.as_str() {
        "panic" => panic!("the role of this process"),
        "exit" => std::process::exit(0),
        _ => std::thread::sleep(Duration::from_secs(60)),
    }
}

/// Whether the process runs. The command line of a zombie is empty.
fn runs(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Starts the process, with its files in `dir`, and returns the id of its server.
fn start(role: &str, dir: &Path) -> (Child, u32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("TMPDIR", dir);
    command
        .args(["--ignored", "--exact", "victim", "--nocapture"])
        .env(ROLE, role)
        .env("RUST_BACKTRACE", "0");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("pid ")?.1.parse().unwrap()));
    (child, pid.expect("the id of its server"))
}

#[test]
fn server_ends_with_its_test_process() {
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
