//! What has to hold under faults, for many seeds, for kept schedules, and the same in every run of a seed.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use polylimit_fault_simulation::run::{run, run_schedule};
use polylimit_fault_simulation::schedule::{Fault, Injection, Schedule};
use polylimit_fault_simulation::seeds::{describe, run_all};

/// `tests/run` runs ten thousand with optimisation.
const SEEDS: u64 = 100;
const THREADS: usize = 2;

/// What `mutations/run` writes into the page: each deliberate defect with the seed that finds it.
const PAGE: &str = include_str!("../../../docs/internals/fault-simulation.md");
const PATCH: &str = include_str!("../mutations/defects.patch");
const DEFECTS: &str = include_str!("../mutations/defects.txt");

#[test]
fn faults_break_nothing() {
    let summary = run_all(0..SEEDS, THREADS);
    let failed: String = summary.failed.iter().map(describe).collect();
    assert!(summary.failed.is_empty(), "{failed}");
    assert_eq!(summary.seeds, SEEDS);
    // Every way to answer has to occur.
    for source in ["store", "denial_cache", "lease", "fallback", "allow", "deny"] {
        assert!(
            summary.sources.get(source).is_some_and(|count| *count > SEEDS / 2),
            "{source}: {:?}",
            summary.sources
        );
    }
}

/// The rows of the table in the page: defects, and the seeds that find them.
fn table() -> Vec<(&'static str, u64)> {
    let table =
        PAGE.split("<!-- defects -->").nth(1).unwrap().split("<!-- end of defects -->").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (name, rest) = row.split_once('`').unwrap();
        (name, rest.split('|').nth(1).unwrap().trim().parse().unwrap())
    })
    .collect()
}

#[test]
fn seeds_that_find_deliberate_defects_hold_without_them() {
    let seeds: BTreeSet<u64> = table().into_iter().map(|(_, seed)| seed).collect();
    for seed in seeds {
        let report = run(seed);
        assert!(report.violations.is_empty(), "{}", describe(&report));
    }
}

#[test]
fn every_deliberate_defect_is_in_the_table() {
    let listed: BTreeSet<&str> = DEFECTS.lines().map(|line| line.split(':').next().unwrap()).collect();
    let in_patch: BTreeSet<&str> =
        PATCH.split("has_defect(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let in_table: BTreeSet<&str> = table().into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, in_patch);
    assert_eq!(listed, in_table, "make mutations writes the table");
}

#[test]
fn patch_with_deliberate_defects_applies() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let patch = here.join("mutations/defects.patch");
    let output = Command::new("git")
        .args(["apply", "--check", "-C1"])
        .arg(patch)
        .current_dir(here.join("../.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Schedules that failed once, as a failing seed prints them.
#[test]
fn schedules_that_failed_once_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("failures");
    let mut replayed = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let schedule: Schedule = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        let report = run_schedule(schedule);
        assert!(report.violations.is_empty(), "{}: {}", path.display(), describe(&report));
        replayed += 1;
    }
    assert!(replayed > 0);
}

/// A server that has the source of a script does not ask for it: the reply belongs to the command before. The command was sent again,
/// and ran twice.
#[test]
fn no_script_that_comes_twice_repeats_no_command() {
    for seed in 0..10 {
        let faults = vec![Injection { at: Duration::ZERO, fault: Fault::DuplicateNoScript { process: 0 } }];
        let report =
            run_schedule(Schedule { nodes: 1, processes: 1, callers: 1, faults, ..Schedule::of(seed) });
        assert!(report.violations.is_empty(), "{}", describe(&report));
    }
}

#[test]
fn a_seed_does_the_same_in_every_run() {
    for seed in 0..20 {
        let [first, second] = [run(seed), run(seed)];
        assert_eq!((first.trace, first.executed), (second.trace, second.executed), "seed {seed}");
    }
}
