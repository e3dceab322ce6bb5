use serde_json::json;

use crate::support::Shell;

const FIRST: &str = "# Of the shop.\npolylimit = 1\n[policies.api]\nquotas = '7/day fixed_window'\n";
const SECOND: &str = "polylimit = 1\n[policies.api]\nquotas = '9/day fixed_window'\n";

fn shell() -> Shell {
    let shell = Shell::with_redis();
    shell.file("first.toml", FIRST);
    shell.file("second.toml", SECOND);
    shell
}

fn put<'a>(file: &'a str, expected: &'a str) -> [&'a str; 7] {
    ["policies", "put", file, "--expect", expected, "--why", "test"]
}

#[test]
fn documents_are_published_compared_and_rolled_back() {
    let shell = shell();
    let (status, configuration) = shell.object("configuration", &put("first.toml", "0"));
    assert_eq!(
        (status, &configuration["version"], &configuration["source"]),
        (0, &json!(1), &json!("store"))
    );
    assert_eq!(shell.object("decision", &["check", "api", "k"]).1["remaining"], 6);
    shell.run(&put("second.toml", "0")).fails(1, "has version 1, not 0");
    shell.run(&put("second.toml", "4")).fails(1, "has version 1, not 4");

    let (status, difference) = shell.object("difference", &["policies", "diff", "second.toml"]);
    assert_eq!((status, &difference["equal"]), (1, &json!(false)));
    let lines = "-      \"quotas\": \"7/day fixed_window\"\n+      \"quotas\": \"9/day fixed_window\"\n";
    assert!(difference["difference"].as_str().unwrap().contains(lines), "{difference}");
    let told = shell.run(&["policies", "diff", "second.toml"]);
    assert!(told.status == 1 && told.output.contains(lines), "{told:?}");
    assert_eq!(shell.run(&["policies", "diff", "first.toml"]).fine(), "");
    assert_eq!(shell.run(&["policies", "diff", "--policies", "first.toml"]).fine(), "");
    assert_eq!(shell.run(&["policies", "diff", "first.toml", "second.toml"]).status, 1);

    let _ = shell.run(&put("second.toml", "1")).fine();
    assert_eq!(shell.object("decision", &["check", "api", "k"]).1["remaining"], 7);
    let (_, document) = shell.object("document", &["policies", "get"]);
    assert_eq!((&document["document_version"], &document["digest"]), (&json!(2), &digest(&shell)));
    // What is shown is what was published, with its comments.
    let first = shell.run(&["policies", "get", "--version", "1"]).fine();
    assert_eq!(first, FIRST);
    shell.run(&["policies", "get", "--version", "9"]).fails(1, "document 9 does not exist");

    let _ = shell.run(&["policies", "rollback", "1", "--why", "back", "--by", "bob"]).fine();
    assert_eq!(shell.run(&["policies", "diff", "first.toml"]).fine(), "");
    let (_, history) = shell.json("history", &["policies", "history"]);
    let told: Vec<_> =
        history.iter().map(|change| (&change["version"], &change["by"], &change["why"])).collect();
    let (tester, test) = (json!("tester"), json!("test"));
    assert_eq!(
        told,
        [
            (&json!(3), &json!("bob"), &json!("back")),
            (&json!(2), &tester, &test),
            (&json!(1), &tester, &test)
        ]
    );
    assert_eq!(shell.json("history", &["policies", "history", "--most", "1"]).1.len(), 1);
    let shown = shell.run(&["policies", "history"]).fine();
    assert!(shown.lines().next().unwrap().trim().starts_with("version"), "{shown}");
    assert!(shown.contains("document 2"), "{shown}");
}

fn digest(shell: &Shell) -> serde_json::Value {
    let (_, told) = shell.object("stats", &["stats", "--policies", "second.toml"]);
    told["configuration"]["digest"].clone()
}

#[test]
fn bad_document_is_not_published() {
    let shell = shell();
    shell.file("bad.toml", "polylimit = 1\n[policies.api]\nquotas = '2/minuet'\n");
    shell.run(&put("bad.toml", "0")).fails(64, "bad.toml: line 3, column 10");
    shell.run(&["policies", "get"]).fails(1, "no document is published");
    shell.run(&["policies", "put", "first.toml", "--expect", "0"]).fails(64, "--why");
    shell.run(&["policies", "put", "first.toml", "--why", "test"]).fails(64, "--expect");
}

#[test]
fn document_that_has_lost_the_policies_is_not_published() {
    let shell = shell();
    shell.file("bare.toml", "polylimit = 1\n");
    shell.file("none.toml", "polylimit = 1\n[policies]\n");
    let validated = shell.run(&["policies", "validate", "bare.toml", "none.toml"]).fine();
    let warning = "bare.toml: fine\nbare.toml: warning: there are no policies: ";
    assert!(validated.starts_with(warning) && validated.ends_with("\nnone.toml: fine\n"), "{validated}");
    let _ = shell.run(&put("bare.toml", "0")).fine();
    let _ = shell.run(&put("first.toml", "1")).fine();
    let refusal = "the document has no policies and the one in force has 1: it may be incomplete";
    shell.run(&put("bare.toml", "2")).fails(64, refusal);
    shell.run(&["policies", "rollback", "1", "--why", "back"]).fails(64, refusal);
    assert_eq!(shell.run(&["policies", "get"]).fine(), FIRST);
    let _ = shell.run(&put("none.toml", "2")).fine();
}

