//! The program as its users see it: arguments in, text and files out.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::{Path, PathBuf};

use clap::Parser;
use polylimit_simulation::{AnswerStyle, SimulateArguments, SimulationError};
use serde_json::Value;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: SimulateArguments,
}

struct Answer {
    is_same: bool,
    out: String,
    written: Vec<PathBuf>,
}

fn answer(
    arguments: &[&str],
    policies: Option<&Path>,
    (json, color): (bool, bool),
) -> Result<Answer, SimulationError> {
    let program = Program::try_parse_from([&["simulate"], arguments].concat())
        .map_err(|error| SimulationError::Usage(error.to_string()))?;
    let simulation = program.arguments.simulate(policies)?;
    let out = program.arguments.answer(&simulation, AnswerStyle { json, color, width: 80 })?;
    let mut written = Vec::new();
    program.arguments.write_files(&simulation, |path| written.push(path.to_owned()))?;
    Ok(Answer { is_same: simulation.is_same(), out, written })
}

fn human(arguments: &[&str]) -> String {
    answer(arguments, None, (false, false)).unwrap().out
}

fn json(arguments: &[&str], policies: Option<&Path>) -> (Value, bool) {
    let answer = answer(arguments, policies, (true, false)).unwrap();
    assert_eq!(answer.out.lines().count(), 1);
    (serde_json::from_str(&answer.out).unwrap(), answer.is_same)
}

const TRAFFIC: &str = "50 clients 1/s poisson zipf=1.1; bot: 1 client 20/s from=2m to=4m";

#[test]
fn months_are_simulated_from_the_day_on_which_they_start() {
    let arguments =
        |policy, start| ["--policy", policy, "--traffic", "1 client 1/h", "--start", start, "--for", "60d"];
    let admitted =
        |policy, start| json(&arguments(policy, start), None).0["live"]["total"]["admitted"].clone();
    let policy = "api=100/month from=15 zone=Europe/Berlin";
    // In Berlin, 15 November begins an hour before midnight in UTC; 60 days later it is 14 January.
    assert_eq!(admitted(policy, "2026-11-14T23:00:00Z"), 200);
    // The window that ends after 12 hours is another one.
    assert_eq!(admitted(policy, "2026-11-14T11:00:00Z"), 212);
    let refused = answer(&["--policy", policy, "--traffic", "1 client 5/month"], None, (false, false));
    let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        refused.contains("a month does not always have the same length: use a period such as 30d"),
        "{refused}"
    );
}

#[test]
fn groups_of_clients_are_the_groups_that_share_a_policy() {
    let document = tempfile::NamedTempFile::new().unwrap();
    let text = "polylimit = 1\n[policies.tokens]\nquotas = \"1000/s token_bucket\"\n[policies.tokens.groups]\n\
                search = { weight = 5, minimum = 50 }\nbilling = { weight = 3, minimum = 20 }\n";
    std::fs::write(document.path(), text).unwrap();
    let traffic = "search: 20 clients 100/s poisson; billing: 2 clients 2000/s poisson";
    let arguments = ["--policy", "tokens", "--traffic", traffic, "--for", "20s"];
    let (answer, _) = json(&arguments, Some(document.path()));
    let groups = answer["live"]["policies"][0]["groups"].as_array().unwrap();
    let names: Vec<_> = groups.iter().map(|group| group["group"].as_str().unwrap()).collect();
    assert_eq!(names, ["billing", "search"]);
    // After the burst, each has its minimum and its part of the other 300 units a second: 3 and 5 of 8.
    let last = |group: &Value| {
        let timeline = group["timeline"].as_array().unwrap();
        timeline[timeline.len() / 2..].iter().map(|units| units.as_u64().unwrap()).sum::<u64>()
    };
    for (group, expected) in groups.iter().zip([3_125, 6_875]) {
        assert!(last(group).abs_diff(expected) < expected / 20, "{}: {}", group["group"], last(group));
    }
    let report = self::answer(&arguments, Some(document.path()), (false, false)).unwrap().out;
    assert!(report.contains("Shares of the groups of tokens under tokens"), "{report}");
}

