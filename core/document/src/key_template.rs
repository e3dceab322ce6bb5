//! Keys that are built from a request's attributes, such as `{user,client}|{country}`.

use smallvec::SmallVec;

use crate::attribute::Attribute;
use crate::condition::Conditions;
use polylimit_rules::error::{Error, excerpt};

/// A key; usually short enough to need no allocation.
pub(crate) type Key = SmallVec<[u8; 64]>;

/// Text and placeholders. `A` is how an attribute is referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyTemplate<A = Attribute> {
    parts: Box<[Part<A>]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<A> {
    Text(Box<[u8]>),
    /// The first attribute that is present is used.
    Placeholder(Box<[Alternative<A>]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Alternative<A> {
    attribute: A,
    /// The label before the value: `a=`, or nothing if there is one alternative.
    label: Box<[u8]>,
}

impl KeyTemplate {
    /// Reads a template of a rule with these conditions.
    ///
    /// # Errors
    /// Invalid argument: an unmatched brace, a name that is not an attribute or that the rule's path does not capture, or
    /// placeholders without a `|` between them.
    pub(crate) fn parse(text: &str, when: &Conditions) -> Result<Self, Error> {
        let refuse =
            |allowed: &str| Err(Error::invalid_argument(format!("key is {}; {allowed}", excerpt(text))));
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, after) =
                rest.split_once('{').map_or((rest, None), |(literal, after)| (literal, Some(after)));
            if literal.contains('}') {
                return refuse(
                    "allowed are text and placeholders such as {user}; a } without a { before it is not",
                );
            }
            if after.is_some() && !parts.is_empty() && !literal.contains('|') {
                return refuse(
                    "between two placeholders there has to be a |, so that no two requests get one key",
                );
            }
            if !literal.is_empty() {
                parts.push(Part::Text(literal.as_bytes().into()));
            }
            let Some(after) = after else { break };
            let Some((names, after)) = after.split_once('}').filter(|(names, _)| !names.contains('{')) else {
                return refuse(
                    "allowed are text and placeholders such as {user}; a { without a } after it is not",
                );
            };
            parts.push(Part::Placeholder(alternatives(names, when)?));
            rest = after;
        }
        Ok(Self { parts: parts.into() })
    }

    /// The same template with its attributes mapped to other references.
    pub(crate) fn map<B>(&self, mut refer: impl FnMut(&Attribute) -> B) -> KeyTemplate<B> {
        let mut map = |part: &Part<Attribute>| match part {
            Part::Text(text) => Part::Text(text.clone()),
            Part::Placeholder(alternatives) => Part::Placeholder(
                alternatives
                    .iter()
                    .map(|from| Alternative { attribute: refer(&from.attribute), label: from.label.clone() })
                    .collect(),
            ),
        };
        KeyTemplate { parts: self.parts.iter().map(&mut map).collect() }
    }
}

impl<A> KeyTemplate<A> {
    /// The key of a request with these values, and whether all attributes of a placeholder were absent.
    pub(crate) fn write<'a>(&self, value: impl Fn(&A) -> Option<&'a [u8]>) -> (Key, bool) {
        let mut key = Key::new();
        let mut is_missing = false;
        let is_lone = self.parts.len() == 1;
        for part in &self.parts {
            match part {
                Part::Text(text) => key.extend_from_slice(text),
                Part::Placeholder(alternatives) => {
                    let found = alternatives.iter().find_map(|alternative| {
                        let value = value(&alternative.attribute).filter(|value| !value.is_empty())?;
                        Some((&alternative.label, value))
                    });
                    match found {
                        Some((label, value)) => {
                            key.extend_from_slice(label);
                            if is_lone { key.extend_from_slice(value) } else { escape_into(&mut key, value) }
                        }
                        None => is_missing = true,
                    }
                }
            }
        }
        (key, is_missing)
    }
}