#[test]
fn limits_of_envoy_are_imported() {
    let shell = shell();
    shell.file(
        "a.yaml",
        "domain: a\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 2}}]\n",
    );
    shell.file("b.yaml", "domain: b\ndescriptors: [{key: user, value: a*b}]\n");
    let import = ["policies", "import", "--from", "envoy-ratelimit"];
    let document = shell.run(&[&import[..], &["a.yaml"]].concat()).fine();
    shell.file("a.toml", &document);
    let _ = shell.run(&["policies", "validate", "a.toml"]).fine();
    let decision = shell.object("decision", &["check", "a.user", "k", "--policies", "a.toml"]).1;
    assert_eq!(decision["remaining"], 1);
    let json = shell.run(&[&import[..], &["a.yaml", "--json"]].concat()).fine();
    shell.file("a.json", &json);
    assert_eq!(shell.run(&["policies", "diff", "a.toml", "a.json"]).fine(), "");
    shell
        .run(&[&import[..], &["a.yaml", "b.yaml"]].concat())
        .fails(64, "b.yaml: b.user_a*b: the value has a *");
}

#[test]
fn counters_and_findings_are_told() {
    let shell = shell();
    let (status, told) = shell.object("stats", &["stats"]);
    assert_eq!((status, &told["keys"], &told["configuration"]), (0, &json!(null), &json!(null)));
    assert!(told["connections"].as_u64() >= Some(1), "{told}");
    let (_, findings) = shell.json("finding", &["doctor"]);
    assert!(findings.iter().all(|finding| finding["severity"] != "problem"), "{findings:?}");
    let memory = Shell::with_store("memory:");
    assert_eq!(memory.object("stats", &["stats"]).1["keys"], 0);
    assert_eq!(memory.run(&["doctor"]).fine(), "fine: the store answers\n");
    memory.file("first.toml", FIRST);
    let shown = memory.run(&["stats", "--policies", "first.toml"]).fine();
    assert!(shown.contains("configuration of file:first.toml, version 1"), "{shown}");
}

#[test]
fn what_hardly_is_meant_is_warned_of() {
    let shell = Shell::new();
    let document = r#"
        polylimit = 1
        zone = "Europe/Berlin"
        [policies.api]
        quotas = "5/minute"
        overrides = { k = { numbers = "9/minute", until = "2020-01-01T00:00:00Z" } }
        [policies.login]
        quotas = "5/15m"
        [[rules]]
        apply = [{ policy = "api", key = "{user}" }]
        [[rules]]
        match = { path = "/login" }
        apply = [{ policy = "api", key = "{client}" }]
        [lists]
        deny = ["user a until 2020-01-01T00:00:00Z", "user b until 2100-01-01T00:00:00Z"]
    "#;
    shell.file("limits.toml", document);
    let (status, validity) = shell.object("validity", &["policies", "validate", "limits.toml"]);
    let warnings: Vec<&str> =
        validity["warnings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(status, 0);
    assert_eq!(
        warnings,
        [
            "rule 2 is never reached: rule 1 matches every request",
            "zone has no effect: no rule has during",
            "the item \"user a until 2020-01-01T00:00:00Z\" of lists.deny is over: it has no effect",
            "the override of \"k\" in policy api is over: it has no effect",
            "no rule applies the policy login: only programs that name it use it",
        ]
    );
    let shown = shell.run(&["policies", "validate", "limits.toml"]).fine();
    assert!(shown.starts_with("limits.toml: fine\nlimits.toml: warning: rule 2"), "{shown}");
}

#[test]
fn time_zone_of_rules_is_validated() {
    let shell = Shell::new();
    let document = |zone: &str| {
        format!(
            "polylimit = 1\n{zone}\npolicies.p.quotas = '9/s'\n[[rules]]\nunless = {{ during = 'sat-sun 00:00-24:00' }}\n\
             apply = [{{ policy = 'p', key = 'k' }}]\n"
        )
    };
    shell.file("berlin.toml", &document("zone = 'Europe/Berlin'"));
    shell.file("offset.toml", &document("utc_offset = '-03:30'"));
    shell.file("city.toml", &document("zone = 'Berlin'"));
    shell.file("both.toml", &document("zone = 'Europe/Berlin'\nutc_offset = '+01:00'"));
    let fine = shell.run(&["policies", "validate", "berlin.toml", "offset.toml"]).fine();
    assert_eq!(fine, "berlin.toml: fine\noffset.toml: fine\n");
    for (file, refusal) in [
        (
            "city.toml",
            "line 2, column 8: zone is \"Berlin\", which is not known: did you mean Europe/Berlin?",
        ),
        ("both.toml", "line 2, column 8: the document has utc_offset and zone: allowed is one of the two"),
    ] {
        let refused = shell.run(&["policies", "validate", file]);
        assert!(refused.status == 1 && refused.output.contains(refusal), "{refused:?}");
    }
}
