use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::units::{VALUE, decimal};
use super::*;

/// What meters read from a response with these fields, whose body arrives in these pieces.
fn read(meters: &[&str], fields: &[(&str, &str)], pieces: &[&[u8]]) -> Vec<Option<u64>> {
    let each = meters.iter().map(|text| Some(Arc::new(Meter::parse(text).unwrap())));
    let mut reading = Arc::new(Meters::new(each).unwrap()).reading();
    reading.head(fields.iter().map(|(name, value)| (*name, value.as_bytes())));
    for piece in pieces {
        reading.body(piece);
    }
    reading.end();
    (0..meters.len()).map(|at| reading.units(at)).collect()
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json; charset=utf-8")];
const EVENTS: &[(&str, &str)] = &[("Content-Type", "text/event-stream")];

/// The same for one meter and a body that arrives whole and byte by byte.
fn read_body(meter: &str, fields: &[(&str, &str)], body: &str) -> Option<u64> {
    let whole = read(&[meter], fields, &[body.as_bytes()])[0];
    let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
    assert_eq!(read(&[meter], fields, &bytes)[0], whole, "{body}");
    whole
}

#[test]
fn numbers_are_read_exactly_and_rounded_up() {
    for (number, units) in [
        ("0", Some(0)),
        ("12", Some(12)),
        ("12.0", Some(12)),
        ("0.1", Some(1)),
        ("1.2e-05", Some(1)),
        ("1e3", Some(1_000)),
        ("1.5E+2", Some(150)),
        ("999999999999.000000000001", Some(1_000_000_000_000)),
        ("1000000000000", Some(1_000_000_000_000)),
        ("1000000000000.0000001", None),
        ("1000000000001", None),
        ("1e13", None),
        ("1e999999999", None),
        ("1e-999999999", Some(0)),
        ("0e999999999", Some(0)),
        ("-1", None),
        ("1e", None),
        ("1.", None),
        (".5", None),
        ("", None),
        ("1_000", None),
        ("NaN", None),
    ] {
        assert_eq!(read(&["header:x-spent"], &[("X-Spent", number)], &[])[0], units, "{number}");
    }
    assert_eq!(decimal(&[b"1.", &b"0".repeat(500)[..], b"1"].concat(), VALUE), Some(VALUE));
    assert_eq!(decimal(&b"9".repeat(500), VALUE), None);
}

#[test]
fn sums_are_exact() {
    let fields = [("x-in", "1000001"), ("x-out", "3"), ("x-cost", "0.000123")];
    for (meter, units) in [
        ("0.15*header:x-in + 0.6*header:x-out", 150_002),
        ("1000000*header:x-cost", 123),
        ("header:x-out - header:x-in", 0),
        ("3*header:x-out - 2.5*header:x-out", 2),
        ("0*header:x-in", 0),
        ("1000000*header:x-in", 1_000_001_000_000),
    ] {
        let expected = Some(units).filter(|units| *units <= 1_000_000_000_000);
        assert_eq!(read(&[meter], &fields, &[])[0], expected, "{meter}");
    }
    assert_eq!(read(&["header:x-in + header:x-missing"], &fields, &[])[0], None);
}

#[test]
fn usage_of_whole_responses() {
    let chat = json!({ "choices": [{ "message": { "content": "\"usage\": {\"prompt_tokens\": 9}" } }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
                   "prompt_tokens_details": { "cached_tokens": 64 } } });
    let responses = json!({ "usage": { "input_tokens": 100, "input_tokens_details": { "cached_tokens": 64 },
        "output_tokens": 20, "total_tokens": 120 } });
    let messages = json!({ "content": [{ "type": "text", "text": "{" }], "usage": { "input_tokens": 30,
        "cache_creation_input_tokens": 6, "cache_read_input_tokens": 64, "output_tokens": 20 } });
    let embeddings = json!({ "usage": { "prompt_tokens": 100, "total_tokens": 100 } });
    let kinds = ["usage:input", "usage:cached", "usage:cache_write", "usage:output", "usage:total"];
    for (body, expected) in [
        (chat, [100, 64, 0, 20, 120]),
        (responses, [100, 64, 0, 20, 120]),
        (messages, [100, 64, 6, 20, 120]),
        (embeddings, [100, 0, 0, 0, 100]),
    ] {
        let found = read(&kinds, JSON, &[body.to_string().as_bytes()]);
        assert_eq!(found, expected.map(Some), "{body}");
    }
    assert_eq!(read(&kinds, JSON, &[b"{\"usage\": null}"]), [None; 5]);
}

#[test]
fn usage_of_streams() {
    let chat = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\n\
                data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":20,\"total_tokens\":120}}\n\n\
                data: [DONE]\n\n";
    let responses = "event: response.output_text.delta\ndata: {\"delta\":\"{\\\"usage\\\":1\"}\n\n\
                     event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":100,\ndata: \"output_tokens\":20}}}\n\n";
    let messages = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":30,\
                    \"cache_read_input_tokens\":70,\"output_tokens\":1}}}\n\n\
                    : a comment\nevent: content_block_delta\ndata: {\"delta\":{\"text\":\"}\\\\\"}}\n\n\
                    event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":20}}\n\n";
    for stream in [chat, responses, messages] {
        for ending in ["\n", "\r\n", "\r"] {
            for mark in ["", "\u{feff}"] {
                let body = format!("{mark}{}", stream.replace('\n', ending));
                assert_eq!(read_body("usage:total", EVENTS, &body), Some(120), "{body:?}");
            }
        }
    }
    // A stream that broke has no output tokens to charge; those of the input are known.
    let (start, _) = messages.split_once("event: message_delta").unwrap();
    assert_eq!(read_body("usage:input", EVENTS, start), Some(100));
    assert_eq!(read_body("usage:output", EVENTS, start), None);
    assert_eq!(read_body("usage:total", EVENTS, start), None);
}

