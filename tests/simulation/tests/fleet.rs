//! The fleet: every example of docs/fleet.md in a small form, and what has to hold of each run.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a run that fails has to fail the test"
)]

use std::time::Duration;

use clap::Parser;
use polylimit_fault_simulation::fleet::arguments::Arguments;
use polylimit_fault_simulation::fleet::report::Report;
use polylimit_fault_simulation::fleet::run;

const PAGE: &str = include_str!("../../../docs/fleet.md");
const COMMAND: &str = "cargo run --profile simulation -p polylimit-fault-simulation --bin fleet -- ";
/// The most processes of the small form.
const PROCESSES: u32 = 20;
/// The longest small form of a run without events.
const LASTS: Duration = Duration::from_millis(500);

/// Runs arguments in a small form: fewer processes, as much less traffic, and no longer than a time if there are no events.
fn small(arguments: &str, lasts: Duration) -> Vec<Report> {
    let words = words(arguments);
    let mut parsed = Arguments::try_parse_from(std::iter::once("fleet".to_owned()).chain(words)).unwrap();
    parsed.settings().unwrap();
    let factor = f64::from(PROCESSES) / f64::from(parsed.processes.max(PROCESSES));
    parsed.processes = parsed.processes.min(PROCESSES);
    parsed.sweep = None;
    parsed.refunds = (f64::from(parsed.refunds) * factor).ceil() as u32;
    if parsed.events.is_empty() {
        parsed.lasts = parsed.lasts.min(lasts);
    }
    let (clients, rest) = parsed.traffic.split_once(' ').unwrap();
    parsed.traffic = format!("{} {rest}", (clients.parse::<f64>().unwrap() * factor).ceil());
    parsed.settings().unwrap().iter().map(|settings| run(settings).unwrap()).collect()
}

/// The words of a command line, where single quotes hold a word together.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(number, part)| -> Vec<String> {
            if number % 2 == 1 {
                vec![part.into()]
            } else {
                part.split_whitespace().map(Into::into).collect()
            }
        })
        .collect()
}

fn check(arguments: &str, report: &Report) {
    assert!(report.decisions > 50, "{arguments}: {report:?}");
    assert!(report.excess_units <= report.most_excess_units, "{arguments}: {report:?}");
    let processes = report.processes as u64;
    assert!(report.connections_most <= 2 * processes, "one for decisions and one for messages: {report:?}");
    assert!(report.listeners_most <= processes, "{arguments}: {report:?}");
    // The formula leaves out handshakes, subscriptions, and takes and returns of leases.
    let others = report.other_commands as f64 / report.seconds / 1e4;
    let taken = report.percent("lease") > 0.0;
    assert!(report.formula_cpu_percent <= report.server_cpu_percent * 1.001, "{arguments}: {report:?}");
    let rest = report.server_cpu_percent - report.formula_cpu_percent - others;
    // Operations without an answer by their deadline ran at the server as well.
    let unanswered = report.most_excess_units > 0;
    assert!(taken || unanswered || rest <= report.server_cpu_percent * 0.05, "{arguments}: {report:?}");
}

#[test]
fn every_example_of_the_page_holds_in_a_small_form() {
    let examples: Vec<&str> = PAGE.lines().filter_map(|line| line.strip_prefix(COMMAND)).collect();
    assert!(examples.len() >= 6, "{examples:?}");
    for arguments in examples {
        for report in small(arguments, LASTS) {
            check(arguments, &report);
        }
    }
}

#[test]
fn same_seed_gives_the_same_figures() {
    let figures = || {
        let mut reports = small(
            "--traffic '200 clients 5/s poisson' --refunds 20 --for 2s --seed 7 --policy 'api=100/minute'",
            Duration::MAX,
        );
        let report = reports.pop().unwrap();
        (report.sources, report.calls, report.messages, report.latency_p99_us, report.admitted_units.sum)
    };
    assert_eq!(figures(), figures());
}

