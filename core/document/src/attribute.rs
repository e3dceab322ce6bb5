//! The names of the request attributes that rules match on.

use std::fmt;

use polylimit_rules::error::{Error, excerpt};

/// An attribute of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Attribute {
    /// `method`, as it was sent.
    Method,
    /// `path`, normalised.
    Path,
    /// `path.NAME`: the capture with this name from the rule's path.
    Capture(Box<str>),
    /// `client`: the client's address.
    Client,
    /// `header.NAME`, with the name in lower case.
    Header(Box<str>),
    /// An attribute that the application provides, such as `user` or `plan`.
    Provided(Box<str>),
}

/// The allowed names of attributes, for messages.
const ALLOWED: &str = "method, path, client, header.NAME in lower case, and names that the application provides: a \
                       letter, then letters, digits and _, all in lower case, but not header, during or key";

impl Attribute {
    /// Reads a name, such as `client` or `header.x-api-key`.
    ///
    /// # Errors
    /// Invalid argument: the text is not the name of an attribute.
    pub(crate) fn parse(name: &str) -> Result<Self, Error> {
        match name {
            "method" => return Ok(Self::Method),
            "path" => return Ok(Self::Path),
            "client" => return Ok(Self::Client),
            _ => {}
        }
        if let Some(header) = name.strip_prefix("header.") {
            if !header.is_empty() && header.bytes().all(is_header_byte) {
                return Ok(Self::Header(header.into()));
            }
        } else if let Some(capture) = name.strip_prefix("path.") {
            if is_name(capture) {
                return Ok(Self::Capture(capture.into()));
            }
        } else if is_name(name) && !matches!(name, "header" | "during" | "key") {
            return Ok(Self::Provided(name.into()));
        }
        Err(Error::invalid_argument(format!("attribute is {}; allowed are {ALLOWED}", excerpt(name))))
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("method"),
            Self::Path => f.write_str("path"),
            Self::Client => f.write_str("client"),
            Self::Capture(name) => write!(f, "path.{name}"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Provided(name) => f.write_str(name),
        }
    }
}

/// Whether a text is the name of an attribute or of a captured segment: `[a-z][a-z0-9_]*`.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Whether a byte is allowed in a lower-case field name (RFC 9110, section 5.6.2).
fn is_header_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_read_and_written() {
        for name in ["method", "path", "path.id", "client", "header.x-api-key", "user", "plan", "a_1"] {
            assert_eq!(Attribute::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(Attribute::parse("path.id"), Ok(Attribute::Capture("id".into())));
        assert_eq!(Attribute::parse("header.te"), Ok(Attribute::Header("te".into())));
    }

    #[test]
    fn other_name_is_refused_with_what_is_allowed() {
        for name in [
            "",
            "User",
            "1a",
            "a-b",
            "a b",
            "é",
            "header",
            "during",
            "key",
            "header.",
            "header.X-Api-Key",
            "header.a b",
            "header.a:b",
            "path.",
            "path.Id",
            "path.a.b",
            "*",
            "_a",
        ] {
            let message = Attribute::parse(name).unwrap_err().message().to_owned();
            assert!(message.starts_with(&format!("attribute is {name:?}; allowed")), "{message}");
        }
    }
}
