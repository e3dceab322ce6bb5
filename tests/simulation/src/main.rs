//! Runs seeds: `polylimit-fault-simulation [--seed SEED] [--from SEED] [--seeds COUNT] [--threads COUNT]`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::process::ExitCode;
use std::time::Instant;

use polylimit_fault_simulation::seeds::{Summary, describe, run_all};

const HELP: &str = "\
polylimit-fault-simulation [--seed SEED | --from SEED --seeds COUNT] [--threads COUNT]

Runs the limiter on a simulated network and server, once for each seed, and checks what has to hold under faults.
A seed that fails is printed with its schedule; --seed repeats it.";

fn main() -> ExitCode {
    let (mut from, mut count, mut threads) = (0, 1_000, 2);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--seed", Some(seed)) => (from, count) = (seed, 1),
            ("--from", Some(seed)) => from = seed,
            ("--seeds", Some(seeds @ 1..=100_000_000)) => count = seeds,
            ("--threads", Some(number @ 1..=256)) => threads = usize::try_from(number).unwrap_or(1),
            _ => {
                eprintln!("{HELP}");
                return ExitCode::from(2);
            }
        }
    }
    let began = Instant::now();
    let Summary { seeds, executed, sources, failed } = run_all(from..from.saturating_add(count), threads);
    for report in &failed {
        println!("{}", describe(report));
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds in {seconds:.1} s, {} failed; {executed} operations executed; answers: {sources:?}",
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
