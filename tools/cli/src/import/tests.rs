use std::collections::HashMap;

use polylimit::Limiter;
use polylimit::document::RequestAttributes;
use polylimit::raw::descriptor_attributes;

use super::*;
use crate::import::descriptors::Descriptor;

/// The document of files that are accepted.
fn document(files: &[&str]) -> String {
    let mut import = EnvoyImport::default();
    for file in files {
        import.add(file).unwrap();
    }
    import.document()
}

#[test]
fn limits_on_reported_usage_are_always_spent() {
    let mut import = EnvoyImport::new(Spend::Always);
    let file = "
domain: ai
descriptors:
  - key: user
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1000}
";
    import.add(file).unwrap();
    let document = import.document();
    assert!(document.contains(r#"{ policy = "ai.user", key = "{user}", spend = "always" }"#), "{document}");
    // Marks spend nothing.
    assert_eq!(document.matches("spend").count(), 1, "{document}");
    Limiter::builder().document(&document).build().unwrap();
}

fn refused(file: &str) -> String {
    EnvoyImport::default().add(file).unwrap_err()
}

/// The policies with their keys that a document applies to a descriptor of a request.
fn applied(limiter: &Limiter, domain: &str, entries: &[(&str, &str)]) -> Vec<(String, String)> {
    let keys: Vec<&str> = entries.iter().map(|(key, _)| *key).collect();
    let (names, descriptor) = (descriptor_attributes(&keys), keys.join(","));
    let mut request =
        RequestAttributes::new().attribute("domain", domain).attribute("descriptor", &descriptor);
    for (name, (_, value)) in names.iter().zip(entries) {
        request = request.attribute(name, value);
    }
    let matches = limiter.admin().matching(&request).unwrap();
    matches
        .iter()
        .map(|found| (found.policy.to_string(), String::from_utf8_lossy(&found.key).into_owned()))
        .collect()
}

#[test]
fn limits_of_nested_descriptors_become_rules_of_exactly_their_depth() {
    let limiter = Limiter::builder()
        .document(&document(&["
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 5}
  - key: to_number
    rate_limit: {unit: DAY, requests_per_unit: 100}
"]))
        .build()
        .unwrap();
    let one = |policy: &str, key: &str| vec![(policy.to_owned(), key.to_owned())];
    let marketing = ("message_type", "marketing");
    let number = ("to_number", "2061111111");
    let policy = "messaging.message_type_marketing.to_number";
    assert_eq!(applied(&limiter, "messaging", &[marketing, number]), one(policy, "2061111111"));
    assert_eq!(limiter.policy(policy).unwrap().to_string(), format!("{policy}: 5/day fixed_window aligned"));
    assert_eq!(applied(&limiter, "messaging", &[number]), one("messaging.to_number", "2061111111"));
    for (domain, entries) in [
        ("messaging", &[marketing][..]),
        ("messaging", &[number, marketing]),
        ("messaging", &[("message_type", "news"), number]),
        ("messaging", &[marketing, number, number]),
        ("other", &[number]),
    ] {
        assert_eq!(applied(&limiter, domain, entries), [], "{entries:?}");
    }
}

#[test]
fn modes_and_replaced_limits_are_marked() {
    let text = document(&[r#"
domain: a
descriptors:
  - {key: ldap, rate_limit: {unlimited: true, replaces: [{name: slow}]}}
  - {key: user, value: 5, shadow_mode: true, rate_limit: {name: slow, unit: second, requests_per_unit: 0}}
  - {key: group, quota_mode: true, rate_limit: {replaces: [{name: slow}, {name: unknown}], unit: month, requests_per_unit: 7}}
  - {key: files, value: "a/*", share_threshold: true, rate_limit: {unit: week, requests_per_unit: 1}}
"#]);
    let limiter = Limiter::builder().document(&text).build().unwrap();
    let named = |entries: &[(&str, &str)]| applied(&limiter, "a", entries);
    let mark = |name: &str| (name.to_owned(), String::new());
    assert_eq!(named(&[("ldap", "x")]), [mark("replaces.slow")]);
    assert_eq!(named(&[("user", "5")]), [("slow".to_owned(), "all".to_owned())]);
    let group = ("a.group".to_owned(), "g".to_owned());
    assert_eq!(named(&[("group", "g")]), [group, mark("replaces.slow"), mark("quota_mode")]);
    for file in ["a/1", "a/2"] {
        assert_eq!(named(&[("files", file)]), [("a.files_a_*".to_owned(), "all".to_owned())]);
    }
    let slow = limiter.blocking().check(polylimit::Request::new("all").policy("slow")).unwrap();
    assert!(slow.allowed() && slow.shadowed());
    assert_eq!(limiter.policy("a.group").unwrap().to_string(), "a.group: 7/30d fixed_window aligned");
}

#[test]
fn several_files_make_one_document_with_names_of_their_own() {
    let limit = |domain: &str| {
        format!(
            "domain: {domain}\ndescriptors: [{{key: k, rate_limit: {{name: n, unit: hour, requests_per_unit: 1}}}}]"
        )
    };
    let limiter = Limiter::builder().document(&document(&[&limit("a"), &limit("b")])).build().unwrap();
    assert_eq!(applied(&limiter, "a", &[("k", "1")]), [("n".to_owned(), "1".to_owned())]);
    assert_eq!(applied(&limiter, "b", &[("k", "1")]), [("n.2".to_owned(), "1".to_owned())]);
    let mut import = EnvoyImport::default();
    import.add(&limit("a")).unwrap();
    assert!(import.add(&limit("a")).unwrap_err().contains("\"a\" is a duplicate"));
}

#[test]
fn what_a_document_cannot_say_is_refused() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    for (descriptor, about) in [
        (format!("{{key: k, value: a*b, {limit}}}"), "a.k_a*b: the value has a * before its end"),
        (format!("{{key: k, value: v, share_threshold: true, {limit}}}"), "share_threshold"),
        (format!("{{key: '', {limit}}}"), "key of a descriptor is \"\""),
        (format!("{{key: 'a,b', {limit}}}"), "comma"),
        (format!("{{key: k, {limit}}}, {{key: k, {limit}}}"), "a.k is a duplicate"),
        ("{key: k, rate_limit: {unit: fortnight, requests_per_unit: 1}}".to_owned(), "\"fortnight\""),
        ("{key: k, rate_limit: {unlimited: true, unit: second}}".to_owned(), "unlimited"),
        ("{key: k, rate_limit: {name: n, unit: day, replaces: [{name: n}]}}".to_owned(), "replaces"),
        ("{key: k, ratelimit: {}}".to_owned(), "ratelimit"),
        ("{key: k, rate_limit: {unit: day, requests_per_unit: -1}}".to_owned(), "requests_per_unit"),
    ] {
        let message = refused(&format!("domain: a\ndescriptors: [{descriptor}]"));
        assert!(message.contains(about), "{descriptor}: {message}");
    }
    assert!(refused("descriptors: []").contains("domain"));
    assert!(!refused("domain: [").is_empty());
    // What is there with its default is accepted.
    document(&[&format!("domain: a\ndescriptors: [{{key: k, detailed_metric: false, {limit}}}]")]);
    document(&["domain: a\ndescriptors:\n"]);
}

#[test]
fn what_decides_nothing_is_left_out_and_all_mistakes_are_named() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let mut import = EnvoyImport::default();
    let descriptors = format!(
        "{{key: k, detailed_metric: true, descriptors: [{{key: l, value_to_metric: true, metadata: {{x: 1}}, {limit}}}]}}"
    );
    import.add(&format!("domain: a\ndescriptors: [{descriptors}]")).unwrap();
    let named: Vec<_> = import.left_out.iter().filter_map(|text| text.split(" is left out").next()).collect();
    assert_eq!(named, ["a.k: detailed_metric", "a.k.l: value_to_metric", "a.k.l: metadata"]);
    let message = refused(&format!(
        "domain: a\ndescriptors: [{{key: k, value: a*b, {limit}}}, {{key: 'c,d', {limit}}}]"
    ));
    assert!(
        message.contains("a.k_a*b: ") && message.contains("a.c,d: ") && message.lines().count() == 2,
        "{message}"
    );
}

#[test]
fn files_of_a_config_map_are_read() {
    let file =
        "    domain: a\n    descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1}}]\n";
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: limits}}\ndata:\n  a.yaml: |\n{file}  b.yaml: |\n{}",
        file.replace("domain: a", "domain: b")
    );
    let mut import = EnvoyImport::default();
    import.add(&map).unwrap();
    let document = import.document();
    assert!(document.contains("[policies.\"a.k\"]") && document.contains("[policies.\"b.k\"]"), "{document}");
}

