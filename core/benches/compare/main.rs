//! Two revisions of the core in one process: `benches/compare REVISION` builds this with another revision as `before`. Built
//! as a benchmark of the core, it compares the core with itself, which shows how small a difference it can show.
//!
//! Both make the same decisions in turns of some milliseconds, so that a change of the machine's speed affects both. Each
//! ratio is one of two neighbouring turns; the figure of a row is their median. The layout of memory makes one of two equal
//! programs faster and differs from process to process, so each row is measured in several processes.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

mod memory;
mod redis;
mod turns;

use std::process::Command;

use polylimit as after;
use polylimit as before;

use turns::{PAIRS, Turns, median};

const PROCESSES: usize = 8;

fn main() {
    // Ignores flags that `cargo bench` passes, such as --bench.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &*arguments {
        [flag, row, process] if flag == "--row" => measure(row, process).print(),
        parts => report(parts),
    }
}

/// Measures one row in this process. In every second process `after` makes its limiter first.
fn measure(row: &str, process: &str) -> Turns {
    let after_first = process.parse::<usize>().unwrap() % 2 == 1;
    if row.starts_with("memory") {
        memory::measure(row, after_first)
    } else {
        redis::measure(row, after_first)
    }
}

/// Measures the rows whose names contain one of these parts; all rows without any.
fn report(parts: &[String]) {
    println!(
        "The ratio is that of the times; medians of {PROCESSES} processes with {PAIRS} pairs of turns.\n"
    );
    println!("| row | before, ns | after, ns | ratio | of the processes |\n|---|---:|---:|---:|---:|");
    let rows = memory::rows().into_iter().chain(redis::ROWS.map(str::to_owned));
    for row in rows.filter(|row| parts.is_empty() || parts.iter().any(|part| row.contains(part))) {
        let program = std::env::current_exe().unwrap();
        let measured = (0..PROCESSES).map(|process| {
            let output = Command::new(&program).args(["--row", &row, &process.to_string()]).output().unwrap();
            assert!(output.status.success(), "{row}: {}", String::from_utf8_lossy(&output.stderr));
            Turns::parse(&String::from_utf8(output.stdout).unwrap())
        });
        let measured: Vec<Turns> = measured.collect();
        let [before, after] = [0, 1].map(|side| median(measured.iter().flat_map(|turns| turns.ns(side))));
        let ratios: Vec<f64> = measured.iter().map(Turns::ratio).collect();
        let (least, most) =
            ratios.iter().fold((f64::MAX, 0.0_f64), |(a, b), ratio| (a.min(*ratio), b.max(*ratio)));
        let ratio = median(ratios);
        println!("| {row} | {before:.1} | {after:.1} | {ratio:.3} | {least:.3} to {most:.3} |");
    }
}
