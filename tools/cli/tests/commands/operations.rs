use polylimit_test_servers::Row;
use serde_json::json;

use crate::support::Shell;

/// A quota whose window no test outlives.
const QUOTA: &str = "3/day fixed_window";

#[test]
fn operations_spend_and_give_back() {
    let local = format!("local:cli-{}?size=1MiB", std::process::id());
    for shell in [Shell::with_redis(), Shell::with_store(&local)] {
        let (status, decision) = shell.object("decision", &["check", QUOTA, "user=alice"]);
        assert_eq!((status, &decision["remaining"], &decision["source"]), (0, &json!(2), &json!("store")));
        let (status, decision) = shell.object("decision", &["peek", QUOTA, "user=alice", "--cost", "3"]);
        assert_eq!((status, &decision["allowed"], &decision["cause"]), (1, &json!(false), &json!("quota")));
        let (status, usage) = shell.object("usage", &["take", QUOTA, "user=alice", "--cost", "5"]);
        assert_eq!((status, &usage["taken"], &usage["remaining"]), (1, &json!(2), &json!(0)));
        let (status, usage) = shell.object("usage", &["refund", QUOTA, "user=alice", "--cost", "2"]);
        assert_eq!((status, &usage["remaining"]), (0, &json!(2)));
        let (status, usage) = shell.object("usage", &["charge", QUOTA, "user=alice", "--cost", "9"]);
        assert_eq!((status, &usage["remaining"], &usage["taken"]), (0, &json!(0), &json!(0)));
        let (status, reset) = shell.object("reset", &["reset", QUOTA, "user=alice", "user=bob"]);
        assert_eq!((status, &reset["reset"]), (0, &json!(2)));
        assert_eq!(shell.object("decision", &["peek", QUOTA, "user=alice"]).1["remaining"], 3);
        let (_, decision) = shell.object("decision", &["check", &format!("{QUOTA}; 5/hour"), "b"]);
        assert_eq!(decision["quotas"].as_array().unwrap().len(), 2);
    }
    let _ = std::fs::remove_file(format!(
        "/dev/shm/polylimit-{}-cli-{}",
        nix::unistd::getuid(),
        std::process::id()
    ));
}

#[test]
fn answers_are_written_for_people() {
    let shell = Shell::with_redis();
    let checked = shell.run(&["check", QUOTA, "k", "--cost", "3"]);
    assert!(checked.output.starts_with("allowed\n  3/day fixed_window: 0 of 3 left, all in "), "{checked:?}");
    let denied = shell.run(&["check", QUOTA, "k"]);
    assert!(denied.status == 1 && denied.output.starts_with("denied (quota), again in "), "{denied:?}");
    let both = shell.run(&["check", "3/day fixed_window; 1/hour", "k", "--cost", "2"]);
    let lines: Vec<&str> = both.output.lines().collect();
    assert!(lines[2].ends_with(": denies") && !lines[1].ends_with(": denies"), "{both:?}");
    let never = shell.run(&["check", QUOTA, "k", "--cost", "4"]);
    assert!(never.output.starts_with("denied (quota), no wait helps\n"), "{never:?}");
    assert_eq!(shell.run(&["take", QUOTA, "k", "--cost", "0"]).fine().lines().next(), Some("took 0 of 0"));
    let quiet = shell.run(&["check", QUOTA, "k", "--quiet"]);
    assert_eq!((quiet.status, &*quiet.output, &*quiet.errors), (1, "", ""));
}

#[test]
fn policies_of_a_file_are_known_by_name() {
    for shell in [Shell::with_store("memory:"), Shell::with_redis()] {
        shell.file("limits.toml", "polylimit = 1\n[policies.api]\nquotas = '7/day fixed_window'\n");
        let (status, decision) =
            shell.object("decision", &["check", "api", "k", "--policies", "limits.toml"]);
        assert_eq!((status, &decision["policy"], &decision["remaining"]), (0, &json!("api"), &json!(6)));
    }
}

#[cfg(unix)]
#[test]
fn keys_are_bytes() {
    use std::os::unix::ffi::OsStrExt as _;
    let shell = Shell::with_store("memory:");
    let mut command = shell.command(&["check", QUOTA, "--json"]);
    let output = command
        .arg(std::ffi::OsStr::from_bytes(b"\xff\x00x".split(|byte| *byte == 0).next().unwrap()))
        .output();
    let decision: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    assert_eq!(decision["key_base64"], "/w==");
    assert!(decision.get("key").is_none());
}

#[test]
fn store_stands_in_a_file() {
    let shell = Shell::new();
    shell.file("url", "memory:\n");
    assert_eq!(shell.run(&["--store", "@url", "check", QUOTA, "k", "--quiet"]).fine(), "");
    shell.run(&["--store", "@none", "check", QUOTA, "k"]).fails(64, "\"none\"");
}

#[test]
fn cost_that_is_no_number_of_units_is_refused() {
    let shell = Shell::with_redis();
    let costs = ["-1", "NaN", "1e308", "18446744073709551616", "1000000000001", "0.5", "inf", ""];
    for cost in costs {
        for operation in ["check", "peek", "take", "charge", "refund"] {
            let ran = shell.run(&[operation, QUOTA, "k", &format!("--cost={cost}")]);
            assert!(
                ran.status == 64 && ran.output.is_empty() && ran.errors.contains("cost"),
                "{cost}: {ran:?}"
            );
        }
    }
    assert_eq!(shell.object("decision", &["peek", QUOTA, "k"]).1["remaining"], 3);
    Row::new("S4", "the command line").measured(format!("{} costs: status 64", costs.len())).record();
}
