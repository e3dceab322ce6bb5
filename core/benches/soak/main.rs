//! The layers before Redis under load for ten minutes, with more keys than they keep: `make soak`.
//!
//! The layers are bounded, so memory may grow until the bounds are reached and not after that; otherwise the run fails.
//! Before the load, one table shows the memory of a key while it is denied or leased, and afterwards. Another table shows
//! the memory of full layers; any run, also a quick one, fails if it exceeds their bounds.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

mod allocated;
mod bounds;
mod footprint;
mod load;

use std::process::ExitCode;
use std::time::Duration;

use polylimit_test_servers::{Kind, Server};

/// The number of requested keys.
const KEYS: u64 = 10_000_000;
/// More growth than this after the first fifth of the time is a leak.
const MAX_GROWTH: f64 = 1.03;

fn main() -> ExitCode {
    // Ignores flags that `cargo bench` passes, such as --bench.
    let arguments: Vec<String> = std::env::args().collect();
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let seconds = arguments.iter().find_map(|argument| argument.strip_prefix("--seconds=")?.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(if is_quick { 2 } else { 600 }));
    let server = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);

    footprint::report(&server, is_quick);
    let bounds_hold = bounds::hold(&server);
    let samples = load::run(&server, length);
    let (settled, rest) = samples.split_at(samples.len() / 5 + 1);
    let before = settled.iter().map(|sample| sample.held).max().unwrap_or(0);
    let after = rest.iter().map(|sample| sample.held).max().unwrap_or(0);
    let growth = after as f64 / before as f64;
    println!("\nheld at most: {before} bytes in the first fifth, {after} after that: {growth:.3} of it");
    println!("\nrepeat: cargo bench -p polylimit --bench soak -- --seconds={}", length.as_secs());
    // In the few seconds of a quick run the layers do not fill, so their growth means nothing.
    let grows = !is_quick && growth > MAX_GROWTH;
    if bounds_hold && !grows { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
