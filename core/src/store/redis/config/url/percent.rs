//! Percent-decoding, strict: an unencoded `%` is an error.

use percent_encoding::percent_decode_str;

use crate::error::Error;
use crate::store::redis::config::url::refused;

/// The decoded text. `place` is for the message, which does not show the text.
pub(crate) fn decode(place: &str, text: &str) -> Result<String, Error> {
    let digits = |at: usize| text.as_bytes().get(at + 1..at + 3);
    let well_formed = text
        .match_indices('%')
        .all(|(at, _)| digits(at).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
    if !well_formed {
        return Err(refused(&format!("has a % without two hexadecimal digits in {place}: write % as %25")));
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(refused(&format!("has bytes that are not UTF-8 in {place}: allowed is UTF-8"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_nothing_else() {
        for (text, decoded) in
            [("", ""), ("a+b", "a+b"), ("%40%2f%2F%25", "@//%"), ("%C3%A9é", "éé"), ("%00", "\0")]
        {
            assert_eq!(decode("it", text).unwrap(), decoded);
        }
    }

    #[test]
    fn other_escapes_are_refused() {
        for text in ["%", "%4", "a%", "%zz", "%4g", "%%40", "% 4", "%é"] {
            let message = decode("it", text).unwrap_err().to_string();
            assert_eq!(message, "store URL has a % without two hexadecimal digits in it: write % as %25");
        }
        let message = decode("it", "%FF").unwrap_err().to_string();
        assert_eq!(message, "store URL has bytes that are not UTF-8 in it: allowed is UTF-8");
    }
}
