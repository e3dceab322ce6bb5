//! TOML, read by the crate `toml`, which knows the span of every key and value.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Field, Node, Refusal, Value};

pub(super) fn parse(text: &str) -> Result<Node<'_>, Refusal> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Refusal::new(at, format!("no TOML: {}", error.message()))
    })?;
    Ok(Node { at: 0, value: Value::Table(fields(table.into_inner())) })
}

fn fields(table: DeTable<'_>) -> Vec<Field<'_>> {
    let mut fields: Vec<_> = table
        .into_iter()
        .map(|(name, value)| Field { at: name.span().start, name: name.into_inner(), node: node(value) })
        .collect();
    fields.sort_by_key(|field| field.at);
    fields
}

fn node(spanned: Spanned<DeValue<'_>>) -> Node<'_> {
    let at = spanned.span().start;
    let value = match spanned.into_inner() {
        DeValue::String(text) => Value::Text(text),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::OtherNumber(Cow::Owned(integer.to_string())),
        },
        DeValue::Float(float) => Value::OtherNumber(Cow::Owned(float.as_str().to_owned())),
        DeValue::Boolean(boolean) => Value::Boolean(boolean),
        DeValue::Datetime(_) => Value::Other("a date or time without quotes"),
        DeValue::Array(elements) => Value::List(elements.into_iter().map(node).collect()),
        DeValue::Table(table) => Value::Table(fields(table)),
    };
    Node { at, value }
}
