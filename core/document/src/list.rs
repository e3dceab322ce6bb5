//! Items of deny and allow lists, and their textual form: `client NETWORK`, `ATTRIBUTE VALUE`, `key POLICY KEY`.

use std::fmt::{self, Write as _};

use crate::attribute::Attribute;
use crate::client_address::address::Network;
use crate::path::{decode_escape, is_normalised};
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::time::parse_time_us;

/// The subject of a list item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ListItem {
    Client(Network),
    /// An attribute other than the client or a capture, and its value.
    Attribute(Attribute, Box<[u8]>),
    /// A key of a policy.
    Key {
        policy: Box<str>,
        key: Box<[u8]>,
    },
}

/// A line of a document's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListEntry {
    pub(crate) denies: bool,
    pub(crate) item: ListItem,
    /// The time from which it has no effect.
    pub(crate) until_us: Option<u64>,
}

impl ListItem {
    /// Reads an item without an expiry, as in entries.
    ///
    /// # Errors
    /// Invalid argument with what was read and what is allowed.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let words: Vec<&str> = text.split(' ').collect();
        Self::from_words(&words).unwrap_or_else(|| Err(refuse(text)))
    }

    /// Reads an item with an optional expiry: `ITEM until TIME`.
    ///
    /// # Errors
    /// Invalid argument with what was read and what is allowed.
    pub(crate) fn parse_with_until(text: &str) -> Result<(Self, Option<u64>), Error> {
        let words: Vec<&str> = text.split(' ').collect();
        let (words, until_us) = match &words[..] {
            // `until` may also be the key in `key POLICY until`, where no word follows it.
            [words @ .., "until", time] if words.len() >= 2 => (words, Some(parse_time_us(time)?)),
            words => (words, None),
        };
        let item = Self::from_words(words).unwrap_or_else(|| Err(refuse(text)))?;
        Ok((item, until_us))
    }

    /// `None` when there are too few or too many words.
    fn from_words(words: &[&str]) -> Option<Result<Self, Error>> {
        match words {
            ["key", policy, key] => {
                Some(decode_word(key).map(|key| Self::Key { policy: (*policy).into(), key }))
            }
            ["key", ..] => None,
            ["client", network] => Some(Network::parse(network).map(Self::Client)),
            [attribute, value] => Some(Self::attribute(attribute, value)),
            _ => None,
        }
    }

    fn attribute(name: &str, value: &str) -> Result<Self, Error> {
        let attribute = Attribute::parse(name)?;
        let value = decode_word(value)?;
        match &attribute {
            Attribute::Capture(_) => Err(Error::invalid_argument(format!(
                "list item is about {}; allowed are attributes that no rule captures, such as path",
                excerpt(name)
            ))),
            Attribute::Path if !is_normalised(&value) => Err(Error::invalid_argument(format!(
                "list item has the path {}; allowed are normalised paths, such as /v1/orders",
                excerpt(&String::from_utf8_lossy(&value))
            ))),
            _ => Ok(Self::Attribute(attribute, value)),
        }
    }
}

impl fmt::Display for ListItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(network) => write!(f, "client {network}"),
            Self::Attribute(attribute, value) => write!(f, "{attribute} {}", encode_word(value)),
            Self::Key { policy, key } => write!(f, "key {policy} {}", encode_word(key)),
        }
    }
}

fn refuse(text: &str) -> Error {
    Error::invalid_argument(format!(
        "list item is {}; allowed are client NETWORK, ATTRIBUTE VALUE and key POLICY KEY, with one space between words and \
         %20 for a space in a value",
        excerpt(text)
    ))
}

/// Encodes bytes as a word of an item or an entry.
pub(crate) fn encode_word(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "%".to_owned();
    }
    bytes.iter().fold(String::with_capacity(bytes.len()), |mut word, &byte| {
        if byte.is_ascii_graphic() && byte != b'%' {
            word.push(char::from(byte));
        } else {
            let _ = write!(word, "%{byte:02X}");
        }
        word
    })
}

