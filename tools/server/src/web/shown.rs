//! How keys are shown to operators: as they are, as digests, or not at all.

use axum::body::Body;
use http::Response;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::App;
use crate::options::{ShownKeys, key_digest};
use crate::web::refusal::json;

/// The fields that hold a key.
const KEYS: [&str; 2] = ["key", "key_base64"];
/// The fields that hold an item of a list or an override, whose text may end with a key.
const ITEMS: [&str; 3] = ["item", "entry", "entries"];

/// A value as JSON, with the keys in it as the options say.
pub(super) fn shown(app: &App, value: &impl Serialize) -> Response<Body> {
    let keys = app.options.show_keys;
    if keys == ShownKeys::Plain {
        return json(value);
    }
    match serde_json::to_value(value) {
        Ok(mut value) => {
            hide(&mut value, keys, false);
            json(&value)
        }
        // The same error again, as a response.
        Err(_) => json(value),
    }
}

/// A value as part of an answer, with the keys in it as the options say.
pub(super) fn shown_value(app: &App, value: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    if app.options.show_keys != ShownKeys::Plain {
        hide(&mut value, app.options.show_keys, false);
    }
    value
}

/// An item of a list for the log.
pub(super) fn shown_item(app: &App, item: &str) -> String {
    match app.options.show_keys {
        ShownKeys::Plain => item.to_owned(),
        keys => hidden_item(item, keys),
    }
}

fn hide(value: &mut Value, keys: ShownKeys, is_item: bool) {
    match value {
        Value::Object(fields) => hide_fields(fields, keys),
        Value::Array(values) => values.iter_mut().for_each(|value| hide(value, keys, is_item)),
        Value::String(text) if is_item => *text = hidden_item(text, keys),
        _ => {}
    }
}

fn hide_fields(fields: &mut Map<String, Value>, keys: ShownKeys) {
    let known =
        KEYS.iter().filter_map(|name| fields.remove(*name)).find_map(|key| key.as_str().map(key_digest));
    match keys {
        ShownKeys::Off => {
            if fields.remove("key_digest").is_some() || known.is_some() {
                fields.insert("key".to_owned(), Value::Null);
            }
        }
        _ => {
            if let Some(digest) = known {
                fields.insert("key_digest".to_owned(), Value::from(digest));
            }
        }
    }
    for (name, value) in fields {
        hide(value, keys, ITEMS.contains(&name.as_str()));
    }
}

/// `deny key POLICY KEY`, `key POLICY KEY` and `override POLICY KEY` without their key; other texts as they are.
fn hidden_item(text: &str, keys: ShownKeys) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let has_key = words.iter().take(2).any(|word| *word == "key") || words.first() == Some(&"override");
    match (words.split_last(), has_key) {
        (Some((key, before)), true) => {
            let key = if keys == ShownKeys::Hash { format!("#{}", key_digest(key)) } else { "#".to_owned() };
            format!("{} {key}", before.join(" "))
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_hidden_wherever_they_stand() {
        let told = json!({
            "keys": [{ "policy": "api", "key": "alice" }, { "policy": "api", "key_base64": "//8=" }],
            "override_entry": { "entry": "override api alice" },
            "history": [{ "entries": [["deny key api alice", null], ["deny client 192.0.2.1", "{}"]] }],
            "items": [{ "item": "key api alice" }, { "item": "user monitoring" }],
        });
        for keys in [ShownKeys::Hash, ShownKeys::Off] {
            let mut hidden = told.clone();
            hide(&mut hidden, keys, false);
            let text = hidden.to_string();
            assert!(!text.contains("alice") && !text.contains("//8="), "{text}");
            assert!(text.contains("user monitoring") && text.contains("deny client 192.0.2.1"), "{text}");
        }
        let mut hashed = told;
        hide(&mut hashed, ShownKeys::Hash, false);
        assert_eq!(hashed["keys"][0]["key_digest"], "2bd806c97f0e00af");
        assert_eq!(hashed["override_entry"]["entry"], "override api #2bd806c97f0e00af");
    }
}
