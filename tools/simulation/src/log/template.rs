//! Text with variables, as nginx writes it: `$remote_addr - "$request"`.

use std::borrow::Cow;

use crate::error::{SimulationError, excerpt};

/// Parts of text and names of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Variable(String),
}

impl Template {
    /// Reads a template with at least one variable.
    pub(crate) fn parse(text: &str, what: &str) -> Result<Self, SimulationError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, after) = (&rest[..at], &rest[at + 1..]);
            let (name, end) = if let Some(braced) = after.strip_prefix('{') {
                let end = braced.find('}').unwrap_or(0);
                (&braced[..end], end + 2)
            } else {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
                (&after[..end], end)
            };
            if name.is_empty() {
                return Err(SimulationError::usage(format!(
                    "{what}: read {}, allowed is a variable such as $remote_addr or ${{request.host}}",
                    excerpt(&rest[at..])
                )));
            }
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Variable(name.to_owned()));
            rest = &after[end..];
        }
        if parts.is_empty() {
            return Err(SimulationError::usage(format!(
                "{what}: read {}, allowed is a text with a variable such as $remote_addr",
                excerpt(text)
            )));
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { parts })
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(name) => Some(&**name),
            Part::Text(_) => None,
        })
    }

    /// The text with the values of its variables; `None` when one has no value.
    pub(crate) fn fill<'a>(&self, value: impl Fn(&str) -> Option<Cow<'a, [u8]>>) -> Option<Vec<u8>> {
        let mut filled = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.extend_from_slice(text.as_bytes()),
                Part::Variable(name) => filled.extend_from_slice(&value(name)?),
            }
        }
        Some(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_in_text() {
        let template = Template::parse("a$b ${c.d}-$e_1", "key").unwrap();
        assert_eq!(template.variables().collect::<Vec<_>>(), ["b", "c.d", "e_1"]);
        let filled = template.fill(|name| Some(Cow::Owned(name.to_uppercase().into_bytes())));
        assert_eq!(filled.unwrap(), b"aB C.D-E_1");
        assert_eq!(template.fill(|name| (name != "b").then(|| Cow::Borrowed(&b"x"[..]))), None);
    }

    #[test]
    fn mistakes_are_told() {
        for text in ["", "remote_addr", "$", "a$-b", "${a", "${}"] {
            let message = Template::parse(text, "key").unwrap_err().to_string();
            assert!(message.starts_with("key: read \"") && message.contains("$remote_addr"), "{message}");
        }
    }
}
