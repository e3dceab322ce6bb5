//! The key of a request, built from parts that every framework can read.

use std::fmt;
use std::str::FromStr;

use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::names::named_enum;

/// A part of the key that a framework reads from its request.
///
/// As text, the same in every language: `address`, `user`, `header:x-api-key`, `cookie:session`, `path:tenant`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// The client's address, as [`ClientAddressRules`](crate::http::ClientAddressRules) find it.
    Address,
    /// The authenticated user, as the framework knows it.
    User,
    /// The values of the header with this lower-case name, joined by `, `.
    Header(String),
    /// The value of the cookie with this name.
    Cookie(String),
    /// The value of the path parameter with this name, as in `/tenants/{tenant}`.
    Path(String),
}

impl KeyPart {
    /// The kind: `address`, `user`, `header`, `cookie` or `path`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::User => "user",
            Self::Header(_) => "header",
            Self::Cookie(_) => "cookie",
            Self::Path(_) => "path",
        }
    }

    /// The name of the header, cookie or path parameter; empty for the others.
    pub fn name(&self) -> &str {
        match self {
            Self::Address | Self::User => "",
            Self::Header(name) | Self::Cookie(name) | Self::Path(name) => name,
        }
    }

    /// The text before the value in a key; empty for the address.
    fn prefix(&self) -> String {
        match self {
            Self::Address => String::new(),
            Self::User => "user:".to_owned(),
            Self::Header(name) => format!("{name}:"),
            Self::Cookie(name) => format!("cookie:{name}:"),
            Self::Path(name) => format!("path:{name}:"),
        }
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        if self.name().is_empty() { Ok(()) } else { write!(f, ":{}", self.name()) }
    }
}

impl FromStr for KeyPart {
    type Err = Error;

    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the text is not one of the five forms.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        let owned = || name.to_owned();
        match kind {
            "address" if text == kind => Ok(Self::Address),
            "user" if text == kind => Ok(Self::User),
            "header" if !name.is_empty() => Ok(Self::Header(name.to_ascii_lowercase())),
            "cookie" if !name.is_empty() => Ok(Self::Cookie(owned())),
            "path" if !name.is_empty() => Ok(Self::Path(owned())),
            _ => Err(Error::invalid_argument(format!(
                "key part {} cannot be read: allowed are address, user, header:NAME, cookie:NAME and path:NAME",
                excerpt(text)
            ))),
        }
    }
}

named_enum! {
    /// How a request without a key is counted: one that lacks a part of its key, or for which the key's function returned none.
    MissingKey, parsed as "missing key" {
        /// By its client's address. The default.
        Address = "address",
        /// With all other requests without a key: they share one budget, under the empty key.
        Share = "share",
        /// It is not counted, and answered by 400.
        Refuse = "refuse",
    }
}

/// The key of parts with these values; `None` if one is missing or empty.
///
/// A part is its prefix and its value. Several parts are joined by `|`; then `%` and `|` in values are written as `%25` and
/// `%7C`, so that different values never yield the same key.
pub(super) fn join<V: AsRef<[u8]>>(parts: &[KeyPart], values: &[Option<V>]) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let value = values.get(at)?.as_ref()?.as_ref();
        if value.is_empty() {
            return None;
        }
        if at > 0 {
            key.push(b'|');
        }
        key.extend_from_slice(part.prefix().as_bytes());
        if parts.len() == 1 {
            key.extend_from_slice(value);
            continue;
        }
        for &byte in value {
            match byte {
                b'%' => key.extend_from_slice(b"%25"),
                b'|' => key.extend_from_slice(b"%7C"),
                _ => key.push(byte),
            }
        }
    }
    (!parts.is_empty()).then_some(key)
}
