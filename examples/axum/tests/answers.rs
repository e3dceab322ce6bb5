//! The example used as its README describes.

#![allow(clippy::unwrap_used, reason = "what a test cannot do fails it")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use ureq::Agent;

/// The server; it ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn each_user_has_the_quota() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_polylimit-example-axum"));
    server.envs([("PORT", "0"), ("POLYLIMIT_URL", "memory:"), ("POLYLIMIT_QUOTA", "2/hour sliding_log")]);
    let mut server = Server(server.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim_end().strip_prefix("listening on ").unwrap();

    let agent: Agent = Agent::config_builder().http_status_as_error(false).build().into();
    let mut seen = Vec::new();
    for query in ["", "?user=demo", "?user=", "?user=alice", "?x=1&user=%61lice", "?user=alice"] {
        let mut response = agent.get(format!("{url}/{query}")).call().unwrap();
        let body = response.body_mut().read_to_string().unwrap();
        seen.push((response.status().as_u16(), body == r#"{"hello":"world"}"#));
        assert_eq!(response.headers()["ratelimit-policy"], r#""demo";q=2;w=3600"#);
    }
    let (yes, no) = ((200, true), (429, false));
    assert_eq!(seen, [yes, yes, no, yes, yes, no]);
}
