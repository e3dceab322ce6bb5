//! The Redis store next to its peers and to the server's own ceiling, in one run against one server: `make bench-redis`.
//!
//! Rounds of all contenders are interleaved, so that a change of the machine's speed affects all of them; each figure is
//! the median of its rounds. The server runs on one core and the callers on another where the system allows pinning.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

mod ceiling;
mod contender;
mod footprint;
mod layers;
mod load;
mod lone;
mod module;
mod server_cpu;

use contender::Contender;
use load::{Keys, Measured, Outcome, Workload};
use polylimit_test_servers::{Kind, Server};

/// How many callers wait for a decision at the same time.
const CALLERS: [usize; 4] = [1, 64, 256, 1024];

fn main() {
    // Ignores flags that `cargo bench` passes, such as --bench.
    let quick = std::env::args().any(|argument| argument == "--quick");
    if std::env::args().any(|argument| argument == "--module") {
        return module::report(quick);
    }
    let rounds = if quick { 1 } else { 5 };
    let server = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);
    pin(server.pid(), 1);
    pin(std::process::id(), 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

    lone::report(&server, &runtime, quick);
    lone::report_requests(&server, &runtime, quick);
    server_cpu::report(&server, &runtime, quick);
    server_cpu::report_parts(&server, quick);
    server_cpu::report_reservations(&server, quick);
    module::report(quick);
    footprint::report(&server, &runtime);
    layers::report(&server, quick);

    let ceiling = ceiling::incr_per_second(&server, quick);
    println!("\nredis-benchmark INCR -c 50 -P 32: {:.0} k/s\n", ceiling / 1e3);
    println!("Thousands of decisions a second (p50 / p99 / max latency in us), median of {rounds} rounds\n");
    println!(
        "| keys | quotas | outcome | callers | redis_rate | script | polylimit | to redis_rate | to INCR |"
    );
    println!("|---|---:|---|---:|---:|---:|---:|---:|---:|");
    for (keys, quotas, outcome) in [
        (Keys::Uniform, 1, Outcome::Allowed),
        (Keys::Uniform, 3, Outcome::Allowed),
        (Keys::Uniform, 1, Outcome::Denied),
        (Keys::Zipf, 1, Outcome::Allowed),
        (Keys::One, 1, Outcome::Allowed),
        (Keys::One, 1, Outcome::Denied),
    ] {
        for callers in CALLERS {
            let workload = Workload { keys, quotas, outcome, callers, quick };
            let contenders = runtime.block_on(Contender::all(&server, &workload));
            let mut measured: Vec<Vec<Measured>> = contenders.iter().map(|_| Vec::new()).collect();
            for _ in 0..rounds {
                for (contender, measured) in contenders.iter().zip(&mut measured) {
                    measured.push(load::run(&runtime, contender, &workload));
                }
            }
            let row: Vec<Measured> = measured.iter().map(|rounds| Measured::median(rounds)).collect();
            print!("| {keys:?} | {quotas} | {outcome:?} | {callers} |");
            for Measured { per_second, p50_us, p99_us, max_us } in &row {
                print!(" {:.0} ({p50_us:.0} / {p99_us:.0} / {max_us:.0}) |", per_second / 1e3);
            }
            println!(" {:.2} | {:.2} |", row[2].per_second / row[0].per_second, row[2].per_second / ceiling);
        }
    }
    println!("\nrepeat: cargo bench -p polylimit --bench redis");
}

/// Pins a process to a core, if there are several cores and the system supports it.
fn pin(process: u32, core: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if core < cores {
        let _ = std::process::Command::new("taskset")
            .args(["-a", "-cp", &core.to_string(), &process.to_string()])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
    }
}
