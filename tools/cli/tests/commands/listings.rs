use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::{Limiter, Policy};
use serde_json::{Value, json};

use crate::support::Shell;

const QUOTA: &str = "3/day fixed_window";

fn shell() -> Shell {
    let shell = Shell::with_redis();
    for (key, cost) in [("user=alice", "3"), ("user=bob", "1"), ("guest", "2")] {
        let _ = shell.run(&["check", QUOTA, key, "--cost", cost]).fine();
    }
    shell
}

#[test]
fn keys_are_listed_by_prefix_and_use() {
    let shell = shell();
    let listed = |arguments: &[&str]| {
        let (status, keys) = shell.json("listed_key", arguments);
        let mut names: Vec<_> = keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect();
        names.sort();
        assert_eq!(status, 0);
        names
    };
    assert_eq!(listed(&["list"]), ["guest", "user=alice", "user=bob"]);
    assert_eq!(listed(&["list", QUOTA, "--prefix", "user="]), ["user=alice", "user=bob"]);
    assert_eq!(listed(&["list", "--used", "60"]), ["guest", "user=alice"]);
    assert_eq!(listed(&["list", "--most", "1"]).len(), 1);
    assert!(shell.run(&["list", "--most", "2"]).errors.contains("there are more: raise --most"));
    assert_eq!(shell.run(&["list", "--most", "3"]).errors, "");
    for command in ["list", "top"] {
        let run = shell.run(&[command, "--json", "--examine", "1"]);
        // A server goes over more keys at a time than it is asked to.
        assert_eq!(run.status == 2, run.errors.contains("raise --examine"), "{run:?}");
    }
    let _ = shell.run(&["block", "add", QUOTA, "user=bob", "--for", "1h"]).fine();
    assert_eq!(listed(&["list", "--blocked"]), ["user=bob"]);
    assert_eq!(listed(&["block", "list"]), ["user=bob"]);
    assert_eq!(listed(&["block", "list", QUOTA]), ["user=bob"]);
    assert!(!shell.run(&["list", "--blocked"]).fine().contains('%'));
    let (_, top) = shell.json("listed_key", &["top", "--most", "2", "--prefix", "user="]);
    assert_eq!((top.len(), &top[0]["used_percent"]), (2, &json!(100)));
    let shown = shell.run(&["list", "--prefix", "user=a"]).fine();
    assert!(shown.contains("user=alice") && shown.contains("100%"), "{shown}");
}

#[test]
fn denials_are_explained() {
    let shell = shell();
    let (status, explained) = shell.object("explanation", &["explain", QUOTA, "user=alice"]);
    assert_eq!(
        (status, &explained["cause"], &explained["quotas"][0]["admits"]),
        (1, &json!("quota"), &json!(false))
    );
    let shown = shell.run(&["explain", QUOTA, "user=bob"]).fine();
    assert!(shown.starts_with("allowed\n  3/day fixed_window: ") && shown.ends_with(": admits\n"), "{shown}");
    let denied = shell.run(&["explain", "3/day fixed_window; 2/hour", "user=new", "--cost", "3"]);
    assert!(denied.output.starts_with("denied (quota), no wait helps\n"), "{denied:?}");
    assert!(
        denied.output.ends_with(
            ": admits\n  2/hour: 0 of 2 in the last 1h, counted in 10 parts: denies, no wait helps\n"
        ),
        "{denied:?}"
    );
    let unreachable = Shell::with_store("redis://127.0.0.1:1");
    assert_eq!(unreachable.run(&["explain", QUOTA, "k"]).status, 2);
}

const DOCUMENT: &str = r#"
polylimit = 1
[policies.api]
quotas = "3/day fixed_window"
plans = { gold = "9/day fixed_window" }
overrides = { "user=big" = "5/day fixed_window", "user=gold" = "gold" }
penalty = { denials = 3, within = "1h", block = "10m" }
[policies.shadow]
quotas = "1/day fixed_window"
mode = "shadow"
[policies.off]
quotas = "1/day fixed_window"
mode = "off"
[policies.elastic]
quotas = "1/day fixed_window"
elastic = { policy = "pool", key = "all" }
[policies.pool]
quotas = "2/day fixed_window"
"#;

