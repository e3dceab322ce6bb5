use std::net::TcpListener;
use std::process::Stdio;

use crate::support::{Ran, Shell};

const LIMITS: &str = "polylimit = 1\n[policies.api]\nquotas = '7/day'\n";

/// Every command that takes a policy, with this one.
fn commands_with(policy: &str) -> Vec<Vec<&str>> {
    let mut commands: Vec<Vec<&str>> = ["check", "peek", "take", "charge", "refund", "reset", "explain"]
        .map(|command| vec![command, policy, "k"])
        .into();
    commands.extend([
        vec!["reset", policy, "--prefix", "k", "--yes"],
        vec!["list", policy],
        vec!["top", policy],
        vec!["block", "add", policy, "k", "--for", "1m"],
        vec!["block", "remove", policy, "k"],
        vec!["block", "list", policy],
        vec!["bench", policy, "--seconds", "1"],
    ]);
    commands
}

const MINIMAL_RIGHTS: &[&str] = &[
    "ACL",
    "SETUSER",
    "limits",
    "on",
    ">secret",
    "~polylimit:1:[^{]*",
    "resetchannels",
    "-@all",
    "+evalsha",
    "+eval",
    "+time",
    "+get",
    "+mget",
    "+set",
    "+setrange",
    "+del",
];

#[test]
fn wrong_usage_is_told() {
    let shell = Shell::new();
    for (arguments, about) in [
        (&[][..], "Usage: polylimit"),
        (&["chek", "1/s", "k"], "unrecognized subcommand 'chek'"),
        (&["check", "1/s"], "<KEY>"),
        (&["check", "1/s", "k", "--cost", "many"], "invalid value 'many' for '--cost"),
        (&["check", "1/s", "k"], "no store is named"),
        (&["--store", "redis://:secret@localhost", "doctor"], "POLYLIMIT_STORE"),
        (&["--store", "mysql://localhost", "doctor"], "begins with \"mysql\""),
        (&["--store", "memory:", "check", "1/fortnight", "k"], "fortnight"),
        (&["--store", "memory:", "check", "api", "k"], "--policies FILE"),
        (&["--store", "memory:", "policies", "get"], "published in Redis"),
        (&["--store", "memory:", "block", "add", "1/s", "k", "--for", "soon"], "'soon'"),
        (
            &["--store", "memory:", "check", "1/s", "k", "--cost", "1000000000001"],
            "allowed is 0 to 1000000000000",
        ),
        (&["--store", "memory:", "bench", "1/s", "--zipf", "9"], "--zipf is 9"),
        (&["policies", "diff"], "no document is named"),
        (&["policies", "validate", "none.toml"], "none.toml"),
        (&["man", "nothing"], "polylimit has no command \"nothing\": there are check, "),
        (&["man", "policies", "nothing"], "polylimit policies has no command \"nothing\": there are get, "),
        (&["man", "check", "nothing"], "polylimit check has no command \"nothing\": there are none"),
    ] {
        shell.run(arguments).fails(64, about);
    }
}

#[test]
fn bad_documents_are_told_with_their_place() {
    let shell = Shell::with_store("memory:");
    shell.file("bad.toml", "polylimit = 1\n[policies.api]\nquotas = '2/minuet'\n");
    shell.file("good.toml", "polylimit = 1\n[policies]\n");
    shell.run(&["check", "api", "k", "--policies", "bad.toml"]).fails(64, "line 3, column 10");
    shell.run(&["policies", "diff", "bad.toml", "good.toml"]).fails(64, "bad.toml: line 3");
    let validated = shell.run(&["policies", "validate", "good.toml", "bad.toml"]);
    assert_eq!(validated.status, 1);
    assert!(validated.output.starts_with("good.toml: fine\nbad.toml: line 3, column 10: "), "{validated:?}");
    let (status, lines) = shell.json("validity", &["policies", "validate", "good.toml", "bad.toml"]);
    assert_eq!((status, &lines[0]["valid"], &lines[1]["valid"]), (1, &true.into(), &false.into()));
}

#[test]
fn policies_that_are_not_there_are_told_by_every_command() {
    for shell in [Shell::with_store("memory:"), Shell::with_redis()] {
        shell.file("limits.toml", LIMITS);
        for arguments in commands_with("search") {
            let ran = shell.run(&[&["--policies", "limits.toml"], &arguments[..]].concat());
            ran.fails(64, "there is no policy \"search\" in the document of ");
            assert!(ran.errors.contains("limits.toml: it has api; quotas such as 100/minute"), "{ran:?}");
        }
    }
    #[cfg(feature = "simulate")]
    {
        let shell = Shell::new();
        shell.file("limits.toml", LIMITS);
        let simulate =
            ["--policies", "limits.toml", "simulate", "--policy", "search", "--traffic", "1 client 1/s"];
        shell.run(&simulate).fails(64, "the document has no policy \"search\": allowed is --policy api");
    }
}

