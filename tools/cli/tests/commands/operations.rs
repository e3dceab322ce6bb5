use polylimit_test_servers::Row;
use serde_json::{Value, json};

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

#[test]
fn audit_log_has_each_change_of_a_key() {
    let shell = Shell::with_redis();
    let audited = |arguments: &[&str]| {
        let mut all = vec!["--audit-log", "audit.jsonl"];
        all.extend_from_slice(arguments);
        shell.run(&all).fine()
    };
    for key in ["user=a", "user=b"] {
        let _ = shell.run(&["check", "3/hour", key]).fine();
    }
    audited(&["check", "3/hour", "user=a"]);
    audited(&["reset", "3/hour", "user=a", "user=b", "--why", "support\nticket", "--by", "anna"]);
    audited(&["block", "add", "3/hour", "user=a", "--for", "15m", "--why", "scan"]);
    audited(&["block", "remove", "3/hour", "user=a"]);
    let _ = shell.run(&["check", "3/hour", "user=b"]).fine();
    audited(&["reset", "3/hour", "--prefix", "user=", "--yes"]);

    let text = std::fs::read_to_string(shell.folder().join("audit.jsonl")).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = records.iter().map(|record| record["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["key_reset", "key_reset", "key_blocked", "key_unblocked", "keys_reset"]);
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    assert_eq!(records[0]["by"], format!("{user} (anna)"));
    assert_eq!((&records[0]["key"], &records[0]["why"]), (&json!("user=a"), &json!("support\nticket")));
    assert_eq!((&records[1]["key"], &records[1]["policy"]), (&json!("user=b"), &json!("3|hour")));
    assert_eq!((&records[2]["for_us"], &records[2]["why"]), (&json!("900000000"), &json!("scan")));
    assert_eq!((&records[3]["for_us"], &records[3]["why"]), (&Value::Null, &Value::Null));
    assert_eq!((&records[4]["prefix"], &records[4]["keys"]), (&json!("user="), &json!(1)));
    assert!(records.iter().all(|record| record["level"] == "info" && record["time"].is_string()));

    // What cannot be recorded is not done.
    let _ = shell.run(&["check", "1/hour", "k"]).fine();
    shell.run(&["--audit-log", "none/audit.jsonl", "reset", "1/hour", "k"]).fails(64, "none/audit.jsonl");
    assert_eq!(shell.run(&["check", "1/hour", "k"]).status, 1);
}
