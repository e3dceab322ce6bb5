//! The server of polylimit compared with throttlecrab-server, envoyproxy/ratelimit, Redis and a bare service of axum: `benches/server/run`.
//!
//! Servers run on one core, and load generators on another one with the Redis that servers keep their states in. The servers of a table
//! get slices of load in turns, and a ratio compares slices of the same round, so that other load on the machine affects both alike.
//! The processor time that a server needs for an answer does not depend on who else uses its core.

#![allow(clippy::cast_precision_loss, reason = "figures are rounded anyway")]

mod correctness;
mod figures;
mod generators;
mod grpc;
mod messages;
mod options;
mod process;
mod servers;
mod table;
mod tables;

use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use options::Options;
use polylimit_test_servers::{Cluster, Kind, Server};
use servers::{BareAxum, Polylimit, Ratelimit, Throttlecrab};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server-benchmark: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::read()?;
    if options.pins {
        // Everything that is started later without a core of its own inherits this.
        process::pin(std::process::id(), options::GENERATORS)?;
    }
    println!(
        "{} rounds. In each, every server of a table gets a slice of {:?} about {} keys; all requests are admitted. Servers {}.",
        options.rounds,
        options.slice,
        options.keys,
        if options.pins {
            "share core 0, one of them under load at a time; generators and the Redis that keeps states share core 1"
        } else {
            "and generators share one core"
        },
    );
    println!("Medians of the slices, and in brackets quartiles. The load of the machine before: {}.", load());
    if options.includes("size") {
        print_size(&options)?;
    }
    memory_tables(&options)?;
    store_tables(&options)?;
    println!("\nThe load of the machine after: {}.", load());
    Ok(())
}

/// The averages over 1, 5 and 15 minutes of how many processes run or wait to run.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(", ")
}

/// What the server takes before its first request.
fn print_size(options: &Options) -> Result<(), Box<dyn Error>> {
    const MB: f64 = 1e6;
    let server = Polylimit::start(options, None)?;
    sleep(Duration::from_millis(if options.quick { 100 } else { 3_000 }));
    let memory = server.process.memory()? as f64 / MB;
    let size = fs::metadata(&options.polylimit)?.len() as f64 / MB;
    println!("\n### Size\n");
    if options.quick {
        println!("In a quick run, of a binary that is not optimised.\n");
    }
    println!("| | MB | goal, at most | reached |\n|---|---:|---:|---|");
    for (what, found, most) in
        [("memory of the idle server, `VmRSS`", memory, 20.0), ("the binary `polylimit`", size, 15.0)]
    {
        println!("| {what} | {found:.1} | {most} | {} |", if found <= most { "yes" } else { "no" });
    }
    Ok(())
}

/// Servers that keep their states in memory.
fn memory_tables(options: &Options) -> Result<(), Box<dyn Error>> {
    if !["http", "grpc", "resp", "pipelined"].iter().any(|table| options.includes(table)) {
        return Ok(());
    }
    let (polylimit, throttlecrab) = (Polylimit::start(options, None)?, Throttlecrab::start(options)?);
    correctness::polylimit(&polylimit)?;
    correctness::throttlecrab(&throttlecrab)?;
    let (axum, redis) = (BareAxum::start(options)?, servers::redis_on_server_core(options)?);
    tables::http(&polylimit, &throttlecrab, &axum).measure(options)?;
    tables::grpc(&polylimit, &throttlecrab, options).measure(options)?;
    tables::resp(&polylimit, &throttlecrab).measure(options)?;
    tables::pipelined(&polylimit, &throttlecrab, &redis).measure(options)
}

/// Servers that keep their states in Redis.
fn store_tables(options: &Options) -> Result<(), Box<dyn Error>> {
    if !["redis", "host", "cluster"].iter().any(|table| options.includes(table)) {
        return Ok(());
    }
    let redis = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);
    let others = connections(&redis);
    let polylimit = Polylimit::start(options, Some(&redis.url()))?;
    correctness::polylimit(&polylimit)?;
    tables::host(&polylimit, &redis).measure(options)?;
    if options.includes("host") {
        let held = connections(&redis).saturating_sub(others);
        println!("\nConnections of the server to Redis, with that for refunds of denied keys: {held}.");
    }
    if options.includes("cluster") {
        let cluster = Cluster::start(Kind::Redis, 3, 0);
        let clustered = Polylimit::start(options, Some(&cluster.url()))?;
        correctness::polylimit(&clustered)?;
        tables::cluster(&polylimit, &redis, &clustered, &cluster).measure(options)?;
    }
    if options.includes("redis") {
        let plain = Ratelimit::start(options, &redis, false)?;
        let pipelined = Ratelimit::start(options, &redis, true)?;
        correctness::ratelimit(&plain, "plain")?;
        correctness::ratelimit(&pipelined, "pipelined")?;
        tables::redis(&polylimit, &plain, &pipelined, &redis, options).measure(options)?;
    }
    Ok(())
}

/// How many clients a server of Redis has, with this one.
fn connections(redis: &Server) -> u64 {
    redis.info("connected_clients").parse().unwrap_or_default()
}
