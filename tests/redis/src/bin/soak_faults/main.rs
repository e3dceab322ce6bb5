//! Faults of days in an hour, on one server, under sentinels and in a cluster at the same time: `make soak-faults`.
//!
//! Usage: `polylimit-soak-faults [--seconds SECONDS] [--seed SEED] [--only FAULT]`. Each topology has three processes that decide all the time. A
//! phase is one fault and one key of [`LIMIT`](worker::LIMIT) units, which is used up during or after the fault. The run fails when a key is
//! admitted more often than its fault allows, when a process is not served by the store again, or when one holds more descriptors,
//! threads or memory than after the first fifth of the phases. Every fault happens at least once, however few the seconds are.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "this program is a test: what it cannot do fails the test"
)]

mod lanes;
mod report;
mod worker;

use std::process::ExitCode;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::lanes::{Clustered, Fault, Lane, Single, Watched};
use crate::report::{Phase, Report};
use crate::worker::{Counted, KINDS, LIMIT, Worker};

const WORKERS: usize = 3;
/// The time before a fault.
const BEFORE: Duration = Duration::from_secs(1);
/// How long a process may take until the store serves it, after the world is whole: a breaker and a resolver wait for seconds at most.
const RECOVERY: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, url] = &arguments[..]
        && name == "worker"
    {
        worker::main(url);
        return ExitCode::SUCCESS;
    }
    let text = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let option = |name: &str| Some(text(name)?.parse::<u64>().unwrap());
    let (seconds, seed) =
        (option("--seconds").unwrap_or(3_600), option("--seed").unwrap_or_else(|| Rng::new().u64(..1 << 32)));
    let only = text("--only").map_or("", String::as_str);
    println!("seed {seed}; {seconds} s");
    let end = Instant::now() + Duration::from_secs(seconds);
    let starts: [fn() -> Box<dyn Lane>; 3] =
        [|| Box::new(Single::start()), || Box::new(Watched::start()), || Box::new(Clustered::start())];
    let running: Vec<_> = starts
        .into_iter()
        .zip(0..)
        .map(|(start, number)| {
            let only = only.to_owned();
            thread::spawn(move || run(&mut *start(), &only, end, &mut Rng::with_seed(seed + number)))
        })
        .collect();
    let ended: Vec<_> = running.into_iter().map(thread::JoinHandle::join).collect();
    let panicked = ended.iter().filter(|end| end.is_err()).count();
    let reports: Vec<Report> = ended.into_iter().flatten().collect();
    let mut failures = report::print(&reports);
    failures.extend((0..panicked).map(|_| "a topology ended early: its panic is above".to_owned()));
    println!(
        "\nrepeat: cargo run --locked -p polylimit-redis-tests --bin polylimit-soak-faults -- --seconds {seconds} --seed {seed}"
    );
    if failures.is_empty() {
        println!("test result: ok. {} passed; 0 failed;", report::cases(&reports));
        return ExitCode::SUCCESS;
    }
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    println!("test result: FAILED. {} passed; {} failed;", report::cases(&reports), failures.len());
    ExitCode::FAILURE
}

/// Lets all faults of a topology whose names have `only` happen in random order, again and again until the time is over.
fn run(lane: &mut dyn Lane, only: &str, end: Instant, random: &mut Rng) -> Report {
    let faults: Vec<Fault> = lane.faults().into_iter().filter(|fault| fault.name.contains(only)).collect();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start(&lane.url())).collect();
    let mut report = Report::new(lane.name(), &faults);
    let mut number = 0;
    while !faults.is_empty() {
        let mut round = faults.clone();
        random.shuffle(&mut round);
        for fault in round {
            number += 1;
            let phase = one(lane, &mut workers, fault, number, random);
            report.add(fault, phase, workers.iter().map(Worker::held).collect());
            if Instant::now() >= end && number >= faults.len() {
                return report;
            }
        }
    }
    report
}

fn one(lane: &mut dyn Lane, workers: &mut [Worker], fault: Fault, number: usize, random: &mut Rng) -> Phase {
    let (policy, key) = (KINDS[number % KINDS.len()], format!("{}:{number}", lane.name().replace(' ', "-")));
    for worker in &mut *workers {
        worker.ask_for(policy, &key);
    }
    sleep(BEFORE);
    let start = Instant::now();
    lane.happen(fault.name, &key, workers, random);
    let whole = Instant::now();
    // Long enough for the units that a loss gives back.
    sleep(BEFORE * 3);
    let mut outage = None;
    let recovered = loop {
        match workers.iter().map(|worker| worker.recovered(start)).collect::<Result<Vec<_>, _>>() {
            Ok(times) => break times.into_iter().flatten().max(),
            Err(_) if whole.elapsed() < RECOVERY => sleep(Duration::from_millis(20)),
            Err(reason) => {
                outage = Some(reason);
                break None;
            }
        }
    };
    // A busy machine lets the workers decide less often.
    while outage.is_none() && !workers.iter().any(Worker::is_used_up) && whole.elapsed() < RECOVERY {
        sleep(Duration::from_millis(20));
    }
    let mut counted = Counted::default();
    let reasons = workers.iter().flat_map(|worker| worker.reasons(start)).collect();
    for worker in workers {
        let of_worker = worker.ask_for(policy, "between");
        counted.admitted += of_worker.admitted;
        counted.denied += of_worker.denied;
        counted.degraded += of_worker.degraded;
        counted.slowest_us = counted.slowest_us.max(of_worker.slowest_us);
    }
    Phase {
        key: format!("{policy} {key}"),
        counted,
        bound: LIMIT * (1 + fault.losses),
        recovered: recovered.map(|at| at - start),
        lasted: whole - start,
        outage,
        reasons,
    }
}
