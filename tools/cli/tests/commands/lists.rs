use serde_json::json;

use crate::support::Shell;

const DOCUMENT: &str = "polylimit = 1\n[policies.api]\nquotas = '7/day fixed_window'\n[lists]\n\
                        deny = ['client 203.0.113.0/24 until 2099-01-01T00:00:00Z']\nallow = ['user monitoring']\n";

fn shell() -> Shell {
    let shell = Shell::with_redis();
    shell.file("limits.toml", DOCUMENT);
    let _ = shell.run(&["policies", "put", "limits.toml", "--expect", "0", "--why", "test"]).fine();
    shell
}

#[test]
fn items_are_added_listed_and_removed() {
    let shell = shell();
    let add = ["deny", "add", "key", "api", "user=alice", "--for", "1h", "--why", "scan", "--by", "anna"];
    let (status, change) = shell.object("entry_change", &add);
    assert_eq!(
        (status, &change["entry"], &change["version"]),
        (0, &json!("deny key api user=alice"), &json!(2))
    );
    let (status, decision) = shell.object("decision", &["check", "api", "user=alice"]);
    assert_eq!(
        (status, &decision["cause"], &decision["source"]),
        (1, &json!("deny_list"), &json!("configuration"))
    );
    let waits_us = decision["retry_after_us"].as_u64().unwrap();
    assert!((3_500_000_000..=3_602_000_000).contains(&waits_us), "{waits_us}");

    let _ = shell.run(&["allow", "add", "key", "api", "user=alice"]).fine();
    let (status, decision) = shell.object("decision", &["check", "api", "user=alice"]);
    assert_eq!((status, &decision["cause"]), (0, &json!("allow_list")));

    let (_, denied) = shell.json("item", &["deny", "list"]);
    let told: Vec<_> = denied.iter().map(|item| (&item["item"], &item["origin"], &item["by"])).collect();
    let network = (&json!("client 203.0.113.0/24"), &json!("document"), &json!(null));
    assert_eq!(told, [network, (&json!("key api user=alice"), &json!("entry"), &json!("anna"))]);
    assert_eq!((&denied[0]["until"], &denied[1]["why"]), (&json!("2099-01-01T00:00:00Z"), &json!("scan")));
    let written = shell.run(&["allow", "list"]).fine();
    assert!(written.contains("user monitoring") && written.contains("key api user=alice"), "{written}");

    let _ = shell.run(&["allow", "remove", "key api user=alice", "--why", "over"]).fine();
    shell.run(&["allow", "remove", "key", "api", "user=alice"]).fails(1, "there is no entry");
    assert_eq!(shell.object("decision", &["check", "api", "user=alice"]).1["cause"], "deny_list");
    let (_, history) = shell.json("history", &["policies", "history"]);
    assert_eq!((&history[0]["by"], &history[0]["why"]), (&json!("tester"), &json!("over")));
    assert_eq!(history[0]["entries"], json!([["allow key api user=alice", null]]));
    assert_eq!((&history[2]["by"], &history[2]["why"]), (&json!("anna"), &json!("scan")));
    assert!(shell.run(&["policies", "history"]).fine().contains("removed allow key api user=alice"));
}

#[test]
fn wrong_items_are_refused() {
    let shell = shell();
    shell.run(&["deny", "add", "client", "203.0.113.0/33"]).fails(64, "203.0.113.0/33");
    shell.run(&["deny", "add", "nothing"]).fails(64, "allowed are client NETWORK");
    shell.run(&["deny", "add", "key", "search", "k"]).fails(64, "there is no policy \"search\"");
    shell.run(&["deny", "add", "user", "mallory", "--for", "0s"]).fails(64, "'0s'");
}

#[test]
fn lists_beside_the_document_of_a_file_are_used() {
    let shell = Shell::with_redis();
    shell.file("limits.toml", DOCUMENT);
    let with_file = |arguments: &[&str]| shell.run(&[arguments, &["--policies", "limits.toml"]].concat());
    let _ = with_file(&["deny", "add", "key", "api", "k"]).fine();
    assert!(with_file(&["deny", "list"]).fine().contains("key api k"));
    assert_eq!(with_file(&["check", "api", "k"]).status, 1);
    let _ = with_file(&["deny", "remove", "key", "api", "k"]).fine();
    assert_eq!(with_file(&["check", "api", "k"]).status, 0);
    let in_memory = Shell::with_store("memory:");
    in_memory.file("limits.toml", DOCUMENT);
    in_memory.run(&["deny", "list", "--policies", "limits.toml"]).fails(64, "has no entries");
}

#[test]
fn keys_are_blocked_for_a_time() {
    let shell = Shell::with_redis();
    let (status, block) = shell.object("block", &["block", "add", "7/day", "k", "--for", "15m"]);
    assert_eq!((status, &block["key"]), (0, &json!("k")));
    assert!(block["reset_after_us"].as_u64().unwrap() > 800_000_000, "{block}");
    let (status, decision) = shell.object("decision", &["check", "7/day", "k"]);
    assert_eq!((status, &decision["cause"]), (1, &json!("blocked")));
    assert_eq!(shell.run(&["block", "remove", "7/day", "k"]).fine(), "the key is not blocked\n");
    assert_eq!(shell.run(&["check", "7/day", "k"]).status, 0);
    shell.run(&["block", "add", "7/day", "k"]).fails(64, "--for");
}
