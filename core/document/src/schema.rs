//! The JSON Schema of a document, for editors and for checks before a document is applied. It is generated from the table of
//! fields that the reader checks documents against; only the core checks the contents of texts.

use serde_json::{Map, Value, json};

use crate::shape::{DOCUMENT, Shape, Table};

/// The schema, as JSON with line breaks.
pub fn document_schema() -> String {
    let mut schema = table(&DOCUMENT);
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("polylimit's policy document, version 1"));
    schema.insert("not".to_owned(), json!({ "required": ["utc_offset", "zone"] }));
    format!("{:#}\n", Value::Object(schema))
}

fn table(table: &Table) -> Map<String, Value> {
    let mut properties = Map::new();
    for field in table.fields {
        let mut property = shape(&field.shape);
        property.insert("description".to_owned(), json!(field.about));
        properties.insert(field.name.to_owned(), Value::Object(property));
    }
    let required: Vec<_> =
        table.fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    let mut schema = kind("object");
    schema.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    let others = match table.others {
        // It applies to the fields above as well, whose names match.
        Some((pattern, others)) => {
            schema.insert("propertyNames".to_owned(), json!({ "pattern": pattern }));
            Value::Object(shape(others))
        }
        None => json!(false),
    };
    schema.insert("additionalProperties".to_owned(), others);
    schema
}

fn shape(of: &Shape) -> Map<String, Value> {
    let with = |name: &str, key: &str, value: Value| {
        let mut schema = kind(name);
        schema.insert(key.to_owned(), value);
        schema
    };
    match of {
        Shape::Text(text) => match text.pattern {
            Some(pattern) => with("string", "pattern", json!(pattern)),
            None => kind("string"),
        },
        Shape::Word(words) => with("string", "enum", json!(words)),
        Shape::Integer { min, max } => {
            let mut schema = with("integer", "minimum", json!(min));
            schema.insert("maximum".to_owned(), json!(max));
            schema
        }
        Shape::Boolean => kind("boolean"),
        Shape::List(element) => with("array", "items", Value::Object(shape(element))),
        Shape::Several(element) => {
            let one = shape(element);
            let several = with("array", "items", Value::Object(one.clone()));
            any_of(&[one, several])
        }
        Shape::Map(value) => with("object", "additionalProperties", Value::Object(shape(value))),
        Shape::Table(fields) => table(fields),
        Shape::Either(first, second) => any_of(&[shape(first), shape(second)]),
    }
}

fn kind(name: &str) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!(name))])
}

fn any_of(schemas: &[Map<String, Value>; 2]) -> Map<String, Value> {
    Map::from_iter([("anyOf".to_owned(), json!(schemas))])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// `WRITE_DOCS=1 cargo test -p polylimit-document --lib schema` writes the file.
    #[test]
    fn schema_in_docs_is_what_the_code_writes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/polylimit.schema.json");
        if std::env::var_os("WRITE_DOCS").is_some() {
            std::fs::write(&path, document_schema()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(
            written == document_schema(),
            "docs/polylimit.schema.json is not what the code writes: see this test's comment"
        );
    }

    /// Whether a schema of the keywords that are written above allows a value.
    fn allows(schema: &Value, value: &Value) -> bool {
        let Some(keywords) = schema.as_object() else { return schema == &json!(true) };
        keywords.iter().all(|(keyword, says)| match &**keyword {
            // The two patterns are for names and texts that the core checks by itself.
            "$schema" | "title" | "description" | "pattern" | "propertyNames" => true,
            "type" => match says.as_str() {
                Some("object") => value.is_object(),
                Some("array") => value.is_array(),
                Some("string") => value.is_string(),
                Some("integer") => value.is_i64(),
                Some("boolean") => value.is_boolean(),
                _ => panic!("type {says}"),
            },
            "enum" => says.as_array().unwrap().contains(value),
            "minimum" => value.as_i64() >= says.as_i64(),
            "maximum" => value.as_i64() <= says.as_i64(),
            "items" => {
                value.as_array().is_none_or(|elements| elements.iter().all(|element| allows(says, element)))
            }
            "anyOf" => says.as_array().unwrap().iter().any(|schema| allows(schema, value)),
            "required" => {
                says.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "not" => !allows(says, value),
            "properties" => says
                .as_object()
                .unwrap()
                .iter()
                .all(|(name, schema)| value.get(name).is_none_or(|value| allows(schema, value))),
            "additionalProperties" => value.as_object().is_none_or(|fields| {
                let known = keywords.get("properties");
                fields.iter().all(|(name, value)| {
                    known.is_some_and(|known| known.get(name).is_some()) || allows(says, value)
                })
            }),
            _ => panic!("{keyword}"),
        })
    }

    #[test]
    fn schema_allows_every_document_that_is_read() {
        let schema: Value = serde_json::from_str(&document_schema()).unwrap();
        let read = |name| {
            let path = format!("{}/../../tests/conformance/{name}", env!("CARGO_MANIFEST_DIR"));
            let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            file["cases"].as_array().unwrap().clone()
        };
        let mut documents = 0;
        for case in ["policies.json", "zones.json"].into_iter().flat_map(read) {
            let changed = case["ops"].as_array().unwrap().iter().map(|operation| &operation["document"]);
            for document in changed.chain([&case["document"]]).filter(|document| !document.is_null()) {
                assert!(allows(&schema, document), "{}: {document}", case["name"]);
                documents += 1;
            }
        }
        assert!(documents > 100);
        for refused in [
            json!({}),
            json!({ "polylimit": 2 }),
            json!({ "polylimit": 1, "rule": [] }),
            json!({ "polylimit": 1, "utc_offset": "+00:00", "zone": "UTC" }),
            json!({ "polylimit": 1, "policies": { "p": {} } }),
            json!({ "polylimit": 1, "policies": { "p": { "quotas": 5 } } }),
            json!({ "polylimit": 1, "rules": [{ "apply": [], "match": { "header": "x" } }] }),
        ] {
            assert!(!allows(&schema, &refused), "{refused}");
        }
    }
}