#[test]
fn people_read_tables_and_a_plot() {
    let arguments = [
        "--policy",
        "api=100/minute",
        "--candidate",
        "60/minute",
        "--traffic",
        TRAFFIC,
        "--for",
        "10m",
        "--seed",
        "7",
    ];
    let text = human(&arguments);
    for part in [
        "of 51 clients in 10m from 2026-01-01T00:00:00Z, generated with the seed 7",
        "p99.9",
        "at most 0.1 %",
        "api: 100/minute",
        "First attempts, compared with api: 60/minute",
        "Clients that are denied most by api: 100/minute",
        "Requests in slots of 5s",
        "── traffic, api: 100/minute, api: 60/minute",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(text.contains('⠤') || text.chars().any(|c| ('\u{2800}'..'\u{2900}').contains(&c)), "{text}");
    assert!(!text.contains('\x1b'));
    assert!(text.lines().all(|line| !line.ends_with(' ')));
    assert_eq!(text, human(&arguments));
    let other = human(&[&arguments[..9], &["8"]].concat());
    assert_ne!(text, other);
    let coloured = answer(&arguments, None, (false, true)).unwrap();
    assert!(coloured.out.contains("\x1b[36m"));
    assert!(!coloured.is_same);
    let without_plot = human(&[&arguments[..], &["--no-plot"]].concat());
    assert!(text.starts_with(&without_plot) && !without_plot.contains("Requests in slots"));
}

#[test]
fn programs_read_one_object() {
    let (value, is_same) = json(
        &["--policy", "api=100/minute", "--candidate", "100/minute", "--traffic", TRAFFIC, "--for", "10m"],
        None,
    );
    assert!(is_same);
    assert_eq!(value["traffic"]["duration_us"], 600_000_000_u64);
    let total = &value["live"]["total"];
    assert_eq!(total["requests"], value["demand"]["requests"]);
    let attempts = total["admitted"].as_u64().unwrap() + total["denied"].as_u64().unwrap();
    assert_eq!(total["requests"], attempts);
    let quota = &value["live"]["policies"][0]["quotas"][0];
    assert_eq!((&quota["quota"], &quota["bound"]), (&"100/minute".into(), &200.into()));
    assert!(quota["most_admitted"].as_u64().unwrap() >= 90);
    let most_denied = value["live"]["most_denied"].as_array().unwrap();
    assert!(most_denied.iter().any(|of| of["key"] == "bot"));
    let candidate = &value["candidates"][0];
    assert_eq!(candidate["total"], *total);
    assert_eq!(candidate["agreement"]["both_allow"], total["admitted"]);
    assert_eq!(candidate["newly_denied"]["clients"], 0);
}

#[test]
fn a_candidate_denies_and_admits_other_clients() {
    let arguments = [
        "--policy",
        "api=20/10s sliding_log",
        "--candidate",
        "60/minute sliding_log",
        "--for",
        "5m",
        "--traffic",
        "bursts: 2 clients burst=30 every=1m; steady: 1 client 90/minute; calm: 3 clients 1/10s",
    ];
    let (value, is_same) = json(&arguments, None);
    assert!(!is_same);
    let candidate = &value["candidates"][0];
    assert_eq!(candidate["newly_admitted"]["clients"], 2);
    assert_eq!(candidate["newly_denied"]["clients"], 1);
    assert_eq!(candidate["newly_denied"]["examples"][0]["key"], "steady");
    let agreement = &candidate["agreement"];
    // Of each of ten bursts the policy denies 10 requests and the candidate none.
    assert_eq!(agreement["only_live_denies"], 100);
    assert_eq!(agreement["both_deny"], 0);
}

/// Every field of the answer is in the documentation.
#[test]
fn fields_are_documented() {
    let page = include_str!("../../../docs/simulation.md");
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/access.log");
    let log = log.to_str().unwrap();
    let document = document();
    let (of_log, _) = json(&["--log", log, "--skip-malformed", "1"], Some(document.path()));
    let (generated, _) = json(
        &["--policy", "5/s", "--candidate", "1/s", "--traffic", "1 client 2/s denied=wait", "--for", "1m"],
        None,
    );
    let mut missing = Vec::new();
    for value in [of_log, generated] {
        fields(&value, &mut |name| {
            if !page.contains(&format!("`{name}`")) {
                missing.push(name.to_owned());
            }
        });
    }
    missing.sort_unstable();
    missing.dedup();
    assert!(missing.is_empty(), "docs/simulation.md lacks {missing:?}");
}

fn fields(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            visit(name);
            fields(value, visit);
        }),
        Value::Array(values) => values.iter().for_each(|value| fields(value, visit)),
        _ => {}
    }
}

