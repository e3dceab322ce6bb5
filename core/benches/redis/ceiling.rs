//! The server's own ceiling: `redis-benchmark` with a plain increment.

use std::process::Command;

use polylimit_test_servers::Server;

pub(crate) fn incr_per_second(server: &Server, quick: bool) -> f64 {
    let requests = if quick { "50000" } else { "3000000" };
    let port = server.port().to_string();
    let output = Command::new("redis-benchmark")
        .args(["-p", &port, "-c", "50", "-P", "32", "-r", "100000", "-n", requests, "--csv"])
        .args(["INCR", "key:__rand_int__"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // "command","requests per second",...
    let line = text.lines().last().unwrap_or_default();
    line.split("\",\"").nth(1).and_then(|rate| rate.trim_matches('"').parse().ok()).unwrap_or(f64::NAN)
}
