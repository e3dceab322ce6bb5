//! The fields of a line, under the names of nginx' variables.

use std::borrow::Cow;

use regex::bytes::Captures;
use serde_json::Value;

use crate::log::json::{self, Schema};
use crate::log::time::{Time, VARIABLES, read_time};

/// A line that was read.
#[derive(Debug)]
pub(crate) enum Fields<'a> {
    Captured { captures: Captures<'a>, names: &'a [String] },
    Json { value: Value, schema: Schema },
}

impl Fields<'_> {
    /// When the request was made.
    pub(crate) fn time(&self, named: Option<&str>) -> Result<Time, String> {
        match self {
            Self::Captured { .. } => {
                let written = VARIABLES.iter().find_map(|name| self.get(name));
                read_time(&String::from_utf8_lossy(&written.unwrap_or_default()))
            }
            Self::Json { value, .. } => json::time(value, named),
        }
    }

    /// The value of a variable; `-` and the empty text stand for none.
    pub(crate) fn get(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let value = self.direct(name).or_else(|| self.derived(name))?;
        (!value.is_empty() && *value != *b"-").then_some(value)
    }

    fn direct(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Captured { captures, names } => {
                let at = names.iter().position(|known| known == name)?;
                Some(unescape(captures.get(at + 1)?.as_bytes()))
            }
            Self::Json { value, schema } => json::get(value, *schema, name),
        }
    }

    /// A part of another variable.
    fn derived(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match name {
            "request_method" => self.part_of_request(0),
            "request_uri" => self.part_of_request(1),
            "server_protocol" => self.part_of_request(2),
            "uri" => {
                let target = self.get("request_uri")?;
                let length = target.iter().position(|byte| b"?#".contains(byte)).unwrap_or(target.len());
                Some(Cow::Owned(target[..length].to_vec()))
            }
            _ => None,
        }
    }

    /// A word of the request line: a method, a target and a protocol. Anything else, such as what scanners send, has no words.
    fn part_of_request(&self, at: usize) -> Option<Cow<'_, [u8]>> {
        let request = self.direct("request")?;
        let words: Vec<&[u8]> = request.split(|byte| *byte == b' ').collect();
        let is_request = matches!(words.len(), 2 | 3)
            && words[0].iter().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(byte))
            && words.get(2).is_none_or(|protocol| protocol.starts_with(b"HTTP/"));
        is_request.then(|| words.get(at).map(|word| Cow::Owned(word.to_vec()))).flatten()
    }
}

/// A value as it was before the server escaped it: `\xHH` of nginx and Apache, and the escapes of C.
fn unescape(value: &[u8]) -> Cow<'_, [u8]> {
    if !value.contains(&b'\\') {
        return Cow::Borrowed(value);
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        match after {
            [b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                plain.push(hexadecimal(*high) << 4 | hexadecimal(*low));
                rest = after;
            }
            [escaped @ (b'"' | b'\\' | b'n' | b't' | b'r' | b'v' | b'b' | b'f'), after @ ..] => {
                plain.push(match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'v' => 0x0b,
                    b'b' => 0x08,
                    b'f' => 0x0c,
                    other => *other,
                });
                rest = after;
            }
            _ => plain.push(b'\\'),
        }
    }
    Cow::Owned(plain)
}

fn hexadecimal(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_bytes() {
        for (written, read) in [
            (&b"plain"[..], &b"plain"[..]),
            (br#"a\"b\\c"#, br#"a"b\c"#),
            (br"\x22\xe2\x82\xAC", b"\"\xe2\x82\xac"),
            (br"\t\n\q\x4", b"\t\n\\q\\x4"),
            (br"end\", br"end\"),
        ] {
            assert_eq!(&*unescape(written), read);
        }
    }
}