/// The nodes that envoyproxy/ratelimit finds for a descriptor, if the limit of the last one counts: `GetLimit` of its
/// `config_impl.go`.
fn found<'a>(level: &'a [Descriptor], entries: &[(&str, &str)]) -> Option<Vec<&'a Descriptor>> {
    let (mut level, mut path) = (level, Vec::new());
    for (at, (key, value)) in entries.iter().enumerate() {
        let by_title: HashMap<String, &Descriptor> = level.iter().map(|node| (node.title(), node)).collect();
        let exact = by_title.get(&format!("{key}_{value}")).copied().filter(|node| node.rank() == 0);
        let wildcard = || {
            level.iter().find(|node| {
                node.key == *key
                    && node.value.as_deref().is_some_and(|pattern| {
                        pattern.strip_suffix('*').is_some_and(|prefix| value.starts_with(prefix))
                    })
            })
        };
        let next = exact.or_else(wildcard).or_else(|| by_title.get(*key).copied())?;
        path.push(next);
        if at + 1 == entries.len() {
            return next.rate_limit.as_ref().map(|_| path);
        }
        level = next.children();
    }
    None
}

fn random_level(random: &mut fastrand::Rng, depth: usize) -> Vec<Descriptor> {
    let mut level: Vec<Descriptor> = Vec::new();
    for _ in 0..random.usize(1..6) {
        let value =
            random.choice([None, Some("x"), Some("xy"), Some("x*"), Some("xy*"), Some("*")]).flatten();
        let mut node = format!("{{key: {}", random.choice(["a", "b"]).unwrap());
        if let Some(value) = value {
            node = format!("{node}, value: '{value}'");
        }
        if random.bool() {
            node += ", rate_limit: {unit: second, requests_per_unit: 1}";
        }
        let mut node: Descriptor = serde_saphyr::from_str(&format!("{node}}}")).unwrap();
        if level.iter().any(|other| other.title() == node.title()) {
            continue;
        }
        if depth > 1 && random.bool() {
            node.descriptors = Some(random_level(random, depth - 1));
        }
        level.push(node);
    }
    level
}