#[test]
fn places_of_json_have_names_and_indices() {
    let body = r#"{"a": [[1, 2], {"b": 3}], "c": {"d": {"e": 4}, "d2": 5}, "f\u0067": 6, "g": "7", "h": [8], "i": -1, "": 9}"#;
    for (place, number) in [
        ("a.0.1", Some(2)),
        ("a.1.b", Some(3)),
        ("c.d.e", Some(4)),
        ("c.d2", Some(5)),
        ("fg", Some(6)),
        ("g", None),
        ("h", None),
        ("h.0", Some(8)),
        ("h.1", None),
        ("i", None),
        ("c.d", None),
        ("e", None),
    ] {
        assert_eq!(read_body(&format!("json:{place}"), JSON, body), number, "{place}");
    }
    let lines = [("content-type", "application/x-ndjson")];
    assert_eq!(read_body("json:n", &lines, "{\"n\":1}\n{\"n\":2, \"open\": {\n{\"n\":3}\n"), Some(3));
}

#[test]
fn bodies_that_are_no_json_are_not_read() {
    let body = "{\"n\": 1}";
    for fields in [
        &[][..],
        &[("content-type", "text/plain")],
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
        &[("content-type", "")],
    ] {
        assert_eq!(read(&["json:n"], fields, &[body.as_bytes()]), [None], "{fields:?}");
    }
    for fields in [
        &[("content-type", "application/problem+json")][..],
        &[("CONTENT-TYPE", "Application/JSON"), ("content-encoding", "identity")],
    ] {
        assert_eq!(read(&["json:n"], fields, &[body.as_bytes()]), [Some(1)], "{fields:?}");
    }
    let each = [Some(Arc::new(Meter::parse("header:x").unwrap()))];
    let mut reading = Arc::new(Meters::new(each).unwrap()).reading();
    reading.head([("content-type", &b"application/json"[..])]);
    assert!(!reading.needs_body());
}