fn alternatives(names: &str, when: &Conditions) -> Result<Box<[Alternative<Attribute>]>, Error> {
    let is_named = names.contains(',');
    let alternative = |name| {
        let label = if is_named { format!("{name}=").into_bytes() } else { Vec::new() };
        Ok(Alternative { attribute: parse_placeholder(name, when)?, label: label.into() })
    };
    names.split(',').map(alternative).collect()
}

/// The name in a text that is one placeholder with one name, such as `{tokens}`.
pub(crate) fn single_placeholder(text: &str) -> Option<&str> {
    let name = text.strip_prefix('{')?.strip_suffix('}')?;
    Some(name).filter(|name| !name.contains(['{', '}', ',']))
}

/// The attribute that a placeholder names, of a rule with these conditions.
///
/// # Errors
/// Invalid argument: it is not an attribute, or the rule's path does not capture it.
pub(crate) fn parse_placeholder(name: &str, when: &Conditions) -> Result<Attribute, Error> {
    let attribute = Attribute::parse(name)?;
    match &attribute {
        Attribute::Capture(capture) if !when.capture(capture) => Err(Error::invalid_argument(format!(
            "placeholder is {}, which the rule's path does not capture; write {{{capture}}} for a segment of match.path",
            excerpt(name)
        ))),
        _ => Ok(attribute),
    }
}

/// Escapes the bytes of a value that separate parts of a key.
fn escape_into(key: &mut Key, value: &[u8]) {
    for &byte in value {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'|' => key.extend_from_slice(b"%7C"),
            b'=' => key.extend_from_slice(b"%3D"),
            _ => key.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "a|b=%c";

    fn written(template: &str, values: &[(&str, &str)]) -> (String, bool) {
        let value = |attribute: &Attribute| {
            let found = values.iter().find(|(name, _)| *name == attribute.to_string());
            found.map(|(_, value)| value.as_bytes())
        };
        let template = KeyTemplate::parse(template, &Conditions::default()).unwrap();
        let (key, is_missing) = template.write(value);
        (String::from_utf8(key.to_vec()).unwrap(), is_missing)
    }

    #[test]
    fn placeholders_are_replaced_and_what_separates_is_escaped() {
        let both = [("user", USER), ("country", "FR"), ("client", "192.0.2.1"), ("header.te", "x")];
        for (template, values, key, is_missing) in [
            ("all", &both[..0], "all", false),
            ("", &both, "", false),
            ("a|%=", &both, "a|%=", false),
            ("{user}", &both, USER, false),
            ("{user,client}", &both, "user=a|b=%c", false),
            ("{user,client}", &both[2..], "client=192.0.2.1", false),
            ("{user,client}", &both[..0], "", true),
            ("u:{user}", &both, "u:a%7Cb%3D%25c", false),
            ("{user,client}|{country}", &both, "user=a%7Cb%3D%25c|FR", false),
            ("{user,client}|{country}", &both[2..], "client=192.0.2.1|", true),
            ("{user,client}|{country}", &both[..0], "|", true),
            ("{user} | {country}!", &both[1..], " | FR!", true),
            ("{header.te}", &both, "x", false),
            ("{header.te,user}", &both, "header.te=x", false),
            ("{user}", &[("user", "")], "", true),
        ] {
            assert_eq!(written(template, values), (key.to_owned(), is_missing), "{template}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for (text, about) in [
            ("{user}{client}", "a |"),
            ("{user}-{client}", "a |"),
            ("{user", "without a }"),
            ("user}", "without a {"),
            ("{user}}", "without a {"),
            ("{{user}}", "without a }"),
            ("{}", "attribute is \"\""),
            ("{user,}", "attribute is \"\""),
            ("{User}", "\"User\""),
            ("{ user }", "\" user \""),
            ("{path.id}", "path.id"),
            ("{during}", "during"),
        ] {
            let message = KeyTemplate::parse(text, &Conditions::default()).unwrap_err().message().to_owned();
            assert!(message.contains(about), "{text}: {message}");
        }
    }
}
