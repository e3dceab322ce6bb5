use serde_json::{Value, json};

use crate::support::Shell;

const TRAFFIC: [&str; 7] =
    ["simulate", "--policy", "api=10/minute", "--traffic", "3 clients 1/s", "--for", "2m"];

#[test]
fn limits_are_tried_without_a_store() {
    let shell = Shell::new();
    let simulated = shell.run(&TRAFFIC);
    assert!(simulated.status == 0 && simulated.output.contains("api"), "{simulated:?}");
    let with_candidate = shell.run(&[&TRAFFIC[..], &["--candidate", "api=20/minute", "--no-plot"]].concat());
    assert_eq!(with_candidate.status, 1, "{with_candidate:?}");
    shell
        .run(&["simulate", "--policy", "api=10/fortnight", "--traffic", "1 client 1/s"])
        .fails(64, "fortnight");
    shell.run(&["simulate", "--policy", "api=10/s"]).fails(64, "there are no requests");
    shell.file("limits.toml", "polylimit = 1\n[policies.api]\nquotas = '10/minute'\n");
    let of_document =
        ["--policies", "limits.toml", "simulate", "--policy", "api", "--traffic", "1 client 1/s", "--quiet"];
    assert_eq!(shell.run(&of_document).fine(), "");
}

#[test]
fn programs_read_one_object_of_the_schema() {
    let shell = Shell::new();
    let candidate = ["--candidate", "api=10/minute token_bucket burst=2"];
    let (status, of_traffic) = shell.object("simulation", &[&TRAFFIC[..], &candidate].concat());
    assert_eq!((status, &of_traffic["demand"]["requests"]), (1, &json!(360)));
    assert_eq!(of_traffic["candidates"][0]["label"], "api: 10/minute token_bucket burst=2");
    let waiting = ["simulate", "--policy", "1/s", "--traffic", "2 clients 2/s denied=wait", "--for", "1m"];
    let (status, of_waiting) = shell.object("simulation", &waiting);
    assert!(status == 0 && of_waiting["live"]["waits"]["waited"].as_u64() > Some(0), "{of_waiting}");
    shell.file("limits.toml", DOCUMENT);
    shell.file("access.log", &log("- - - nothing of the format"));
    let rules = ["simulate", "--policies", "limits.toml", "--log", "access.log", "--skip-malformed", "1"];
    let (status, of_log) = shell.object("simulation", &rules);
    let causes = json!([{ "cause": "quota", "denied": 4 }]);
    assert_eq!((status, &of_log["live"]["causes"]), (0, &causes), "{of_log}");
    assert_eq!(of_log["traffic"]["log"]["malformed"], 1);
}

const DOCUMENT: &str = r#"
polylimit = 1
[policies.api]
quotas = "3/minute"
[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{client}" }]
"#;

/// A log in the combined format with eight lines, the sixth of which is this one.
fn log(sixth: &str) -> String {
    let line = "192.0.2.1 - - [21/Nov/2026:10:00:00 +0000] \"GET /v1/a HTTP/1.1\" 200 1 \"-\" \"-\"";
    let lines = [line, line, line, line, line, sixth, line, line];
    lines.map(|line| format!("{line}\n")).concat()
}

#[test]
fn logs_that_cannot_be_used_are_told() {
    let shell = Shell::new();
    let log_of = |path: &str| shell.run(&["simulate", "--policy", "api=10/s", "--log", path]);
    log_of("none.log").fails(64, "none.log cannot be read: No such file");
    shell.file("access.log", &log("192.0.2.7 was here"));
    let malformed = log_of("access.log");
    malformed.fails(64, "access.log:6: ");
    assert!(malformed.errors.contains("\"192.0.2.7 was here\""), "{malformed:?}");
    shell.file("empty.log", "");
    log_of("empty.log").fails(64, "empty.log");
    let missing = ["--policies", "none.toml", "simulate", "--policy", "api", "--traffic", "1 client 1/s"];
    shell.run(&missing).fails(64, "none.toml cannot be read");
}

#[test]
fn answer_is_not_lost_where_a_file_cannot_be_written() {
    let shell = Shell::new();
    let expected = shell.run(&[&TRAFFIC[..], &["--json"]].concat()).fine();
    for option in [
        "--svg",
        "--html",
        #[cfg(feature = "png")]
        "--png",
    ] {
        let ran = shell.run(&[&TRAFFIC[..], &["--json", option, "none/picture"]].concat());
        assert_eq!((ran.status, &ran.output), (64, &expected), "{option}");
        assert!(ran.errors.contains("none/picture cannot be written: No such file"), "{ran:?}");
    }
    let (_, simulation): (i32, Value) =
        shell.object("simulation", &[&TRAFFIC[..], &["--svg", "a.svg", "--html", "a.html"]].concat());
    assert_eq!(simulation["live"]["policies"][0]["policy"], "api");
    assert!(shell.folder().join("a.svg").is_file() && shell.folder().join("a.html").is_file());
}
