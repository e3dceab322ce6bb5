//! Reports: values that are returned as a whole and not for each request. They are serialised under the names of their fields, so that
//! one form serves every language, the command line and the server.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// A report as JSON, in one line: the form in which every language, the command line and the server return it.
///
/// ```
/// use polylimit::admin::{KeyFilter, ListBudget};
/// use polylimit::raw::report_json;
/// use polylimit::{Limiter, Policy};
///
/// let limiter = Limiter::builder().policy(Policy::parse("api", "2/minute")?).build()?.blocking();
/// let page = limiter.admin().list(&KeyFilter::default(), &ListBudget::default(), None)?;
/// assert_eq!(report_json(&page), r#"{"keys":[],"examined":0,"cursor":null}"#);
/// # Ok::<(), polylimit::Error>(())
/// ```
pub fn report_json(report: &impl Serialize) -> String {
    // A report has no map, whose keys might be no text, and its own implementations do not fail.
    serde_json::to_string(report).unwrap_or_default()
}

/// A text for a terminal, a log or a page: characters that control a terminal, end a line, are invisible or change the direction of the
/// text around them are written as `\u{1b}`. Keys, items and reasons may come from any client.
///
/// ```
/// assert_eq!(polylimit::raw::printable("a\u{1b}[31m\u{202e}b"), r"a\u{1b}[31m\u{202e}b");
/// assert_eq!(polylimit::raw::printable("käse"), "käse");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Control characters (C0, DEL, C1), line and paragraph separators, and the invisible ones that format text: marks and overrides of the
/// direction, joiners, byte order marks, annotations and tags.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// The SHA-256 of bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A text with its `%XX` decoded; `None` when that is not UTF-8.
pub fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok()
}

/// Two lower-case hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The standard base64 of RFC 4648, section 4, with padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: [u8; 64] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = bits >> (18 - 6 * at) & 63;
            text.push(if at <= three.len() { char::from(DIGITS[digit as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!((base64(&[0xFB, 0xFF]), hex(&[0x0A, 0xFF])), ("+/8=".into(), "0aff".into()));
    }
}