#[test]
fn rules_find_what_envoyproxy_ratelimit_finds() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut limits = 0;
    for _ in 0..300 {
        let mut domain = Domain::parse("domain: d", &mut Vec::new()).unwrap();
        domain.descriptors = Some(random_level(&mut random, 3));
        let rules = rules::of_domain(&domain).unwrap();
        let limiter = Limiter::builder().document(&write(&rules, Spend::default())).build().unwrap();
        for _ in 0..50 {
            let entry = |random: &mut fastrand::Rng| {
                (random.choice(["a", "b", "c"]).unwrap(), random.choice(["x", "xy", "xyz", "z"]).unwrap())
            };
            let entries: Vec<_> = (0..random.usize(1..4)).map(|_| entry(&mut random)).collect();
            let expected = found(domain.children(), &entries);
            let applied = applied(&limiter, "d", &entries);
            assert_eq!(
                applied.len(),
                usize::from(expected.is_some()),
                "{entries:?}\n{}",
                write(&rules, Spend::default())
            );
            if let (Some(path), Some((policy, key))) = (expected, applied.first()) {
                limits += 1;
                let titles: Vec<_> = path.iter().map(|node| node.title()).collect();
                assert_eq!(*policy, format!("d.{}", titles.join(".")), "{entries:?}");
                let counted = path.iter().zip(&entries).filter(|(node, _)| node.rank() > 0);
                let values: Vec<_> = counted.map(|(_, (_, value))| *value).collect();
                let expected = if values.is_empty() { "all".to_owned() } else { values.join("|") };
                assert_eq!(*key, expected, "{policy} {entries:?}");
            }
        }
    }
    assert!(limits > 1_000, "only {limits} limits were found");
}