/// Decodes a word of an item or an entry: `%XX` is a byte, and `%` alone is the empty text.
///
/// # Errors
/// Invalid argument: the word is empty, or has a `%` without two hexadecimal digits.
pub(crate) fn decode_word(word: &str) -> Result<Box<[u8]>, Error> {
    if word == "%" {
        return Ok(Box::default());
    }
    let mut decoded = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = match decode_escape(byte, after) {
            Some(escaped) => {
                decoded.push(escaped);
                &after[2..]
            }
            None if byte == b'%' => return Err(refuse_word(word)),
            None => {
                decoded.push(byte);
                after
            }
        };
    }
    if decoded.is_empty() { Err(refuse_word(word)) } else { Ok(decoded.into()) }
}

/// Does not quote the word: keys and values stay out of messages.
fn refuse_word(word: &str) -> Error {
    let read = if word.is_empty() { "is empty" } else { "has a % without two hexadecimal digits after it" };
    Error::invalid_argument(format!(
        "a key or value {read}; allowed are %XX for a byte, %25 for %, and % alone for the empty text"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(name: &str, value: &str) -> ListItem {
        ListItem::Attribute(Attribute::parse(name).unwrap(), value.as_bytes().into())
    }

    fn key(policy: &str, key: &str) -> ListItem {
        ListItem::Key { policy: policy.into(), key: key.as_bytes().into() }
    }

    #[test]
    fn item_is_read_with_its_time() {
        let network = |text| ListItem::Client(Network::parse(text).unwrap());
        let until = Some(1_789_948_810_000_000);
        for (text, item, until_us) in [
            ("client 203.0.113.0/24", network("203.0.113.0/24"), None),
            ("client ::ffff:192.0.2.1", network("192.0.2.1"), None),
            ("client 2001:db8::/32 until 2026-09-21T00:00:10Z", network("2001:db8::/32"), until),
            ("country KP", attribute("country", "KP"), None),
            ("country KP until 2026-09-21T00:00:10+00:00", attribute("country", "KP"), until),
            ("header.x-api-key leaked%20key", attribute("header.x-api-key", "leaked key"), None),
            ("method OPTIONS", attribute("method", "OPTIONS"), None),
            ("path /a%252Fb", attribute("path", "/a%2Fb"), None),
            ("user until", attribute("user", "until"), None),
            ("user a%25", attribute("user", "a%"), None),
            ("key p a%20b", key("p", "a b"), None),
            ("key p %", key("p", ""), None),
            ("key p until", key("p", "until"), None),
            ("key until k", key("until", "k"), None),
            ("key p until until 2026-09-21T00:00:10Z", key("p", "until"), until),
        ] {
            assert_eq!(ListItem::parse_with_until(text), Ok((item.clone(), until_us)), "{text}");
            if until_us.is_none() {
                assert_eq!(ListItem::parse(text), Ok(item), "{text}");
            }
        }
        assert_eq!(decode_word("%FF%00"), Ok([0xff, 0].into()));
    }

    #[test]
    fn other_text_is_refused() {
        for (text, about) in [
            ("", "\"\""),
            ("mallory", "\"mallory\""),
            ("user a b", "\"user a b\""),
            ("user  a", "\"user  a\""),
            ("key p", "\"key p\""),
            ("key p a b", "\"key p a b\""),
            ("client 10.0.0.1/8", "10.0.0.1/8"),
            ("client private", "\"private\""),
            ("path.id 7", "\"path.id\""),
            ("path /a/", "\"/a/\""),
            ("User x", "\"User\""),
            ("user mallory until tomorrow", "\"tomorrow\""),
            ("user 50%", "%25"),
            ("key p %zz", "%25"),
            ("user ", "is empty"),
        ] {
            let message = ListItem::parse_with_until(text).unwrap_err().message().to_owned();
            assert!(message.contains(about), "{text}: {message}");
        }
        assert!(ListItem::parse("user a until 2026-09-21T00:00:10Z").is_err());
    }
}
