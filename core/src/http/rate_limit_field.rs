//! Parses the response field `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11, a structured field (RFC 9651).
//!
//! The field is a List of Items, one for each policy, with the parameters `r`, the available quota, and `t`, the seconds
//! in which no more than that may be used: `"burst";r=0;t=30, "daily";r=5;t=3600`. The rules of RFC 9651, section 4.2,
//! apply: a malformed field is ignored as a whole. A member of another kind, or whose `r` or `t` is missing or not a
//! number of the draft, is ignored alone, and so are other parameters.

use std::time::Duration;

/// How many bytes a field may have, with all its lines joined.
const MAX_BYTES: usize = 4096;

/// The longest `t` over the policies with `r=0`, if there is one.
pub(crate) fn longest_exhausted<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Duration> {
    let field = joined(lines)?;
    let mut parser = Parser { rest: field.trim_ascii(), longest: None };
    parser.list()?;
    parser.longest.map(Duration::from_secs)
}

/// The lines joined as in RFC 9110, section 5.3.
fn joined<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut field = Vec::new();
    for line in lines {
        if !field.is_empty() {
            field.extend_from_slice(b", ");
        }
        if field.len() + line.len() > MAX_BYTES {
            return None;
        }
        field.extend_from_slice(line);
    }
    Some(field)
}

/// The values of parameters that matter here.
#[derive(Clone, Copy)]
enum Value {
    /// An Integer that is not negative.
    Count(u64),
    Other,
}

/// The parameters `r` and `t` of a policy.
struct Limit {
    available: Value,
    window: Value,
}

impl Limit {
    /// How long the policy asks to wait, in seconds: only when it has nothing available.
    fn wait(&self) -> Option<u64> {
        match (self.available, self.window) {
            (Value::Count(0), Value::Count(seconds)) => Some(seconds),
            _ => None,
        }
    }
}

/// Each method parses what its name says from the front of `rest`; `None` means that the field is malformed.
struct Parser<'a> {
    rest: &'a [u8],
    /// The longest wait of the members parsed so far, in seconds.
    longest: Option<u64>,
}

impl<'a> Parser<'a> {
    fn list(&mut self) -> Option<()> {
        while !self.rest.is_empty() {
            self.member()?;
            self.skip_while(|byte| byte == b' ' || byte == b'\t');
            if self.rest.is_empty() {
                break;
            }
            self.expect(b',')?;
            self.skip_while(|byte| byte == b' ' || byte == b'\t');
            if self.rest.is_empty() {
                return None;
            }
        }
        Some(())
    }

    fn member(&mut self) -> Option<()> {
        if !self.take(b'(') {
            self.bare_item()?;
            let limit = self.parameters()?;
            self.longest = self.longest.max(limit.wait());
            return Some(());
        }
        // An Inner List is no policy and asks for no wait.
        loop {
            self.skip_while(|byte| byte == b' ');
            if self.take(b')') {
                break;
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.rest, [b' ' | b')', ..]) {
                return None;
            }
        }
        self.parameters()?;
        Some(())
    }

    /// Of a parameter that occurs twice the last one counts.
    fn parameters(&mut self) -> Option<Limit> {
        let mut limit = Limit { available: Value::Other, window: Value::Other };
        while self.take(b';') {
            self.skip_while(|byte| byte == b' ');
            let key = self.rest;
            if !matches!(key, [b'a'..=b'z' | b'*', ..]) {
                return None;
            }
            self.skip_while(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'));
            let key = &key[..key.len() - self.rest.len()];
            let value = if self.take(b'=') { self.bare_item()? } else { Value::Other };
            match key {
                b"r" => limit.available = value,
                b"t" => limit.window = value,
                _ => {}
            }
        }
        Some(limit)
    }

    fn bare_item(&mut self) -> Option<Value> {
        let (&first, after) = self.rest.split_first()?;
        if first == b'-' || first.is_ascii_digit() {
            return self.number();
        }
        self.rest = after;
        match first {
            b'"' => self.string()?,
            b':' => {
                self.skip_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.expect(b':')?;
            }
            b'?' => {
                if !self.take(b'0') {
                    self.expect(b'1')?;
                }
            }
            b'@' => {
                self.number()?;
            }
            b'%' => self.display_string()?,
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                self.skip_while(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
            }
            _ => return None,
        }
        Some(Value::Other)
    }

    /// An Integer of at most 15 digits, or a Decimal of at most 12 digits and 3 decimals.
    fn number(&mut self) -> Option<Value> {
        let negative = self.take(b'-');
        let whole = self.digits()?;
        if self.take(b'.') {
            let fraction = self.digits()?;
            return (whole.len() <= 12 && fraction.len() <= 3).then_some(Value::Other);
        }
        if whole.len() > 15 {
            return None;
        }
        let value = whole.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
        Some(if negative && value > 0 { Value::Other } else { Value::Count(value) })
    }

    /// At least one digit.
    fn digits(&mut self) -> Option<&'a [u8]> {
        let start = self.rest;
        self.skip_while(|byte| byte.is_ascii_digit());
        let digits = &start[..start.len() - self.rest.len()];
        (!digits.is_empty()).then_some(digits)
    }

    /// The rest of a String after its opening quote.
    fn string(&mut self) -> Option<()> {
        loop {
            self.skip_while(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\');
            if self.take(b'"') {
                return Some(());
            }
            self.expect(b'\\')?;
            if !self.take(b'\\') {
                self.expect(b'"')?;
            }
        }
    }

    /// The rest of a Display String after its percent sign. Its bytes are not checked to be UTF-8.
    fn display_string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        self.skip_while(|byte| matches!(byte, b' '..=b'~') && byte != b'"');
        self.expect(b'"')
    }

    fn skip_while(&mut self, skips: impl Fn(u8) -> bool) {
        let end = self.rest.iter().position(|&byte| !skips(byte)).unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    fn take(&mut self, byte: u8) -> bool {
        self.expect(byte).is_some()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.rest = self.rest.strip_prefix(&[byte])?;
        Some(())
    }
}

#[cfg(test)]
mod tests;
