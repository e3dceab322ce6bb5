//! Keys of clients, which may be any bytes.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// A key: text when it is UTF-8, otherwise bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Key {
    /// UTF-8.
    #[serde(rename = "key")]
    Text(String),
    /// Other bytes, as base64.
    #[serde(rename = "key_base64")]
    Base64(String),
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        match std::str::from_utf8(key) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(key)),
        }
    }
}

/// For terminals: without control characters.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&polylimit::raw::printable(text)),
            Self::Base64(text) => write!(f, "base64:{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_control_terminals() {
        let key = Key::from(&b"a\x1b[31m\r\n\xe2\x80\xaeb"[..]);
        assert_eq!(key.to_string(), r"a\u{1b}[31m\u{d}\u{a}\u{202e}b");
        assert_eq!(Key::from(&b"\xff\xfe"[..]).to_string(), "base64://4=");
        assert_eq!(serde_json::to_string(&Key::from(&b"\xff\xfe"[..])).unwrap(), r#"{"key_base64":"//4="}"#);
    }
}
