//! JSON, read by `serde_json`, which reports where an error is but not where a value is. Its raw values are slices of the text,
//! and a slice's address gives its place.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::{Field, Node, Refusal, Value};

/// Each level is read again for every level above it. A document has 6.
const MOST_LEVELS: usize = 16;

pub(super) fn parse(text: &str) -> Result<Node<'_>, Refusal> {
    let reader = Reader { text };
    let raw: &RawValue = reader.read(text)?;
    reader.node(raw, 1)
}

struct Reader<'t> {
    text: &'t str,
}

impl<'t> Reader<'t> {
    fn node(&self, raw: &'t RawValue, level: usize) -> Result<Node<'t>, Refusal> {
        let part = raw.get();
        let at = self.offset(part);
        if level > MOST_LEVELS {
            return Err(Refusal::new(at, format!("values within values, more than {MOST_LEVELS} deep")));
        }
        let value = match part.as_bytes().first() {
            Some(b'{') => Value::Table(self.fields(part, level)?),
            Some(b'[') => {
                let elements: Vec<&'t RawValue> = self.read(part)?;
                let nodes = elements.into_iter().map(|element| self.node(element, level + 1));
                Value::List(nodes.collect::<Result<_, _>>()?)
            }
            Some(b'"') => Value::Text(self.read::<Text<'t>>(part)?.0),
            Some(b't') => Value::Boolean(true),
            Some(b'f') => Value::Boolean(false),
            Some(b'n') => Value::Other("null"),
            _ => part.parse().map_or(Value::OtherNumber(Cow::Borrowed(part)), Value::Integer),
        };
        Ok(Node { at, value })
    }

    fn fields(&self, part: &'t str, level: usize) -> Result<Vec<Field<'t>>, Refusal> {
        let Members(members) = self.read(part)?;
        let mut fields = Vec::with_capacity(members.len());
        // A name begins at the first quotation mark after the value before it.
        let mut after = self.offset(part);
        for (name, raw) in members {
            let at = after + self.text[after..].find('"').unwrap_or(0);
            after = self.offset(raw.get()) + raw.get().len();
            fields.push(Field { name, at, node: self.node(raw, level + 1)? });
        }
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name).then(a.at.cmp(&b.at)));
        let twice = sorted.windows(2).find(|pair| pair[0].name == pair[1].name);
        match twice {
            Some(pair) => Err(Refusal::new(pair[1].at, "the name was given before in the same table")),
            None => Ok(fields),
        }
    }

    fn read<T: Deserialize<'t>>(&self, part: &'t str) -> Result<T, Refusal> {
        serde_json::from_str(part).map_err(|error| {
            let lines_before = error.line().saturating_sub(1);
            let line: usize = part.split_inclusive('\n').take(lines_before).map(str::len).sum();
            let at = (line + error.column().saturating_sub(1)).min(part.len());
            let message = error.to_string();
            // The place in the message is relative to the part.
            let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
            Refusal::new(self.offset(part) + at, format!("no JSON: {message}"))
        })
    }

    /// The offset of a part within the text.
    fn offset(&self, part: &'t str) -> usize {
        part.as_ptr().addr().saturating_sub(self.text.as_ptr().addr())
    }
}

/// A text, borrowed if nothing in it is escaped.
struct Text<'t>(Cow<'t, str>);

impl<'t> Deserialize<'t> for Text<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'t> Visitor<'t> for TextVisitor {
            type Value = Text<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'t str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// The names of an object with the texts of their values, in order, including duplicates.
struct Members<'t>(Vec<(Cow<'t, str>, &'t RawValue)>);

impl<'t> Deserialize<'t> for Members<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'t> Visitor<'t> for MembersVisitor {
            type Value = Members<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'t>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}