#[test]
fn what_a_long_body_leaves_behind_is_small() {
    let meter = Some(Arc::new(Meter::parse("json:a.b").unwrap()));
    let mut reading = Arc::new(Meters::new([meter]).unwrap()).reading();
    reading.head([("content-type", &b"application/json"[..])]);
    reading.body(b"{\"a\": ");
    for _ in 0..10_000 {
        reading.body(&b"[".repeat(1_000));
    }
    for _ in 0..10_000 {
        reading.body(&b"]".repeat(1_000));
    }
    reading.body(b", \"");
    reading.body(&b"name".repeat(100_000));
    reading.body(b"\": \"");
    reading.body(&b"text".repeat(100_000));
    reading.body(b"\", \"a\": {\"b\": ");
    reading.body(&b"1".repeat(100_000));
    assert_eq!(reading.units(0), None);
    reading.body(b", \"b\": 5}");
    assert_eq!(reading.units(0), Some(5));
}

#[test]
fn other_texts_are_refused() {
    for text in [
        "",
        " ",
        "total",
        "usage",
        "usage:",
        "usage:tokens",
        "usage:Total",
        "header:",
        "header:a b",
        "header:x\u{e9}",
        "json:",
        "json:a..b",
        "json:.a",
        "usage:input +",
        "+ usage:input",
        "usage:input usage:output",
        "usage:input * 3",
        "3 * usage:input",
        "-3*usage:input",
        "1e3*usage:input",
        "0.1234567*usage:input",
        "1000000.1*usage:input",
        "1000001*usage:input",
        "*usage:input",
        "1.*usage:input",
        "{tokens}",
    ] {
        let refused = Meter::parse(text).unwrap_err();
        assert!(refused.message().starts_with("spent is "), "{text}: {}", refused.message());
    }
    let terms = |count: usize| vec!["json:a"; count].join(" + ");
    assert!(Meter::parse(&terms(8)).is_ok());
    assert!(Meter::parse(&terms(9)).unwrap_err().message().contains("9 terms of at most 8"));
    let path = |count: usize| format!("json:{}", vec!["a"; count].join("."));
    assert!(Meter::parse(&path(16)).is_ok() && Meter::parse(&path(17)).is_err());
    assert!(
        Meter::parse(&format!("json:{}", "a".repeat(1_020))).unwrap_err().message().contains("1025 bytes")
    );
    assert!(Meter::parse("header:a*b").is_ok_and(|meter| meter.to_string() == "header:a*b"));
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..1_000_000_u64).prop_map(Value::from),
        "[ab\\\\\"{}\\[\\],:0-9\u{e9}]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[ab\\\\\"\u{e9}]{1,2}", inner, 0..5)
                .prop_map(|members: BTreeMap<String, Value>| members.into_iter().collect()),
        ]
    })
}

/// The places of all numbers in a document, as meters refer to them.
fn places(value: &Value, path: &str, all: &mut Vec<(String, u64)>) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Number(number) if !path.is_empty() => all.push((path.to_owned(), number.as_u64().unwrap())),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                places(item, &join(&at.to_string()), all);
            }
        }
        Value::Object(members) => {
            for (name, item) in members {
                places(item, &join(name), all);
            }
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn every_number_of_a_document_is_found_in_any_pieces(document in document(), size in 1..20_usize, pretty: bool) {
        let mut all = Vec::new();
        places(&document, "", &mut all);
        all.truncate(50);
        let body = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) }.unwrap();
        let meters: Vec<_> = all.iter().map(|(place, _)| format!("json:{place}")).collect();
        let meters: Vec<_> = meters.iter().map(String::as_str).collect();
        let pieces: Vec<_> = body.as_bytes().chunks(size).collect();
        let expected: Vec<_> = all.iter().map(|(_, number)| Some(*number)).collect();
        prop_assert_eq!(read(&meters, JSON, &pieces), expected);
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>, is_stream: bool) {
        read(&["usage:total + json:a.0"], if is_stream { EVENTS } else { JSON }, &[&bytes]);
    }
}
