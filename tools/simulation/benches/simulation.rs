//! How long simulations take: `cargo bench -p polylimit-simulation --bench simulation`; with ` -- PART` only the rows whose names have
//! this part.
//!
//! Rounds of all rows are interleaved, so that a change of the machine's speed affects all of them; the figure of a row is the median
//! of its rounds.

#![allow(
    clippy::expect_used,
    clippy::cast_precision_loss,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use clap::Parser;
use polylimit_simulation::SimulateArguments;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: SimulateArguments,
}

struct Row {
    name: &'static str,
    arguments: Vec<String>,
    /// Attempts that were decided, by all limits.
    attempts: u64,
    rounds: Vec<Duration>,
}

impl Row {
    fn new(name: &'static str, arguments: &[&str], duration: &str) -> Self {
        let duration = ["--for", duration];
        let arguments = ["simulate"].iter().chain(arguments).chain(&duration).map(|text| (*text).to_owned());
        Self { name, arguments: arguments.collect(), attempts: 0, rounds: Vec::new() }
    }

    fn run(&mut self) {
        let program = Program::try_parse_from(&self.arguments).expect("the arguments are right");
        let start = Instant::now();
        let simulation = program.arguments.simulate(None).expect("the simulation ends");
        self.rounds.push(start.elapsed());
        let courses = simulation.candidates.iter().map(|candidate| &candidate.course);
        self.attempts =
            courses.chain([&simulation.live]).map(|course| course.total.admitted + course.total.denied).sum();
    }

    fn median(&mut self) -> Duration {
        self.rounds.sort_unstable();
        self.rounds[self.rounds.len() / 2]
    }
}

/// A combined log of an hour.
fn log(lines: u64) -> String {
    let (mut log, mut random) = (String::new(), 88_172_645_463_325_252_u64);
    for line in 0..lines {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (second, client) = (line * 3_600 / lines, random % 5_000);
        let _ = writeln!(
            log,
            "10.0.{}.{} - - [21/Nov/2026:10:{:02}:{:02} +0000] \"GET /v1/items/{line} HTTP/1.1\" 200 1534 \"-\" \"curl/8.5.0\"",
            client / 250,
            client % 250,
            second / 60,
            second % 60
        );
    }
    log
}

fn main() {
    // Ignores flags that `cargo bench` passes, such as --bench.
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let part = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).unwrap_or_default();
    let (rounds, duration, lines) = if is_quick { (1, "1m", 1_000) } else { (7, "1h", 1_000_000) };
    let file = tempfile::NamedTempFile::new().expect("there is a folder for temporary files");
    std::fs::write(file.path(), log(lines)).expect("the file can be written");
    let path = file.path().to_str().expect("the path is text");
    let zipf = "500 clients 2/s poisson zipf=1.1";
    let mut rows = vec![
        Row::new(
            "500 clients 2/s poisson, one policy",
            &["--policy", "100/minute", "--traffic", zipf],
            duration,
        ),
        Row::new(
            "the same with a candidate",
            &["--policy", "100/minute", "--candidate", "100/minute token_bucket burst=20", "--traffic", zipf],
            duration,
        ),
        Row::new(
            "retries every 100 ms",
            &["--policy", "100/minute", "--traffic", "500 clients 2/s poisson zipf=1.1 denied=retry=100ms"],
            duration,
        ),
        Row::new(
            "100,000 clients 1/2m even",
            &["--policy", "10/minute", "--traffic", "100_000 clients 1/2m even"],
            duration,
        ),
        Row::new("a log of 1,000,000 lines", &["--policy", "100/minute", "--log", path], duration),
    ];
    rows.retain(|row| row.name.contains(&part));
    for _ in 0..rounds {
        for row in &mut rows {
            row.run();
        }
    }
    println!("Simulations of {duration}, from the arguments to the answer (median of {rounds} rounds)\n");
    println!("| simulation | decisions | seconds | million decisions a second |");
    println!("|---|---:|---:|---:|");
    for row in &mut rows {
        let seconds = row.median().as_secs_f64();
        let rate = row.attempts as f64 / seconds / 1e6;
        println!("| {} | {} | {seconds:.2} | {rate:.2} |", row.name, row.attempts);
    }
    println!("\nrepeat: cargo bench -p polylimit-simulation --bench simulation");
}
