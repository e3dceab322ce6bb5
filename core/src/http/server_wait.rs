//! The wait that a response asks of its client.

use std::time::{Duration, SystemTime};

/// The longest wait, about 285 years: in microseconds it is below 2^53, so that every language has it exactly, as a double, a
/// duration or an integer.
const MAX_WAIT: Duration = Duration::from_secs(9_007_199_254);

/// How many bytes the field `RateLimit` may have, with all its lines joined.
const MAX_BYTES: usize = 4096;

/// How long a response asks its client to wait, counted from now; `None` if it does not say.
///
/// `retry_after` is the value of the field `Retry-After` (RFC 9110, section 10.2.3): seconds, also with a decimal fraction, which is
/// rounded up to the next second, or a date in any of the three formats of HTTP. It has precedence where it is present and well-formed (draft-ietf-httpapi-ratelimit-headers-11,
/// section 7). Otherwise `rate_limit_lines`, the values of all lines of the field `RateLimit` of that draft, decide: the
/// wait is the longest `t` over the policies with `r=0`, which have nothing left. A field that is malformed or, with all
/// lines joined, longer than 4 KiB is ignored.
///
/// `now_us` is the time in microseconds since the Unix epoch; only a date is compared with it, and a date that has passed
/// is a wait of zero. A wait above 9,007,199,254 seconds, about 285 years, is cut to that.
pub fn server_wait<'a>(
    retry_after: Option<&[u8]>,
    rate_limit_lines: impl IntoIterator<Item = &'a [u8]>,
    now_us: u64,
) -> Option<Duration> {
    retry_after
        .and_then(|value| parse_retry_after(value, now_us))
        .or_else(|| longest_exhausted(rate_limit_lines))
        .map(|wait| wait.min(MAX_WAIT))
}

fn parse_retry_after(value: &[u8], now_us: u64) -> Option<Duration> {
    let value = str::from_utf8(value.trim_ascii()).ok()?;
    // Some servers send a fraction, such as 2.0, though the RFC has whole seconds.
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if are_digits(whole) && are_digits(fraction) {
        // A text of digits fails to parse only because it is too large.
        let whole: u64 = whole.parse().unwrap_or(u64::MAX);
        let has_fraction = fraction.bytes().any(|digit| digit != b'0');
        return Some(Duration::from_secs(whole.saturating_add(u64::from(has_fraction))));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let since_epoch = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(since_epoch.saturating_sub(Duration::from_micros(now_us)))
}

/// The longest `t` over the policies with `r=0`, if there is one.
///
/// The field `RateLimit` is a List of Items (RFC 9651), one for each policy, with the parameters `r`, the available quota,
/// and `t`, the seconds in which no more than that may be used: `"burst";r=0;t=30, "daily";r=5;t=3600`. By section 4.2 of
/// the RFC a malformed field is ignored as a whole. A member of another kind, or whose `r` or `t` is missing or not a
/// number of the draft, is ignored alone, and so are other parameters.
fn longest_exhausted<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Duration> {
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

/// Each method parses what its name says from the front of `rest`; `None` means that the field is malformed.
struct Parser<'a> {
    rest: &'a [u8],
    /// The longest wait of the members parsed so far, in seconds.
    longest: Option<u64>,
}

impl<'a> Parser<'a> {
    fn list(&mut self) -> Option<()> {
        loop {
            self.member()?;
            self.skip_while(|byte| byte == b' ' || byte == b'\t');
            if self.rest.is_empty() {
                return Some(());
            }
            self.expect(b',')?;
            self.skip_while(|byte| byte == b' ' || byte == b'\t');
        }
    }

    fn member(&mut self) -> Option<()> {
        if !self.take(b'(') {
            self.bare_item()?;
            // A policy asks its client to wait only when it has nothing available.
            if let [Value::Count(0), Value::Count(seconds)] = self.parameters()? {
                self.longest = self.longest.max(Some(seconds));
            }
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

    /// The parameters `r` and `t`. Of a parameter that occurs twice the last one counts.
    fn parameters(&mut self) -> Option<[Value; 2]> {
        let [mut available, mut window] = [Value::Other; 2];
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
                b"r" => available = value,
                b"t" => window = value,
                _ => {}
            }
        }
        Some([available, window])
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
