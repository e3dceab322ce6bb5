//! A document as values with their places, common to TOML and JSON. Readers of the tree do not know which of them it was.

mod json;
mod toml;

use std::borrow::Cow;
use std::fmt;

use polylimit_rules::error::Error;

/// A value, and the byte at which it begins. For a table with a header in TOML, that is the header.
#[derive(Clone, Debug)]
pub(crate) struct Node<'t> {
    pub(crate) at: usize,
    pub(crate) value: Value<'t>,
}

/// A value of a document.
#[derive(Clone, Debug)]
pub(crate) enum Value<'t> {
    /// Fields in the order in which they stand in the text; no name is duplicated.
    Table(Vec<Field<'t>>),
    List(Vec<Node<'t>>),
    Text(Cow<'t, str>),
    Integer(i64),
    Boolean(bool),
    /// A number that is not a 64-bit integer, as written.
    OtherNumber(Cow<'t, str>),
    /// TOML's dates and times, and JSON's null, which no field accepts.
    Other(&'static str),
}

/// A field of a table: its name, the byte at which the name begins, and the value.
#[derive(Clone, Debug)]
pub(crate) struct Field<'t> {
    pub(crate) name: Cow<'t, str>,
    pub(crate) at: usize,
    pub(crate) node: Node<'t>,
}

/// Why a document is refused, and the byte of the text that is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// The refusal of another part of the core, at the place of the text that it was given.
    pub(crate) fn of(at: usize, error: &Error) -> Self {
        Self::new(at, error.message())
    }
}

/// Reads TOML, or JSON when the first byte other than white space is `{`.
pub(crate) fn parse(text: &str) -> Result<Node<'_>, Refusal> {
    let is_json = text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{');
    if is_json { json::parse(text) } else { toml::parse(text) }
}

/// Reads JSON alone.
pub(crate) fn parse_json(text: &str) -> Result<Node<'_>, Refusal> {
    json::parse(text)
}

/// The line and the column of a byte, both from 1; columns are counted in characters.
pub(crate) fn place(text: &[u8], at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let (mut line, mut start) = (0, before);
    for part in before.split(|byte| *byte == b'\n') {
        (line, start) = (line + 1, part);
    }
    // A continuation byte of UTF-8 begins no character.
    let column = start.iter().filter(|byte| **byte & 0xc0 != 0x80).count() + 1;
    (line, column)
}

impl<'t> Node<'t> {
    /// The fields of a table; none of another value.
    pub(crate) fn fields(&self) -> &[Field<'t>] {
        match &self.value {
            Value::Table(fields) => fields,
            _ => &[],
        }
    }

    /// The value of a field, if this is a table that has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.fields().iter().find(|field| field.name == name).map(|field| &field.node)
    }

    /// The elements of a list; any other value counts as a list of one.
    pub(crate) fn elements(&self) -> &[Self] {
        match &self.value {
            Value::List(elements) => elements,
            _ => std::slice::from_ref(self),
        }
    }

    /// The text; `None` for another value.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a text, or why the text is refused, at its place. A value of another kind counts as an empty text.
    pub(crate) fn read<T>(&self, parse: impl FnOnce(&str) -> Result<T, Error>) -> Result<T, Refusal> {
        parse(self.text().unwrap_or_default()).map_err(|error| Refusal::of(self.at, &error))
    }

    /// The integer; `None` for another value.
    pub(crate) fn integer(&self) -> Option<i64> {
        match self.value {
            Value::Integer(integer) => Some(integer),
            _ => None,
        }
    }

    /// A whole number whose bounds are checked; 0 for another value.
    pub(crate) fn number<T: TryFrom<i64> + Default>(&self) -> T {
        self.integer().and_then(|integer| T::try_from(integer).ok()).unwrap_or_default()
    }

    /// The boolean; `None` for another value.
    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value {
            Value::Boolean(boolean) => Some(boolean),
            _ => None,
        }
    }
}

/// The value that was read, for messages: short values in full, others by their kind.
impl fmt::Display for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Table(_) => f.write_str("a table"),
            Value::List(_) => f.write_str("a list"),
            Value::Text(text) => f.write_str(&polylimit_rules::error::excerpt(text)),
            Value::Integer(integer) => integer.fmt(f),
            Value::Boolean(boolean) => boolean.fmt(f),
            Value::OtherNumber(text) => f.write_str(text.get(..40).unwrap_or(text)),
            Value::Other(kind) => f.write_str(kind),
        }
    }
}

#[cfg(test)]
mod tests;
