//! What has to hold under faults, for many seeds, for seeds that once failed, and the same in every run of a seed.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use polylimit_fault_simulation::run::{run, run_schedule};
use polylimit_fault_simulation::schedule::{Fault, Schedule};
use polylimit_fault_simulation::seeds::{describe, run_all};

/// Seeds that found one of the deliberate defects in `mutations`.
const REGRESSIONS: [u64; 11] = [0, 2, 3, 9, 10, 17, 20, 31, 78, 214, 238];

/// A debug build takes about 130 ms of processor time for each.
const SEEDS: u64 = 300;
const THREADS: usize = 2;

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

#[test]
fn seeds_that_failed_once_hold() {
    for seed in REGRESSIONS {
        let report = run(seed);
        assert!(report.violations.is_empty(), "{}", describe(&report));
    }
}

/// A server that has the source of a script does not ask for it: the reply belongs to the command before. The command was sent again,
/// and ran twice.
#[test]
fn no_script_that_comes_twice_repeats_no_command() {
    for seed in 0..10 {
        let faults = vec![(Duration::ZERO, Fault::DuplicateNoScript { process: 0 })];
        let report = run_schedule(Schedule { processes: 1, callers: 1, faults, ..Schedule::of(seed) });
        assert!(report.violations.is_empty(), "{}", describe(&report));
    }
}

#[test]
fn a_seed_does_the_same_in_every_run() {
    for seed in 0..10 {
        let [first, second] = [run(seed), run(seed)];
        assert_eq!((first.trace, first.executed), (second.trace, second.executed), "seed {seed}");
    }
}