#[test]
fn store_that_is_away_decides_nothing() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let shell = Shell::with_store(&format!("redis://127.0.0.1:{port}"));
    let checked = shell.run(&["check", "5/s", "k"]);
    assert_eq!(checked.status, 2, "{checked:?}");
    assert!(
        checked.output.contains("source: fallback") && checked.errors.contains("unreachable"),
        "{checked:?}"
    );
    shell.run(&["check", "api", "k"]).fails(2, "cannot be reached");
    shell.run(&["policies", "get"]).fails(2, "cannot be reached");
    shell.file("limits.toml", LIMITS);
    for arguments in [
        &["stats"][..],
        &["stats", "--policies", "limits.toml"],
        &["stats", "--fleet"],
        &["top", "--denied"],
        &["list", "5/s"],
        &["top", "5/s"],
        &["explain", "5/s", "k"],
        &["reset", "5/s", "--prefix", "a", "--yes"],
    ] {
        let ran = shell.run(arguments);
        assert_eq!((ran.status, &*ran.output), (2, ""), "{ran:?}");
        let is_told = ["reach", "did not answer"].iter().any(|text| ran.errors.contains(text));
        assert!(is_told, "{arguments:?}: {ran:?}");
    }
    let doctor = shell.run(&["doctor"]);
    assert!(doctor.status == 1 && doctor.output.contains("problem: "), "{doctor:?}");
}

#[test]
fn rights_that_are_missing_are_told() {
    let shell = Shell::with_redis();
    shell.server().command(MINIMAL_RIGHTS);
    let shell = shell.of_user("limits:secret");
    // The rights of an application without a configuration are enough for quotas.
    let _ = shell.run(&["check", "5/hour", "k"]).fine();
    shell.file("limits.toml", LIMITS);
    // A name is that of the published document, which this user may not read.
    let mut commands = commands_with("api");
    commands.extend([
        vec!["policies", "get"],
        vec!["policies", "history"],
        vec!["policies", "diff", "limits.toml"],
        vec!["policies", "rollback", "1", "--why", "test"],
        vec!["policies", "put", "limits.toml", "--expect", "0", "--why", "test"],
        vec!["deny", "add", "user", "mallory"],
        vec!["allow", "remove", "user", "mallory"],
        vec!["deny", "list"],
        vec!["stats", "--policies", "limits.toml"],
        vec!["stats", "--fleet"],
        vec!["top", "--denied"],
    ]);
    for arguments in &commands {
        shell.run(arguments).fails(3, "the user may not do this");
    }
    for arguments in [&["list", "5/hour"][..], &["list"], &["top"], &["block", "list"]] {
        shell.run(arguments).fails(3, "grant +scan");
    }
    // Without scripts nothing is decided.
    shell.server().command(&["ACL", "SETUSER", "limits", "+scan", "-evalsha", "-eval"]);
    let denied = shell.run(&["check", "5/hour", "k"]);
    assert!(denied.status == 3 && denied.errors.contains("auth"), "{denied:?}");
    let shell = shell.of_user("limits:wrong");
    for arguments in [&["check", "5/hour", "k"][..], &["check", "api", "k"], &["policies", "get"]] {
        assert_eq!(shell.run(arguments).status, 3, "{arguments:?}");
    }
}

#[test]
fn store_without_a_document_knows_no_names() {
    let shell = Shell::with_redis();
    for arguments in [&["check", "api", "k"][..], &["deny", "add", "user", "mallory"]] {
        shell.run(arguments).fails(64, "no document is published");
    }
    shell.run(&["policies", "get"]).fails(1, "no document is published");
    shell.run(&["policies", "rollback", "3", "--why", "test"]).fails(64, "document 3 does not exist");
}

#[test]
fn reader_that_goes_ends_the_output_in_silence() {
    let shell = Shell::with_redis();
    for arguments in [&["man"][..], &["completions", "bash"], &["check", "5/hour", "k"], &["--help"]] {
        let mut child =
            shell.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!((ran.status, &*ran.errors), (0, ""), "{arguments:?}");
    }
}

#[test]
fn full_output_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = Shell::new().command(&["man"]).stdout(full).output().unwrap();
    let ran = Ran::of(ran);
    ran.fails(2, "the output cannot be written");
}
