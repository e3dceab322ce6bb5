//! A process to which the system gives no further descriptors.

use std::process::Command;

use polylimit_test_servers::{Kind, Server};

#[test]
fn without_descriptors_the_outage_policy_answers_and_with_them_the_store() {
    let server = Server::start(Kind::Redis, &[]);
    let output = Command::new(env!("CARGO_BIN_EXE_polylimit-starved")).arg(server.url()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{output:?}");
}