fn document() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = r#"
polylimit = 1
[policies.api]
quotas = "2/minute"
[policies.login]
quotas = "1/15m sliding_log"
[[rules]]
match = { method = "POST", path = "/login" }
apply = [{ policy = "login", key = "{client}" }]
[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{user,client}" }]
[lists]
deny = ["client 198.51.100.0/24"]
"#;
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn rules_of_a_document_decide_about_a_log() {
    let document = document();
    let log = tempfile::NamedTempFile::new().unwrap();
    let line = |address: &str, user: &str, request: &str| {
        format!("{address} - {user} [21/Nov/2026:10:00:00 +0000] \"{request}\" 200 1 \"-\" \"-\"\n")
    };
    let lines = [
        line("192.0.2.1", "-", "POST /login HTTP/1.1"),
        line("192.0.2.1", "-", "POST //login?next=/ HTTP/1.1"),
        line("192.0.2.2", "-", "POST /login HTTP/1.1"),
        line("192.0.2.1", "ann", "GET /v1/a HTTP/1.1"),
        line("192.0.2.2", "ann", "GET /v1/b HTTP/1.1"),
        line("192.0.2.3", "ann", "GET /v1/c HTTP/1.1"),
        line("192.0.2.3", "-", "GET / HTTP/1.1"),
        line("198.51.100.7", "-", "GET / HTTP/1.1"),
    ];
    std::fs::write(log.path(), lines.concat()).unwrap();
    let log = log.path().to_str().unwrap();
    let (value, is_same) = json(&["--log", log, "--candidate", "api=3/minute"], Some(document.path()));
    assert!(!is_same);
    let total = &value["live"]["total"];
    assert_eq!((&total["admitted"], &total["denied"], &total["keys"]), (&5.into(), &3.into(), &4.into()));
    let causes: Vec<_> =
        value["live"]["causes"].as_array().unwrap().iter().map(|of| (&of["cause"], &of["denied"])).collect();
    assert_eq!(causes, [(&"quota".into(), &2.into()), (&"deny_list".into(), &1.into())]);
    let policies = value["live"]["policies"].as_array().unwrap();
    let of = |at: usize| {
        (&policies[at]["policy"], &policies[at]["counts"]["admitted"], &policies[at]["counts"]["denied"])
    };
    assert_eq!(of(0), (&"api".into(), &2.into(), &1.into()));
    assert_eq!(of(1), (&"login".into(), &2.into(), &1.into()));
    assert_eq!(policies[0]["quotas"][0]["key"], "user=ann");
    assert_eq!(value["candidates"][0]["agreement"]["only_live_denies"], 1);
    assert_eq!(value["candidates"][0]["newly_admitted"]["examples"][0]["key"], "192.0.2.3");
    assert_eq!(value["traffic"]["log"]["spread_inside_seconds"], true);
    // A named policy has the clients as its keys.
    let (value, _) = json(&["--log", log, "--policy", "login"], Some(document.path()));
    assert_eq!(value["live"]["total"]["denied"], 4);
}

#[test]
fn rules_of_a_document_go_by_the_time_zone_in_a_log_over_a_change_of_clocks() {
    let document = tempfile::NamedTempFile::new().unwrap();
    let text = r#"
polylimit = 1
zone = "Europe/Berlin"
[policies.night]
quotas = "9/day"
[policies.hours]
quotas = "9/day"
[[rules]]
match = { during = "22:00-06:00" }
apply = [{ policy = "night", key = "all" }]
[[rules]]
apply = [{ policy = "hours", key = "all" }]
"#;
    std::fs::write(document.path(), text).unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    // Clocks go back at 01:00 UTC, so that 06:00 of Berlin is 04:00 UTC on the 24th and 05:00 UTC on the 25th.
    let line = |time: &str| format!("192.0.2.1 - - [{time} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n");
    let lines = [
        line("24/Oct/2026:03:59:59"),
        line("24/Oct/2026:04:00:00"),
        line("24/Oct/2026:19:59:59"),
        line("24/Oct/2026:20:00:00"),
        line("25/Oct/2026:04:59:59"),
        line("25/Oct/2026:05:00:00"),
    ];
    std::fs::write(log.path(), lines.concat()).unwrap();
    let (value, _) = json(&["--log", log.path().to_str().unwrap()], Some(document.path()));
    let policies = value["live"]["policies"].as_array().unwrap();
    let admitted: Vec<_> =
        policies.iter().map(|of| (of["policy"].as_str().unwrap(), &of["counts"]["admitted"])).collect();
    assert_eq!(admitted, [("hours", &3.into()), ("night", &3.into())]);
}

#[test]
fn request_of_a_log_spends_its_cost_where_a_response_would_report_what_was_spent() {
    let document = tempfile::NamedTempFile::new().unwrap();
    let text = r#"
polylimit = 1
[policies.tokens]
quotas = "5/day fixed_window"
[[rules]]
apply = [{ policy = "tokens", key = "all", cost = 2, spent = "usage:total" }]
"#;
    std::fs::write(document.path(), text).unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    // A reservation that is not committed would have expired by the next request.
    let line = |time: &str| format!("192.0.2.1 - - [{time} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n");
    let lines = ["21/Nov/2026:10:00:00", "21/Nov/2026:11:00:00", "21/Nov/2026:12:00:00"].map(line);
    std::fs::write(log.path(), lines.concat()).unwrap();
    let (value, _) = json(&["--log", log.path().to_str().unwrap()], Some(document.path()));
    let total = &value["live"]["total"];
    assert_eq!((&total["admitted"], &total["denied"]), (&2.into(), &1.into()));
}

/// Keys come from clients. In the page they are data, which no parser takes for HTML.
#[test]
fn hostile_keys_are_harmless_in_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let key = "</script><script>alert(1)</script><!-- \u{2028} ]]> \\u003c & \\\" 'x";
    let line = serde_json::json!({ "ts": 1_795_255_200.5, "key": key }).to_string();
    std::fs::write(&log, format!("{line}\n{line}\n{line}\n")).unwrap();
    let (html, svg) = (folder.path().join("a.html"), folder.path().join("a.svg"));
    let [log, html, svg] = [&log, &html, &svg].map(|path| path.to_str().unwrap());
    let answer = answer(
        &["--log", log, "--format", "json", "--key", "$key", "--policy", "1/s", "--html", html, "--svg", svg],
        None,
        (false, false),
    )
    .unwrap();
    assert_eq!(answer.written, [Path::new(svg), Path::new(html)]);
    let page = std::fs::read_to_string(html).unwrap();
    assert_eq!(page.matches("<script").count(), 3);
    assert_eq!(page.matches("</script>").count(), 3);
    assert!(!page.contains("alert(1)</"));
    let (_, data) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    assert!(!data.contains(['<', '>', '&']));
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["live"]["most_denied"][0]["key"], key);
    // Nothing is loaded from elsewhere.
    assert!(page.contains("default-src 'none'"));
    for part in ["src=", "<link", "@import"] {
        assert!(!page.contains(part), "{part}");
    }
    let picture = std::fs::read_to_string(svg).unwrap();
    assert!(
        picture.starts_with("<svg") && picture.contains("policy: 1/second") && !picture.contains("script")
    );
    assert!(answer.out.contains("\\u{2028}") && !answer.out.contains('\u{2028}'), "{}", answer.out);
}

