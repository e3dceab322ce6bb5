use std::fmt::Write as _;

use super::*;

/// The tree as text: every name and value with its line and column.
fn outline(text: &str) -> String {
    fn write(text: &str, node: &Node<'_>, out: &mut String) {
        let (line, column) = place(text.as_bytes(), node.at);
        let _ = write!(out, "{line}:{column} ");
        match &node.value {
            Value::Table(fields) => {
                out.push('{');
                for field in fields {
                    let (line, column) = place(text.as_bytes(), field.at);
                    let _ = write!(out, "{line}:{column} {}=", field.name);
                    write(text, &field.node, out);
                }
                out.push_str("} ");
            }
            Value::List(elements) => {
                out.push('[');
                for element in elements {
                    write(text, element, out);
                }
                out.push_str("] ");
            }
            _ => {
                let _ = write!(out, "{node} ");
            }
        }
    }
    let mut out = String::new();
    write(text, &parse(text).unwrap(), &mut out);
    out.replace(" }", "}").replace(" ]", "]").trim_end().to_owned()
}

/// The refusal as `line:column message`.
fn refusal(text: &str) -> String {
    let refusal = parse(text).unwrap_err();
    let (line, column) = place(text.as_bytes(), refusal.at);
    format!("{line}:{column} {}", refusal.message)
}

#[test]
fn values_of_toml_have_their_lines_and_columns() {
    assert_eq!(
        outline("a = 1\n[t.u]\nb = [\n  \"é\", true ]\n[[r]]\nc.d = { e = 0x10 }\n"),
        "1:1 {1:1 a=1:5 1 2:2 t=2:2 {2:4 u=2:1 {3:1 b=3:5 [4:3 \"é\" 4:8 true]}} 5:3 r=5:1 [5:1 {6:1 c=6:1 {6:3 d=6:7 {6:9 e=6:13 16}}}]}"
    );
}

#[test]
fn values_of_json_have_their_lines_and_columns() {
    assert_eq!(
        outline(" {\"a\": 1,\n \"t\": {\"\\u0062\": [\"é\", true , {}\n], \"n\": null}, \"f\":-1.5e3}"),
        "1:2 {1:3 a=1:8 1 2:2 t=2:7 {2:8 b=2:18 [2:19 \"é\" 2:24 true 2:31 {}] 3:4 n=3:9 null} 3:16 f=3:20 -1.5e3}"
    );
}

#[test]
fn a_broken_text_is_refused_at_its_place() {
    for (text, expected) in [
        ("a = 1\nb = \"x\n", "2:7 no TOML: invalid basic string"),
        ("a = 1\na = 2\n", "2:1 no TOML: duplicate key"),
        ("{\"a\": 1,\n \"a\": 2}", "2:2 the name was given before"),
        ("{\"a\": 1,\n b: 2}", "2:2 no JSON: key must be a string"),
        ("{\"a\": 1\n", "2:1 no JSON: EOF while parsing an object"),
        ("{\"a\": 1} x", "1:10 no JSON: trailing characters"),
        ("{\"a\": [\n\"x\", \"\\ud800\"]}", "2:"),
        ("{\"a\": 01}", "1:8 no JSON"),
    ] {
        assert!(refusal(text).starts_with(expected), "{text}: {}", refusal(text));
    }
}

#[test]
fn deep_values_are_refused_and_do_not_overflow_the_stack() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    assert!(parse(&format!("{{\"a\": {}}}", deep("[", "]"))).is_err());
    assert!(parse(&deep("{\"a\":", "}")).is_err());
    assert!(parse(&format!("a = {}", deep("[", "]"))).is_err());
    assert!(parse(&format!("a{} = 1", ".a".repeat(100_000))).is_err());
}

#[test]
fn a_place_outside_of_the_text_is_its_end() {
    assert_eq!(place("a\né".as_bytes(), 9), (2, 2));
    assert_eq!(place(b"", 0), (1, 1));
}
