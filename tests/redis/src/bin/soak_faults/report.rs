//! What a run found: a table of faults, a table of what the processes hold, and what failed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::lanes::Fault;
use crate::worker::{Counted, Held};

/// More than these after the first fifth of the phases is a leak. Connections come and go with the servers that are there.
const MORE_DESCRIPTORS: usize = 6;
const MORE_THREADS: usize = 1;
const MORE_KIB: usize = 12 * 1024;

/// One fault with one key.
pub(crate) struct Phase {
    pub(crate) key: String,
    pub(crate) counted: Counted,
    /// How many requests may be admitted.
    pub(crate) bound: u64,
    /// From the beginning of the fault until the store served every process again; `None` if it never stopped.
    pub(crate) recovered: Option<Duration>,
    /// From the beginning of the fault until the servers were whole.
    pub(crate) lasted: Duration,
    /// Why a process is still not served.
    pub(crate) outage: Option<String>,
    /// Why the store did not decide.
    pub(crate) reasons: BTreeSet<String>,
}

/// What happened in one topology.
pub(crate) struct Report {
    lane: &'static str,
    faults: Vec<(Fault, Vec<Phase>)>,
    /// After each phase, of each process.
    held: Vec<Vec<Held>>,
}

impl Report {
    pub(crate) fn new(lane: &'static str, faults: &[Fault]) -> Self {
        Self { lane, faults: faults.iter().map(|&fault| (fault, Vec::new())).collect(), held: Vec::new() }
    }

    /// Adds a phase, and prints it.
    pub(crate) fn add(&mut self, fault: Fault, phase: Phase, held: Vec<Held>) {
        let Counted { admitted, denied, degraded, slowest_us } = phase.counted;
        println!(
            "{}: {}: {admitted} of at most {} admitted, {denied} denied, {degraded} without the store ({}), slowest {} ms, whole after {:.1?}, served after {:.1?}",
            self.lane,
            fault.name,
            phase.bound,
            phase.reasons.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
            slowest_us / 1000,
            phase.lasted,
            phase.recovered.unwrap_or_default(),
        );
        let of_fault = self.faults.iter_mut().find(|(each, _)| each.name == fault.name);
        of_fault.unwrap().1.push(phase);
        self.held.push(held);
    }

    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for (fault, phases) in &self.faults {
            let place = format!("{}: {}", self.lane, fault.name);
            let without_store: Vec<_> = phases.iter().filter(|phase| phase.counted.degraded > 0).collect();
            if without_store.len() > fault.outages.most(phases.len()) {
                let of_each: Vec<_> = without_store
                    .iter()
                    .map(|phase| {
                        format!("{} with {} ({:?})", phase.counted.degraded, phase.key, phase.reasons)
                    })
                    .collect();
                failures.push(format!("{place}: decisions without the store: {}", of_each.join(", ")));
            }
            for phase in phases {
                let Counted { admitted, denied, .. } = phase.counted;
                if admitted > phase.bound {
                    failures
                        .push(format!("{place}: {admitted} of {} admitted with {}", phase.bound, phase.key));
                }
                if denied == 0 && phase.outage.is_none() {
                    failures.push(format!("{place}: {} was not used up: the bound was not tried", phase.key));
                }
                if let Some(reason) = &phase.outage {
                    failures.push(format!("{place}: still {reason} with {}", phase.key));
                }
            }
        }
        for (what, more, first, last) in self.growth() {
            if last > first + more {
                failures
                    .push(format!("{}: {what}: {first} in the first fifth, {last} at the end", self.lane));
            }
        }
        failures
    }

    /// What the processes held at most in the first fifth of the phases and, at least, in the last three; how much more it may be.
    fn growth(&self) -> [(&'static str, usize, usize, usize); 3] {
        let settled = (self.held.len() / 5).max(3).min(self.held.len());
        let (first, last) = (&self.held[..settled], &self.held[self.held.len().saturating_sub(3)..]);
        let of = |get: fn(&Held) -> usize| {
            let largest = |phase: &Vec<Held>| phase.iter().map(get).max().unwrap_or(0);
            (first.iter().map(largest).max().unwrap_or(0), last.iter().map(largest).min().unwrap_or(0))
        };
        let row = |what, more, (first, last)| (what, more, first, last);
        [
            row("descriptors", MORE_DESCRIPTORS, of(|held| held.descriptors)),
            row("threads", MORE_THREADS, of(|held| held.threads)),
            row("KiB resident", MORE_KIB, of(|held| held.resident_kib)),
        ]
    }
}

/// How many phases kept their bounds and recovered.
pub(crate) fn cases(reports: &[Report]) -> usize {
    let phases = reports.iter().flat_map(|report| &report.faults).flat_map(|(_, phases)| phases);
    phases.filter(|phase| phase.outage.is_none() && phase.counted.admitted <= phase.bound).count()
}

/// Prints both tables and returns what failed.
pub(crate) fn print(reports: &[Report]) -> Vec<String> {
    println!(
        "\n| topology | fault | times | decisions | without the store | most of a key | servers whole after, median | served again after, median | most |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|");
    for report in reports {
        for (fault, phases) in &report.faults {
            let sum = |get: fn(&Counted) -> u64| phases.iter().map(|phase| get(&phase.counted)).sum::<u64>();
            let most = phases.iter().map(|phase| phase.counted.admitted).max().unwrap_or(0);
            let lasted = sorted(phases.iter().map(|phase| phase.lasted));
            let recovered = sorted(phases.iter().map(|phase| phase.recovered.unwrap_or_default()));
            println!(
                "| {} | {} | {} | {} | {} | {most} of {} | {:.1?} | {:.1?} | {:.1?} |",
                report.lane,
                fault.name,
                phases.len(),
                sum(|counted| counted.admitted + counted.denied + counted.degraded),
                sum(|counted| counted.degraded),
                phases.first().map_or(0, |phase| phase.bound),
                lasted[lasted.len() / 2],
                recovered[recovered.len() / 2],
                recovered[recovered.len() - 1],
            );
        }
    }
    println!(
        "\n| topology | what a process holds | at most in the first fifth | at the end |\n|---|---|--:|--:|"
    );
    for report in reports {
        for (what, _, first, last) in report.growth() {
            println!("| {} | {what} | {first} | {last} |", report.lane);
        }
    }
    reports.iter().flat_map(Report::failures).collect()
}

fn sorted(times: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times
}