#[test]
fn messages_reach_only_processes_that_have_denied_a_key_of_the_channel() {
    // Most requests are denied, so every process has denied keys.
    let arguments =
        "--processes 20 --traffic '200 clients 2/s poisson' --policy 'api=1/minute' --refunds 100 --for 4s";
    let report = small(arguments, Duration::MAX).pop().unwrap();
    check(arguments, &report);
    assert!(report.published >= 300 && report.listeners_most == 20, "{report:?}");
    let to_all = report.published * report.listeners_most;
    assert!(report.messages > 0 && report.messages < to_all, "{report:?}");
    assert!(report.server_cpu_percent < report.one_channel_cpu_percent, "{report:?}");
}

#[test]
fn fleet_recovers_from_an_outage_within_its_bound() {
    let arguments = "--processes 20 --traffic '50 clients 20/s poisson' --policy 'api=600/minute' --events 'redis down 2s..4s' --for 8s";
    let report = small(arguments, Duration::MAX).pop().unwrap();
    check(arguments, &report);
    assert!(report.percent("fallback") > 5.0 && report.percent("store") > 50.0, "{report:?}");
    // The breaker waits 800 ms at most, and 200 ms pass between attempts to connect.
    assert!(report.recovered_after_ms.iter().all(|ms| *ms <= 1_250.0), "{report:?}");
    assert_eq!(report.recovered_after_ms.len(), 1);
}

#[test]
fn process_holds_a_second_connection_once_it_has_denied_a_key() {
    let connections = |policy: &str| {
        let arguments =
            format!("--processes 20 --traffic '100 clients 10/s' --policy 'api={policy}' --for 1s");
        let report = small(&arguments, Duration::MAX).pop().unwrap();
        (report.connections_most, report.listeners_most)
    };
    assert_eq!(connections("1000/minute"), (20, 0));
    assert_eq!(connections("1/minute"), (40, 20));
}

#[test]
fn fewer_processes_with_the_same_traffic_cost_the_server_less() {
    // As two hosts with a server each, and as their processes.
    let report = |processes: u32| {
        let arguments = format!("--processes {processes} --traffic '1000 clients 50/s poisson' --for 400ms");
        let report = small(&arguments, Duration::MAX).pop().unwrap();
        check(&arguments, &report);
        report
    };
    let (hosts, processes) = (report(2), report(20));
    assert_eq!((hosts.connections_most, processes.connections_most), (2, 20));
    assert!(hosts.decision_server_us < 0.8 * processes.decision_server_us, "{hosts:?} {processes:?}");
    assert!(hosts.server_cpu_percent < 0.8 * processes.server_cpu_percent, "{hosts:?} {processes:?}");
}

#[test]
fn denial_caches_of_fewer_processes_know_more() {
    let known = |processes: u32| {
        let arguments = format!("--processes {processes} --traffic '20 clients 100/s poisson' --for 3s");
        let report = small(&arguments, Duration::MAX).pop().unwrap();
        check(&arguments, &report);
        report.percent("denial_cache")
    };
    let (few, many) = (known(2), known(20));
    assert!(few > 50.0 && many < few - 5.0, "{few} {many}");
}

#[test]
fn leases_save_calls_only_for_keys_that_a_process_asks_for_often() {
    let report = |processes: u32, lease: &str| {
        let arguments = format!(
            "--processes {processes} --policy 'api=60000/minute token_bucket' --traffic '2 clients 200/s poisson' --for 3s {lease}"
        );
        small(&arguments, Duration::MAX).pop().unwrap()
    };
    let (without, with, rare) = (report(2, ""), report(2, "--lease auto"), report(20, "--lease auto"));
    assert!(with.percent("lease") > 80.0 && with.calls < without.calls / 2, "{with:?} {without:?}");
    assert!(rare.percent("lease") < with.percent("lease"), "{rare:?}");
}
