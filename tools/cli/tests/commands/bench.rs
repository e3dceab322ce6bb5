use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::Shell;

#[test]
fn stores_are_measured() {
    for shell in [Shell::with_redis(), Shell::with_store("memory:")] {
        let arguments =
            ["bench", "3/hour", "--seconds", "1", "--keys", "20", "--zipf", "1", "--callers", "4"];
        let (status, report) = shell.object("bench", &arguments);
        assert_eq!(
            (status, &report["undecided"], &report["not_started"]),
            (0, &0.into(), &0.into()),
            "{report}"
        );
        let number = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(number("checks"), number("allowed") + number("denied"));
        // Each key admits three, and no other key was asked for.
        assert!(number("allowed") <= 3 * number("keys_reset") && number("keys_reset") <= 20, "{report}");
        let us = |name: &str| report["latency"][name].as_f64().unwrap();
        assert!(
            us("p50_us") > 0.0 && us("p50_us") <= us("p99_us") && us("p99_us") <= us("max_us"),
            "{report}"
        );
    }
}

#[test]
fn nothing_is_left_behind() {
    let shell = Shell::with_redis();
    let _ = shell.run(&["bench", "1000/s", "--seconds", "1", "--keys", "50"]).fine();
    let keys: Vec<String> = shell.server().query(&["KEYS", "polylimit:*"]);
    assert!(keys.is_empty(), "{keys:?}");
}

#[test]
fn nothing_is_left_behind_after_an_interrupt() {
    let shell = Shell::with_redis();
    let mut bench = shell.command(&["bench", "1000/s", "--seconds", "60", "--keys", "50"]);
    let mut bench = bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let keys = || -> Vec<String> { shell.server().query(&["KEYS", "polylimit:*"]) };
    while keys().is_empty() {
        sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(i32::try_from(bench.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(bench.wait().unwrap().code(), Some(2));
    assert!(keys().is_empty(), "{:?}", keys());
}

#[test]
fn checks_of_a_rate_start_at_even_times() {
    let shell = Shell::with_store("memory:");
    let (status, report) = shell.object("bench", &["bench", "5/day", "--seconds", "1", "--rate", "200"]);
    let started = report["checks"].as_u64().unwrap();
    let not_started = report["not_started"].as_u64().unwrap();
    assert_eq!((status, started + not_started), (0, 200), "{report}");
    assert!(report["rate"] == 200 && started > 100, "{report}");
    let written = shell.run(&["bench", "5/day", "--seconds", "1", "--rate", "10"]).fine();
    assert!(written.contains("from the intended start") && written.contains("p99.9"), "{written}");
}

#[test]
fn store_that_is_away_leaves_checks_undecided() {
    let shell = Shell::with_store("redis://127.0.0.1:1");
    let (status, report): (i32, Value) =
        shell.object("bench", &["bench", "5/day", "--seconds", "1", "--rate", "20"]);
    assert_eq!((status, &report["allowed"]), (2, &0.into()), "{report}");
    assert!(report["undecided"].as_u64() > Some(0), "{report}");
}
