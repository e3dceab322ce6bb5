//! Any text is either a document or refused at a place within it.

use proptest::prelude::*;

use super::*;

/// Reads a text, and checks the properties that hold for every text.
fn check(text: &str) -> Result<(), TestCaseError> {
    match Document::parse(text.as_bytes()) {
        Ok(document) => {
            let again = Document::parse(document.canonical().as_bytes());
            prop_assert!(again.is_ok_and(|again| again.canonical() == document.canonical()), "{text}");
        }
        Err(error) => {
            let line = text.split('\n').nth(error.line - 1);
            prop_assert!(
                line.is_some_and(|line| error.column <= line.chars().count() + 1),
                "{text}: {error}"
            );
            prop_assert!(!error.message.is_empty() && error.message.len() < 2_000, "{text}: {error}");
        }
    }
    Ok(())
}

/// A text with a part of it removed, repeated, or replaced by another text.
fn mutated(text: &'static str) -> impl Strategy<Value = String> {
    const PARTS: [&str; 14] = [
        "",
        "\n",
        "\"",
        "'",
        "[",
        "]]",
        "{",
        "}",
        "=",
        "=1",
        "-9223372036854775808",
        "é",
        "\0",
        "\"\\ud800\"",
    ];
    (0..text.len(), 0..40_usize, 0..=PARTS.len()).prop_map(move |(start, length, part)| {
        let middle = text.get(start..start + length).unwrap_or_default();
        let part = PARTS.get(part).map_or_else(|| middle.repeat(2), |part| (*part).to_owned());
        let after = text.get(start + middle.len()..).unwrap_or_default();
        [text.get(..start).unwrap_or_default(), &part, after].concat()
    })
}

/// JSON with the names of a document's fields and values of any kind.
fn json() -> impl Strategy<Value = Value> {
    const NAMES: [&str; 37] = [
        "polylimit",
        "enabled",
        "utc_offset",
        "zone",
        "client",
        "trust",
        "header",
        "policies",
        "p",
        "quotas",
        "plans",
        "overrides",
        "numbers",
        "until",
        "mode",
        "outage",
        "lease",
        "candidate",
        "compare",
        "enforce",
        "elastic",
        "policy",
        "key",
        "headroom",
        "counts",
        "penalty",
        "denials",
        "within",
        "block",
        "rules",
        "match",
        "unless",
        "apply",
        "continue",
        "lists",
        "deny",
        "during",
    ];
    const TEXTS: [&str; 17] = [
        "1/s",
        "5/minute; 9/h",
        "2 concurrent",
        "p",
        "gold",
        "auto",
        "*",
        "!",
        "a*",
        "/a/{b}/{*c}",
        "{path.b}",
        "key p k",
        "192.0.2.0/24",
        "fri-mon 22:00-06:00",
        "2027-01-01T00:00:00Z",
        "1m",
        "America/New_York",
    ];
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..100_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(Value::Null),
        proptest::sample::select(&TEXTS[..]).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        let name = proptest::sample::select(&NAMES[..]).prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(name, inner, 0..8).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_a_document_or_is_refused(text in ".{0,200}") {
        check(&text)?;
        check(&format!("polylimit = 1\n{text}"))?;
        check(&format!("{{{text}"))?;
    }

    #[test]
    fn any_bytes_are_a_document_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Document::parse(&bytes);
    }

    #[test]
    fn a_changed_document_is_read_or_refused(text in mutated(EXAMPLE)) {
        check(&text)?;
    }

    #[test]
    fn any_json_is_a_document_or_is_refused(mut value in json(), policy in json()) {
        check(&value.to_string())?;
        if let Some(document) = value.as_object_mut() {
            document.insert("polylimit".to_owned(), Value::from(1));
            document.insert("policies".to_owned(), serde_json::json!({ "p": policy }));
            check(&value.to_string())?;
        }
    }
}
