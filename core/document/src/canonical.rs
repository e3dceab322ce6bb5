//! Canonical JSON (RFC 8785): the same text for all equivalent documents, whether they were TOML or JSON, and regardless of
//! spacing and order. Its digest identifies a document.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::tree::{Field, Node, Value};
use polylimit_rules::report::{hex, report_json};

/// The canonical JSON of a checked document.
pub(crate) fn canonical(document: &Node<'_>) -> String {
    let mut out = String::new();
    write(document, &mut out);
    out
}

/// The SHA-256 of a canonical document, as 64 hexadecimal digits.
pub(crate) fn digest(canonical: &str) -> String {
    hex(&Sha256::digest(canonical))
}

fn write(node: &Node<'_>, out: &mut String) {
    match &node.value {
        Value::Table(fields) => {
            let mut sorted: Vec<&Field<'_>> = fields.iter().collect();
            sorted.sort_by(|a, b| a.name.encode_utf16().cmp(b.name.encode_utf16()));
            out.push('{');
            for (at, field) in sorted.into_iter().enumerate() {
                separate(at, out);
                write_text(&field.name, out);
                out.push(':');
                write(&field.node, out);
            }
            out.push('}');
        }
        Value::List(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                separate(at, out);
                write(element, out);
            }
            out.push(']');
        }
        Value::Text(text) => write_text(text, out),
        Value::Integer(integer) => {
            let _ = write!(out, "{integer}");
        }
        Value::Boolean(boolean) => {
            let _ = write!(out, "{boolean}");
        }
        // A checked document has none.
        Value::OtherNumber(text) => out.push_str(text),
        Value::Other(_) => out.push_str("null"),
    }
}

fn separate(at: usize, out: &mut String) {
    if at > 0 {
        out.push(',');
    }
}

/// Writes a text: `serde_json` has the escapes of RFC 8785, section 3.2.2.2.
fn write_text(text: &str, out: &mut String) {
    out.push_str(&report_json(&text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    fn of(text: &str) -> String {
        canonical(&tree::parse(text).unwrap())
    }

    #[test]
    fn same_data_has_the_same_canonical_text() {
        let expected = r#"{"a":[1,"x"],"b":{"c":true,"d":{}},"polylimit":1}"#;
        for text in [
            "polylimit = 1\na = [ 1, \"x\" ] # comment\n[b]\nc = true\nd = {}\n",
            "b.d = {}\nb.c = true\na = [1,\n'x']\npolylimit = 0x1\n",
            " {\"polylimit\":1, \"b\": {\"d\": {}, \"c\": true},\n\"a\": [1, \"\\u0078\"]}",
            expected,
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }

    #[test]
    fn texts_and_names_are_written_as_in_rfc_8785() {
        // The example of section 3.2.2 and the order of section 3.2.3.
        let text = r#"{"s": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"}"#;
        assert_eq!(of(text), "{\"s\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
        let names = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
        assert_eq!(of(names), "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}");
    }

    #[test]
    fn digest_is_that_of_the_text() {
        assert_eq!(digest("{}"), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    }
}