/// Each part of an explanation is printed where it has a content, each in a line of its own.
#[test]
fn explanations_tell_what_the_configuration_says() {
    let shell = Shell::with_redis();
    shell.file("limits.toml", DOCUMENT);
    let run = |arguments: &[&str]| shell.run(&[arguments, &["--policies", "limits.toml"]].concat());
    let explain = |policy: &str, key: &str| {
        let explained = run(&["explain", policy, key]);
        let lines: Vec<String> = explained.output.lines().map(str::to_owned).collect();
        (explained.status, lines)
    };
    let has = |(status, lines): &(i32, Vec<String>), expected: i32, parts: &[&str]| {
        assert_eq!(*status, expected, "{lines:#?}");
        for part in parts {
            assert!(lines.iter().any(|line| line.contains(part)), "{part} is missing: {lines:#?}");
        }
    };
    for _ in 0..2 {
        for policy in ["api", "shadow", "elastic"] {
            let _ = run(&["check", policy, "k", "--cost", if policy == "api" { "3" } else { "1" }]);
        }
    }
    has(
        &explain("api", "k"),
        1,
        &[
            "denied (quota), again in ",
            ": denies for ",
            "  penalty: 1 of 3 denials count, the next block is for 10m",
        ],
    );
    has(&explain("shadow", "k"), 0, &["allowed (quota), since the policy is in shadow", "  mode: shadow"]);
    has(&explain("off", "k"), 0, &["allowed (off)", "  mode: off"]);
    has(
        &explain("elastic", "k"),
        0,
        &[
            "allowed by the pool",
            ": denies for ",
            "  pool pool all: allowed",
            "    2/day fixed_window: 1 of 2",
        ],
    );
    has(&explain("api", "user=big"), 0, &["  5/day fixed_window: ", "  quotas by override"]);
    has(
        &explain("api", "user=gold"),
        0,
        &["  9/day fixed_window: ", "  quotas of the plan gold, by override"],
    );
    let _ = run(&["deny", "add", "key", "api", "bad", "--for", "1h", "--by", "anna", "--why", "scan"]).fine();
    has(
        &explain("api", "bad"),
        1,
        &["denied (deny_list), again in ", "  deny key api bad until ", ", by anna: scan"],
    );
    has(&explain("api", "bad"), 1, &["  by store+file:limits.toml, version "]);
}

/// Limiters of this process report to the store; the program reads what they report.
#[test]
fn reports_of_processes_are_shown() {
    let shell = Shell::with_redis();
    let told = shell.run(&["stats", "--fleet"]);
    assert!(told.status == 0 && told.output.is_empty(), "{told:?}");
    assert!(told.errors.contains("no process reports to this store: build limiters with the option report"));
    let url = format!("{}?deadline=5s", shell.server().url());
    let limiters = [3, 5].map(|denied_after| {
        let policy = Policy::parse("api", &format!("{denied_after}/day fixed_window")).unwrap();
        let builder = Limiter::builder().store(&url).policy(policy).observe_keys(64);
        builder.report(Duration::from_secs(1)).build().unwrap()
    });
    for (limiter, key) in limiters.iter().zip(["mallory", "trudy"]) {
        for _ in 0..400 {
            let _ = limiter.blocking().check(key).unwrap();
        }
    }
    let since = Instant::now();
    let processes = loop {
        let (status, processes) = shell.json("process", &["stats", "--fleet"]);
        assert_eq!(status, 0);
        let decided = |process: &Value| {
            let of = |name: &str| process["policies"][0][name].as_u64().unwrap_or(0);
            of("allowed") + of("denied")
        };
        if processes.len() == 2 && processes.iter().map(decided).sum::<u64>() == 800 {
            break processes;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{processes:#?}");
        sleep(Duration::from_millis(50));
    };
    for process in &processes {
        assert_eq!((&process["pid"], &process["store_up"]), (&json!(std::process::id()), &json!(true)));
    }
    let shown = shell.run(&["stats", "--fleet"]).fine();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.len() == 3 && lines[0].trim_start().starts_with("host"), "{shown}");
    assert!(lines[1].contains("answers") && lines[1].contains(&std::process::id().to_string()), "{shown}");

    let (status, denied) = shell.json("denied_key", &["top", "--denied"]);
    let mut keys: Vec<_> = denied.iter().map(|denied| denied["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!((status, keys), (0, vec!["mallory", "trudy"]), "{denied:?}");
    // One of 16 denials is counted.
    assert!(denied.iter().all(|denied| denied["count"].as_u64() > Some(100)), "{denied:?}");
    assert_eq!(shell.json("denied_key", &["top", "--denied", "--most", "1"]).1.len(), 1);
    let shown = shell.run(&["top", "--denied"]).fine();
    assert!(shown.lines().count() == 3 && shown.contains("mallory"), "{shown}");
    shell.run(&["top", "api", "--denied"]).fails(64, "cannot be used with");
}
