use super::*;

fn refusal(text: &str, value: &str) -> String {
    Entry::parse(text, value).expect_err(text).message().to_owned()
}

#[test]
fn entry_is_read_with_its_value() {
    let value = r#"{"numbers": "4/minute", "until": "2026-09-21T00:00:20.5Z", "by": "ann", "why": "launch"}"#;
    let entry = Entry::parse("override p a%20b", value).unwrap();
    let quotas = OverrideQuotas::Quotas(Policy::parse("p", "4/minute").unwrap());
    assert_eq!(
        entry.subject,
        Subject::Override {
            policy: "p".into(),
            key: (*b"a b").into(),
            numbers: quotas,
            calendar: KeyOptions::default()
        }
    );
    assert_eq!(entry.until_us, Some(1_789_948_820_500_000));
    assert_eq!((entry.by.as_deref(), entry.why.as_deref()), (Some("ann"), Some("launch")));

    let entry = Entry::parse("override p %", r#"{"numbers": "gold"}"#).unwrap();
    assert_eq!(
        entry.subject,
        Subject::Override {
            policy: "p".into(),
            key: Box::default(),
            numbers: OverrideQuotas::Plan("gold".into()),
            calendar: KeyOptions::default()
        }
    );
    let entry = Entry::parse("override p k", r#"{"numbers": ["1/s", "9/h"]}"#).unwrap();
    assert!(
        matches!(entry.subject, Subject::Override { numbers: OverrideQuotas::Quotas(policy), .. } if policy.quotas().len() == 2)
    );

    let value = r#"{"numbers": "gold", "zone": "Asia/Tokyo", "from": "04-01"}"#;
    let Subject::Override { calendar, .. } = Entry::parse("override p k", value).unwrap().subject else {
        panic!()
    };
    assert_eq!(calendar, key_calendar::parse(b"from=04-01 zone=Asia/Tokyo").unwrap());
    for (value, about) in [
        (r#"{"numbers": "gold", "zone": "Asia/Tokio"}"#, "Asia/Tokyo"),
        (r#"{"numbers": "gold", "from": "31-12"}"#, "a month and a day, such as 04-01"),
        (r#"{"numbers": "gold", "from": 15}"#, "from is 15: allowed is a start such as \"15\""),
    ] {
        assert!(refusal("override p k", value).contains(about), "{}", refusal("override p k", value));
    }

    let entry = Entry::parse("allow user root", "{}").unwrap();
    assert!(matches!(entry.subject, Subject::List { denies: false, .. }) && entry.until_us.is_none());
    assert!(matches!(
        Entry::parse("deny key p k", "{}").unwrap().subject,
        Subject::List { denies: true, .. }
    ));
}

#[test]
fn entry_has_one_text_however_it_is_spelled() {
    for (text, canonical) in [
        ("deny user é", "deny user %C3%A9"),
        ("deny user %c3%a9", "deny user %C3%A9"),
        ("allow user %61nn", "allow user ann"),
        ("deny client ::ffff:192.0.2.1", "deny client 192.0.2.1"),
        ("deny client 2001:DB8:0::/32", "deny client 2001:db8::/32"),
        ("deny key p %2Fé", "deny key p /%C3%A9"),
        ("override p a%25é", "override p a%25%C3%A9"),
        ("override p %", "override p %"),
    ] {
        assert_eq!(Entry::canonical_text(text).as_deref(), Some(canonical), "{text}");
        assert_eq!(Entry::canonical_text(canonical).as_deref(), Some(canonical), "{text}");
    }
    for text in ["", "deny", "deny user", "deny user %", "forbid user ann", "override p", "override p %zz"] {
        let canonical = Entry::canonical_text(text);
        assert!(canonical.is_none() || canonical.as_deref() == Some(text), "{text}");
    }
}

#[test]
fn other_entries_are_refused_without_their_keys() {
    for (text, value, expected) in [
        ("", "{}", "begins with \"\""),
        ("deny", "{}", "list item is \"\""),
        ("denied secret", "{}", "begins with \"denied\""),
        ("override p", "{}", "allowed is override POLICY KEY"),
        ("override p a secret", "{}", "allowed is override POLICY KEY"),
        ("override p %zzsecret", "{\"numbers\": \"1/s\"}", "%XX"),
        ("override p/q secret", "{\"numbers\": \"1/s\"}", "policy name \"p/q\""),
        ("override p secret", "{}", "has no numbers"),
        ("override p secret", "{\"numbers\": []}", "no quotas"),
        ("override p secret", "{\"numbers\": \"1/s\", \"till\": 1}", "\"till\" is no field"),
        ("override p secret", "{\"numbers\": 5}", "numbers is 5"),
        ("override p secret", "{\"numbers\": \"1/s\", \"until\": \"noon\"}", "time is \"noon\""),
        ("override p secret", "{\"numbers\": \"1/s\", \"by\": null}", "by is null"),
        ("deny key p secret", "{\"numbers\": \"1/s\"}", "\"numbers\" is no field"),
        ("deny key p secret", "", "no JSON"),
        ("deny key p secret", "[]", "is a list"),
        ("deny key p secret", "polylimit = 1", "no JSON"),
    ] {
        let refusal = refusal(text, value);
        assert!(refusal.contains(expected) && !refusal.contains("secret"), "{text} {value}: {refusal}");
    }
    assert!(
        refusal(&format!("deny key p {}", "x".repeat(MAX_TEXT_BYTES)), "{}").contains("allowed are up to")
    );
    assert!(
        refusal("deny key p k", &format!("{{\"why\": \"{}\"}}", "x".repeat(MAX_VALUE_BYTES)))
            .contains("up to")
    );
}

#[test]
fn entry_has_no_effect_where_the_document_excludes_it() {
    let text = "polylimit = 1\npolicies.p = { quotas = '1/s', plans.gold = '2/s', lease = 'auto' }\n\
                policies.e = { quotas = '1/s', elastic = { policy = 'f', key = 'k' } }\npolicies.f.quotas = '1/s'\n";
    let document = Document::parse(text.as_bytes()).unwrap();
    let check = |text: &str, numbers: &str| {
        let value =
            if numbers.is_empty() { "{}".to_owned() } else { format!("{{\"numbers\": \"{numbers}\"}}") };
        Entry::parse(text, &value).unwrap().check(&document).map_err(|error| error.message().to_owned())
    };
    for (text, numbers) in [
        ("override p k", "gold"),
        ("override p k", "1/s"),
        ("override f k", "1/s fixed_window"),
        ("deny key p k", ""),
        ("deny user p", ""),
    ] {
        assert_eq!(check(text, numbers), Ok(()), "{text} {numbers}");
    }
    for (text, numbers, expected) in [
        ("override p k", "silver", "policy p has no plan \"silver\""),
        ("override e k", "gold", "policy e has no plan \"gold\""),
        ("override q k", "1/s", "there is no policy \"q\""),
        ("allow key q k", "", "there is no policy \"q\""),
        ("override p k", "1/s sliding_log", "cannot be leased"),
        ("override e k", "1 concurrent", "is elastic"),
        ("override f k", "1/s leaky_bucket", "is the pool of e"),
    ] {
        assert!(check(text, numbers).unwrap_err().contains(expected), "{text} {numbers}");
    }
}

#[test]
fn entries_are_replaced_removed_and_bounded() {
    let mut entries = Entries::default();
    for at in 0..Entries::MAX {
        entries.set(&format!("deny user u{at}"), "{}").unwrap();
    }
    assert!(entries.set("deny user one-more", "{}").unwrap_err().message().contains("100000 entries"));
    entries.set("deny user u7", r#"{"by": "ann"}"#).unwrap();
    assert!(entries.remove("deny user u8") && !entries.remove("deny user u8"));
    entries.set("deny user one-more", "{}").unwrap();
    assert_eq!((entries.len(), entries.iter().count()), (Entries::MAX, Entries::MAX));
    assert!(entries.set("nonsense", "{}").is_err() && entries.len() == Entries::MAX);
}
