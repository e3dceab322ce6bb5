//! The fields of a document, and the kinds of their values. The reader checks every document against this table, and the JSON
//! Schema is generated from it.

mod tables;

use crate::tree::{Node, Refusal, Value};
use polylimit_rules::error::excerpt;

pub(crate) use tables::{DOCUMENT, LIST_ENTRY, OVERRIDE_ENTRY};

/// The expected form of a value.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A text. Its contents are checked where they are interpreted.
    Text(Text),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number in these bounds.
    Integer {
        min: i64,
        max: i64,
    },
    Boolean,
    /// One value, or a list of them.
    Several(&'static Shape),
    List(&'static Shape),
    Table(&'static Table),
    /// A table whose names the document chooses.
    Map(&'static Shape),
    /// A value of the first shape, or one of the second, which is of another kind.
    Either(&'static Shape, &'static Shape),
}

/// A text, for messages and the schema.
#[derive(Debug)]
pub(crate) struct Text {
    /// The allowed texts, such as `a duration such as 15m`.
    pub(crate) allowed: &'static str,
    /// A regular expression that every allowed text matches.
    pub(crate) pattern: Option<&'static str>,
}

/// The fields of a table.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name in messages, with an article.
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [FieldShape],
    /// The fields whose names are not in the table, if any are allowed: their names as a regular expression, and their shape.
    pub(crate) others: Option<(&'static str, &'static Shape)>,
}

/// A field of a table.
#[derive(Debug)]
pub(crate) struct FieldShape {
    pub(crate) name: &'static str,
    pub(crate) is_required: bool,
    /// Its meaning and its default.
    pub(crate) about: &'static str,
    pub(crate) shape: Shape,
}

impl Shape {
    /// Refuses a value of another shape, at the first difference. `name` is that of the field.
    pub(crate) fn check(&self, name: &str, node: &Node<'_>) -> Result<(), Refusal> {
        if !self.is_kind_of(node) {
            return Err(self.refusal(name, node));
        }
        match (self, &node.value) {
            (Self::Word(words), Value::Text(text)) if !words.contains(&&**text) => {
                Err(self.refusal(name, node))
            }
            (Self::Integer { min, max }, Value::Integer(integer)) if !(min..=max).contains(&integer) => {
                Err(self.refusal(name, node))
            }
            (Self::Several(shape) | Self::List(shape), Value::List(elements)) => {
                elements.iter().try_for_each(|element| shape.check(name, element))
            }
            (Self::Several(shape), _) => shape.check(name, node),
            (Self::Map(shape), Value::Table(fields)) => {
                fields.iter().try_for_each(|field| shape.check(name, &field.node))
            }
            (Self::Table(table), Value::Table(_)) => table.check(node),
            (Self::Either(first, second), _) => {
                let shape = if first.is_kind_of(node) { first } else { second };
                shape.check(name, node)
            }
            _ => Ok(()),
        }
    }

    /// Whether a value is of this shape's kind, regardless of its contents.
    fn is_kind_of(&self, node: &Node<'_>) -> bool {
        match self {
            Self::Text(_) | Self::Word(_) => matches!(node.value, Value::Text(_)),
            Self::Integer { .. } => matches!(node.value, Value::Integer(_)),
            Self::Boolean => matches!(node.value, Value::Boolean(_)),
            Self::List(_) => matches!(node.value, Value::List(_)),
            Self::Table(_) | Self::Map(_) => matches!(node.value, Value::Table(_)),
            Self::Several(shape) => matches!(node.value, Value::List(_)) || shape.is_kind_of(node),
            Self::Either(first, second) => first.is_kind_of(node) || second.is_kind_of(node),
        }
    }

    fn refusal(&self, name: &str, node: &Node<'_>) -> Refusal {
        Refusal::new(node.at, format!("{name} is {node}: allowed is {}", self.allowed()))
    }

    /// The allowed values, in words.
    pub(crate) fn allowed(&self) -> String {
        match self {
            Self::Text(text) => text.allowed.to_owned(),
            Self::Word(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
                words.join(" or ")
            }
            Self::Integer { min, max } if min == max => min.to_string(),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Boolean => "true or false".to_owned(),
            Self::Several(shape) => format!("{}, or a list of such", shape.allowed()),
            Self::List(shape) => format!("a list, each element {}", shape.allowed()),
            Self::Table(table) => format!("a table with the fields {}", table.names()),
            Self::Map(shape) => format!("a table, each value {}", shape.allowed()),
            Self::Either(first, second) => format!("{}, or {}", first.allowed(), second.allowed()),
        }
    }
}

impl Table {
    /// Refuses unknown fields, missing fields, and values of another shape.
    pub(crate) fn check(&self, node: &Node<'_>) -> Result<(), Refusal> {
        for field in node.fields() {
            let known = self.fields.iter().find(|known| known.name == field.name);
            let shape = known.map(|known| &known.shape).or(self.others.map(|(_, shape)| shape));
            let Some(shape) = shape else {
                let message = format!(
                    "{} is no field of {}: allowed are {}",
                    excerpt(&field.name),
                    self.name,
                    self.names()
                );
                return Err(Refusal::new(field.at, message));
            };
            shape.check(&field.name, &field.node)?;
        }
        match self.fields.iter().find(|field| field.is_required && node.get(field.name).is_none()) {
            Some(field) => {
                let (table, name, allowed) = (self.name, field.name, field.shape.allowed());
                Err(Refusal::new(node.at, format!("{table} has no {name}, which it needs: {allowed}")))
            }
            None => Ok(()),
        }
    }

    /// Refuses a value of another shape for one of the fields.
    pub(crate) fn check_field(&self, name: &str, node: &Node<'_>) -> Result<(), Refusal> {
        let field = self.fields.iter().find(|field| field.name == name);
        field.map_or(Ok(()), |field| field.shape.check(name, node))
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.fields.iter().map(|field| field.name).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests;
