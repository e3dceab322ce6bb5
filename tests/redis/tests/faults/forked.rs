//! A process that forks while its threads decide: children have connections of their own, and the parent's are left alone.

use std::process::Command;

use polylimit_test_servers::{Kind, Server};

const FORKS: &str = "200";

fn forks(url: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_polylimit-forks")).args([url, FORKS]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{output:?}");
}

#[test]
fn children_and_parent_share_the_budget_in_redis() {
    let server = Server::start(Kind::Redis, &[]);
    forks(&format!("{}?deadline=10s", server.url()));
}

#[test]
fn children_have_a_memory_store_of_their_own() {
    forks("memory:");
}