#[cfg(feature = "png")]
#[test]
fn a_picture_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let arguments =
        ["--policy", "api=1/s", "--traffic", "5 clients 2/s", "--for", "1m", "--png", path.to_str().unwrap()];
    answer(&arguments, None, (false, false)).unwrap();
    let png = std::fs::read(path).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 5_000, "{} bytes", png.len());
}

#[test]
fn mistakes_are_told_with_what_is_allowed() {
    let missing = Path::new("/nowhere/limits.toml");
    for (arguments, policies, part) in [
        (&["--traffic", "1 client 1/s"][..], None, "there is no policy"),
        (&["--policy", "api=1/s"], None, "there are no requests"),
        (&["--policy", "api=1/s", "--traffic", "1 client"], None, "there is no rate"),
        (&["--policy", "api=1/s", "--traffic", "1 client 1/s", "--for", "soon"], None, "--for \"soon\""),
        (&["--policy", "api=1/s", "--traffic", "1 client 1/s", "--start", "now"], None, "--start \"now\""),
        (&["--policy", "2 concurrent", "--traffic", "1 client 1/s"], None, "concurren"),
        (
            &["--policy", "api=1/s", "--log", "/nowhere/access.log"],
            None,
            "/nowhere/access.log cannot be read",
        ),
        (&["--policy", "api", "--traffic", "1 client 1/s"], Some(missing), "limits.toml cannot be read"),
        (
            &["--policy", "api=1/s", "--traffic", "1 client 1/s", "--svg", "/nowhere/a.svg"],
            None,
            "cannot be written",
        ),
        (&["--policy", "api=1/s", "--traffic", "1 client 1/s", "--log", "x"], None, "cannot be used with"),
        (
            &["--policy", "api=1/s", "--traffic", "1 client 1/s", "--format", "json"],
            None,
            "cannot be used with",
        ),
    ] {
        let answered = answer(arguments, policies, (false, false));
        let Err(error) = answered else { panic!("{arguments:?} are accepted") };
        assert!(error.to_string().contains(part), "{arguments:?}: {error}");
    }
}
