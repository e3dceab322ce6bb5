//! The text is what the parsers of monitoring systems read.

use std::io::Write as _;
use std::process::{Command, Stdio};

use polylimit::metrics::{Family, FamilyKind, SampleValue, TextFormat};
use polylimit::{Limiter, Request};

use super::{Place, policy};

/// A limiter whose metrics have every kind of sample, and labels with everything that has to be escaped.
fn limiter(place: &Place) -> Limiter {
    let document = r#"
        polylimit = 1
        [policies.api]
        quotas = "2/minute; 5/hour"
        candidate = { quotas = "1/minute", compare = 1000 }
    "#;
    let limiter = place.builder().document(document).build().unwrap();
    for cost in [1, 1, 1, 7] {
        let _ = limiter.blocking().check(Request::new("a").policy("api").cost(cost)).unwrap();
        let _ = limiter.blocking().check(Request::new("a").policy("3/day token_bucket burst=9")).unwrap();
    }
    let _ = limiter.blocking().take(Request::new("a").policy("api")).unwrap();
    limiter
}

/// Passes a text to a program, and returns what it prints.
fn through(program: &mut Command, text: &str) -> String {
    let mut child =
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}\n{text}");
    String::from_utf8(output.stdout).unwrap() + &errors
}

/// Prometheus' own tool reads the text, and finds nothing to complain about.
#[test]
fn promtool_accepts_the_text() {
    for place in Place::all() {
        let text = limiter(&place).metrics_text(TextFormat::Prometheus);
        let said = through(Command::new("promtool").args(["check", "metrics"]), &text);
        assert_eq!(said, "", "{text}");
    }
}

/// Prints each sample on a line of its own as JSON: name, labels, value.
const PARSER: &str = r#"
import json, sys
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
read = openmetrics if sys.argv[1] == "openmetrics" else parser
for family in read.text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
    for sample in family.samples:
        print(json.dumps([sample.name, sample.labels, str(float(sample.value))]))
"#;

type Line = (String, std::collections::BTreeMap<String, String>, String);

/// What a parser has to find.
fn lines(families: &[Family]) -> Vec<Line> {
    let mut lines = Vec::new();
    let float = |number: f64| if number.is_infinite() { "+Inf".to_owned() } else { format!("{number:?}") };
    #[expect(clippy::cast_precision_loss, reason = "the counts of a test are small")]
    let whole = |count: u64| format!("{:?}", count as f64);
    for Family { name, kind, samples, .. } in families {
        assert_eq!(*kind == FamilyKind::Counter, name.ends_with("_total"), "{name}");
        for sample in samples {
            let labels = || sample.labels.iter().map(|(name, value)| ((*name).to_owned(), value.to_string()));
            let mut add = |suffix, bound: Option<String>, value| {
                let bound = bound.map(|bound| ("le".to_owned(), bound));
                lines.push((format!("{name}{suffix}"), labels().chain(bound).collect(), value));
            };
            match &sample.value {
                SampleValue::Count(count) => add("", None, whole(*count)),
                SampleValue::Number(number) => add("", None, float(*number)),
                SampleValue::Histogram { buckets, sum, count } => {
                    for (bound, count) in buckets.iter().chain([&(f64::INFINITY, *count)]) {
                        add("_bucket", Some(float(*bound)), whole(*count));
                    }
                    add("_sum", None, float(*sum));
                    add("_count", None, whole(*count));
                }
            }
        }
    }
    lines.sort();
    lines
}

/// The parsers of the Python client are the reference of both formats.
#[test]
fn parsers_find_every_sample_in_both_formats() {
    for place in Place::all() {
        let limiter = limiter(&place);
        let families = limiter.metrics();
        for format in TextFormat::ALL {
            let python = &mut Command::new("/usr/bin/python3");
            let printed = through(python.args(["-c", PARSER, format.name()]), &format.write(&families));
            let mut found: Vec<Line> =
                printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            found.sort();
            assert_eq!(found, lines(&families), "{format}");
        }
    }
}

#[test]
fn families_are_told_as_json() {
    let limiter = Limiter::builder().policy(policy("api", "2/minute")).build().unwrap();
    let _ = limiter.blocking().check("a").unwrap();
    let json = serde_json::to_value(limiter.metrics()).unwrap();
    let decisions = &json[0];
    assert_eq!(decisions["name"], "polylimit_decisions_total");
    assert_eq!(decisions["kind"], "counter");
    let labels = serde_json::json!({"policy": "api", "result": "allowed", "source": "store"});
    assert_eq!(decisions["samples"][0], serde_json::json!({"labels": labels, "value": 1}));
    assert_eq!(serde_json::to_value(limiter.stats()).unwrap()["applied"], 1);
}
