//! The blocks of docs/command-line.md are run, with a real server.

use std::fs;
use std::path::Path;

use nix::unistd::{User, geteuid};
use serde_json::Value;
use trycmd::TestCases;

use crate::support::{PROGRAM, Shell};

/// The block of the page in this language.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, after) = page.split_once(&format!("```{language}\n")).unwrap();
    after.split_once("```").unwrap().0
}

/// Times that pass stand for any other.
fn without_times(page: &str) -> String {
    let mut text = String::new();
    for word in page.split_inclusive([' ', '\n']) {
        let is_time = word.starts_with("2026-") && word.trim_end().ends_with('Z');
        let follows_in = (text.ends_with(" in ") || text.ends_with(" for "))
            && word.starts_with(|c: char| c.is_ascii_digit());
        if is_time || follows_in && word.trim() != "0us" {
            text += "[..]";
            text += &word[word.trim_end().len()..];
        } else {
            text += word;
        }
    }
    text
}

#[test]
fn commands_of_the_page_do_what_it_says() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md")).unwrap();
    let shell = Shell::with_redis();
    let fixture = shell.folder().join("command-line.in");
    fs::create_dir(&fixture).unwrap();
    fs::write(fixture.join("polylimit.toml"), block(&page, "toml")).unwrap();
    fs::write(fixture.join("ratelimit.yaml"), block(&page, "yaml")).unwrap();
    fs::write(shell.folder().join("command-line.md"), without_times(&page)).unwrap();
    let cases = TestCases::new();
    cases.register_bin("polylimit", Path::new(PROGRAM));
    cases.env("POLYLIMIT_STORE", format!("{}?deadline=5s", shell.server().url()));
    cases.case(shell.folder().join("command-line.md"));
    cases.run();
}

#[test]
fn record_of_the_page_is_what_the_audit_log_has() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md")).unwrap();
    let shell = Shell::with_redis();
    fs::write(shell.folder().join("polylimit.toml"), block(&page, "toml")).unwrap();
    let change = [
        "block",
        "add",
        "login",
        "user=mallory",
        "--for",
        "15m",
        "--by",
        "anna",
        "--why",
        "password guessing",
    ];
    let _ = shell
        .run(&[&["--policies", "polylimit.toml", "--audit-log", "audit.jsonl"], &change[..]].concat())
        .fine();
    let written = fs::read_to_string(shell.folder().join("audit.jsonl")).unwrap();
    let [mut written, mut shown]: [Value; 2] =
        [&written, block(&page, "json")].map(|text| serde_json::from_str(text).unwrap());
    let user = User::from_uid(geteuid()).unwrap().unwrap().name;
    assert_eq!(written["by"], format!("{user} (anna)"));
    for record in [&mut written, &mut shown] {
        record["time"] = Value::Null;
        record["by"] = Value::Null;
    }
    assert_eq!(written, shown);
}
