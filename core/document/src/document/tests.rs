mod properties;
mod refusals;

use serde_json::Value;

use super::*;
use crate::client_address::ForwardingHeader;
use crate::cost::Cost;
use crate::entry::{Entries, Entry};
use crate::model::{Elastic, Mode, OverrideQuotas};
use polylimit_rules::penalty::Penalty;
use polylimit_store::outage::Outage;

/// The cases of the format that have policies, without those that are outdated.
fn cases() -> Vec<Value> {
    let read = |name: &str| {
        let path = format!("{}/../../tests/conformance/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let outdated = read("outdated.tsv");
    let outdated: Vec<_> = outdated.lines().filter_map(|line| line.split('\t').nth(1)).collect();
    let cases = |name| {
        let file: Value = serde_json::from_str(&read(name)).unwrap();
        assert_eq!(file["format"], 3);
        file["cases"].as_array().unwrap().clone()
    };
    let all = ["policies.json", "zones.json", "documents.json"].into_iter().flat_map(cases);
    all.filter(|case| !outdated.contains(&case["name"].as_str().unwrap())).collect()
}

fn text_of(operation: &Value) -> String {
    match &operation["text"] {
        Value::String(text) => text.clone(),
        _ => operation["document"].to_string(),
    }
}

#[test]
fn every_document_of_the_cases_is_read_or_refused_as_they_say() {
    let mut documents = 0;
    for case in cases() {
        let name = &case["name"];
        Document::parse(case["document"].to_string().as_bytes())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        for operation in
            case["ops"].as_array().unwrap().iter().filter(|operation| operation["op"] == "configuration")
        {
            documents += 1;
            let (text, expect) = (text_of(operation), &operation["expect"]);
            let about = expect["about"].as_str().unwrap_or_default();
            match Document::parse(text.as_bytes()) {
                Ok(_) => {
                    // Some are refused only because of the active document.
                    assert!(expect["ok"] == true || operation["valid"] == true, "{name}: {text}");
                }
                Err(error) => {
                    assert_eq!(expect["ok"], false, "{name}: {text}: {error}");
                    assert!(
                        expect["line"].is_null() || expect["line"] == error.line,
                        "{name}: {text}: {error}"
                    );
                    assert!(error.message.contains(about), "{name}: {text}: {error}");
                }
            }
        }
    }
    assert!(documents >= 55);
}

#[test]
fn every_entry_of_the_cases_is_set_or_refused_as_they_say() {
    let mut set = 0;
    for case in cases() {
        let name = &case["name"];
        let mut document = Document::parse(case["document"].to_string().as_bytes()).unwrap();
        let mut entries = Entries::default();
        for operation in case["ops"].as_array().unwrap() {
            let expect = &operation["expect"];
            if operation["op"] == "configuration" && expect["ok"] == true {
                document = Document::parse(text_of(operation).as_bytes()).unwrap();
            }
            if operation["op"] != "entry" {
                continue;
            }
            set += 1;
            if let Some(text) = operation["delete"].as_str() {
                entries.remove(text);
                assert_eq!(expect["ok"], true);
                continue;
            }
            let (text, value) = (operation["set"].as_str().unwrap(), operation["value"].to_string());
            let checked = Entry::parse(text, &value).and_then(|entry| entry.check(&document));
            match checked {
                Ok(()) => {
                    assert_eq!(expect["ok"], true, "{name}: {operation}");
                    entries.set(text, &value).unwrap();
                }
                Err(error) => {
                    assert_eq!(expect["ok"], false, "{name}: {operation}: {error}");
                    assert!(
                        error.message().contains(expect["about"].as_str().unwrap()),
                        "{operation}: {error}"
                    );
                }
            }
        }
    }
    assert!(set >= 33);
}

const EXAMPLE: &str = r#"
polylimit = 1
enabled = true
utc_offset = "+00:00"
[client]
trust = ["10.0.0.0/8"]
header = "x-forwarded-for"
[policies.api]
quotas = "100/minute excess=10; 5000/day"
plans = { gold = "1000/minute; 50000/day" }
overrides = { "user=alice" = "gold", "user=bob" = { numbers = "500/minute", until = "2027-01-01T00:00:00Z" } }
mode = "on"
outage = "fallback"
candidate = { quotas = "80/minute; 5000/day", compare = 1000, enforce = 0 }
elastic = { policy = "fleet", key = "all", headroom = 30, counts = "all" }
[policies.fleet]
quotas = "20000/s token_bucket"
lease = "auto"
[policies.login]
quotas = "5/15m sliding_log"
penalty = { denials = 3, within = "1h", block = "1m", max = "1d", forget = "1d" }
[[rules]]
match = { method = "POST", path = "/login", during = ["mon-fri 22:00-06:00", "sat-sun 00:00-24:00"] }
apply = [{ policy = "login", key = "{client}" }]
[[rules]]
match = { path = "/v1/{*rest}", header.x-api-key = "*" }
unless = { client = "192.0.2.0/24" }
apply = [{ policy = "api", key = "{user,client}", cost = "{tokens}", headroom = 20, missing = "deny" }]
[lists]
deny = ["client 203.0.113.0/24", "country KP until 2027-01-01T00:00:00Z"]
allow = ["user monitoring"]
"#;

#[test]
fn example_is_read_as_it_says() {
    let document = Document::parse(EXAMPLE.as_bytes()).unwrap();
    assert!(document.enabled && document.zone == Zone::UTC);
    assert_eq!(document.client.header().map(ForwardingHeader::name), Some("x-forwarded-for"));
    let [api, fleet, login] = &document.policies[..] else { panic!("three policies") };
    assert_eq!(api.policy.to_string(), "api: 100/minute excess=10; 5000/day");
    assert_eq!(
        (&*api.plans[0].0, api.plans[0].1.to_string()),
        ("gold", "api: 1000/minute; 50000/day".to_owned())
    );
    assert_eq!(*api.overrides[0].key, *b"user=alice");
    assert_eq!(api.overrides[0].numbers, OverrideQuotas::Plan("gold".into()));
    assert_eq!(api.overrides[1].numbers, OverrideQuotas::Quotas(Policy::parse("api", "500/minute").unwrap()));
    assert_eq!(api.overrides[1].until_us, Some(1_798_761_600_000_000));
    assert_eq!((api.mode, api.outage), (Mode::On, Some(Outage::Fallback)));
    let candidate = api.candidate.as_ref().unwrap();
    assert_eq!((candidate.compare, candidate.enforce), (1000, 0));
    // SHA-256 of "80/minute; 5000/day".
    assert_eq!(candidate.comparison.to_string(), "api~8bad3336: 80/minute; 5000/day");
    let elastic = Elastic { pool: 1, key: (*b"all").into(), headroom: 30, counts_all: true };
    assert_eq!(api.elastic, Some(elastic));
    assert_eq!(fleet.lease, Some(Lease::auto()));
    let second = 1_000_000;
    let penalty = Penalty {
        denials: 3,
        within_us: 3_600 * second,
        block_us: 60 * second,
        max_us: 86_400 * second,
        forget_us: 86_400 * second,
    };
    assert_eq!(login.penalty, Some(penalty));
    assert_eq!((document.rules.len(), document.lists.len()), (2, 3));
    let applied = &document.rules[1].apply[0];
    assert_eq!((applied.policy, applied.headroom, applied.denies_missing), (0, 20, true));
    assert_eq!(document.lists[1].until_us, Some(1_798_761_600_000_000));
    assert!(document.lists[0].denies && !document.lists[2].denies);
    assert_eq!(document.policy_index("login"), Some(2));
}

#[test]
fn canonical_text_is_the_same_document() {
    let document = Document::parse(EXAMPLE.as_bytes()).unwrap();
    let again = Document::parse(document.canonical().as_bytes()).unwrap();
    assert_eq!((again.canonical(), again.digest()), (document.canonical(), document.digest()));
    assert!(
        document
            .canonical()
            .starts_with(r#"{"client":{"header":"x-forwarded-for","trust":["10.0.0.0/8"]},"enabled":true"#)
    );
    assert_eq!((again.rules.len(), again.policies.len(), document.digest().len()), (2, 3, 64));
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let text = "polylimit = 1\n[policies.p]\nquotas = '1/s'\npenalty = { denials = 1, within = '1s', block = '2 s' }\n\
                candidate = { quotas = '2/s' }\n[policies.q]\nquotas = '1/s'\nelastic = { policy = 'r', key = 'k' }\n\
                [policies.r]\nquotas = '9/s'\nlease = 100\n[[rules]]\napply = [{ policy = 'p', key = '' }]\n";
    let document = Document::parse(text.as_bytes()).unwrap();
    let [p, q, r] = &document.policies[..] else { panic!("three policies") };
    let penalty = p.penalty.unwrap();
    assert_eq!((penalty.block_us, penalty.max_us, penalty.forget_us), (2_000_000, 2_000_000, 2_000_000));
    let candidate = p.candidate.as_ref().unwrap();
    assert_eq!((candidate.compare, candidate.enforce), (0, 0));
    assert_eq!((p.mode, p.outage, p.lease), (Mode::On, None, None));
    let elastic = q.elastic.as_ref().unwrap();
    assert_eq!((elastic.headroom, elastic.counts_all), (0, true));
    assert_eq!(r.lease, "100".parse().ok());
    let applied = &document.rules[0].apply[0];
    assert_eq!((&applied.cost, applied.headroom, applied.denies_missing), (&Cost::Units(1), 0, false));
    assert!(!document.rules[0].continues);
    assert_eq!(Document::parse(b"polylimit = 1").map(|document| document.enabled), Ok(true));
}

#[test]
fn outage_has_three_words() {
    let of = |word: &str| {
        Document::parse(
            format!("polylimit = 1\npolicies.p = {{ quotas = '1/s', outage = '{word}' }}").as_bytes(),
        )
    };
    for (word, outage) in [("fallback", Outage::Fallback), ("allow", Outage::Allow), ("deny", Outage::Deny)] {
        assert_eq!(of(word).unwrap().policies[0].outage, Some(outage));
    }
    let refused = of("local").unwrap_err().to_string();
    assert!(refused.contains("\"fallback\" or \"allow\" or \"deny\""), "{refused}");
}
