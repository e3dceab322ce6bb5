//! Canonical JSON (RFC 8785): one text for all documents that say the same, whether they were TOML or JSON, however they were
//! spaced and ordered. Its digest names a document.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::configuration::tree::{Field, Node, Value};

/// The canonical JSON of a checked document.
pub(crate) fn canonical(document: &Node<'_>) -> String {
    let mut out = String::new();
    write(document, &mut Vec::new(), &mut out);
    out
}

/// The SHA-256 of a canonical document, as 64 hexadecimal digits.
pub(crate) fn digest(canonical: &str) -> String {
    Sha256::digest(canonical).iter().fold(String::with_capacity(64), |mut digest, byte| {
        let _ = write!(digest, "{byte:02x}");
        digest
    })
}

/// Writes a value. `path` has the names of the fields that lead to it.
fn write<'n>(node: &'n Node<'_>, path: &mut Vec<&'n str>, out: &mut String) {
    match &node.value {
        Value::Table(fields) => {
            let mut sorted: Vec<&Field<'_>> = fields.iter().collect();
            sorted.sort_by(|a, b| a.name.encode_utf16().cmp(b.name.encode_utf16()));
            out.push('{');
            for (at, field) in sorted.into_iter().enumerate() {
                separate(at, out);
                write_text(&field.name, out);
                out.push(':');
                path.push(&field.name);
                write(&field.node, path, out);
                path.pop();
            }
            out.push('}');
        }
        Value::List(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                separate(at, out);
                write(element, path, out);
            }
            out.push(']');
        }
        // `fallback` is read as the same word.
        Value::Text(text) if text == "fallback" && matches!(path[..], ["policies", _, "outage"]) => {
            write_text("local", out);
        }
        Value::Text(text) => write_text(text, out),
        Value::Integer(integer) => {
            let _ = write!(out, "{integer}");
        }
        Value::Boolean(boolean) => {
            let _ = write!(out, "{boolean}");
        }
        // No checked document has them.
        Value::OtherNumber(text) => out.push_str(text),
        Value::Other(_) => out.push_str("null"),
    }
}

fn separate(at: usize, out: &mut String) {
    if at > 0 {
        out.push(',');
    }
}

/// Writes a text with the escapes of RFC 8785, section 3.2.2.2.
fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::tree;

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
    fn outage_has_one_name() {
        let expected =
            r#"{"outage":"fallback","policies":{"fallback":{"outage":"local","quotas":"fallback"}}}"#;
        assert_eq!(
            of("outage = 'fallback'\n[policies.fallback]\nquotas='fallback'\noutage='fallback'\n"),
            expected
        );
    }

    #[test]
    fn digest_is_that_of_the_text() {
        assert_eq!(digest("{}"), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    }
}
