use serde_json::json;

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
    let _ = shell.run(&["block", "add", QUOTA, "user=bob", "--for", "1h"]).fine();
    assert_eq!(listed(&["list", "--blocked"]), ["user=bob"]);
    assert_eq!(listed(&["block", "list"]), ["user=bob"]);
    assert_eq!(listed(&["block", "list", QUOTA]), ["user=bob"]);
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
    let unreachable = Shell::with_store("redis://127.0.0.1:1");
    assert_eq!(unreachable.run(&["explain", QUOTA, "k"]).status, 2);
}
