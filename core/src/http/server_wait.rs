//! The wait that a response asks of its client.

use std::time::{Duration, SystemTime};

/// The longest wait, about 285 years: in microseconds it is below 2^53, so that every language can represent it exactly, as a
/// double, a duration or an integer.
const MAX_WAIT: Duration = Duration::from_secs(9_007_199_254);

/// The maximum size of the field `RateLimit`, with all its lines joined.
const MAX_BYTES: usize = 4096;

/// How long a response asks its client to wait, counted from now; `None` if it does not ask for a wait.
///
/// `fields` are the header fields of the response, a pair of name and value for each line; names are in any letter case.
/// These are read, and other fields and malformed values are ignored:
///
/// - `Retry-After-Ms` is milliseconds, also with a decimal fraction, which is rounded up to the next millisecond. It is not
///   standardised; services of Azure and others send it, with `Retry-After` rounded to seconds, and it has precedence.
/// - `Retry-After` (RFC 9110, section 10.2.3) is seconds, also with a decimal fraction, which is rounded up to the next
///   second, or a date in any of the three formats of HTTP. A date is compared with the response's `Date`, so that it does
///   not matter whose clock is wrong, and without one with `now_us`, the time in microseconds since the Unix epoch. A date
///   that has passed is a wait of zero.
/// - `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11, whose section 7 gives `Retry-After` precedence): the wait is the
///   longest `t` over the policies with `r=0`, which have nothing left. With all lines joined it may have 4 KiB.
///
/// A wait above 9,007,199,254 seconds, about 285 years, is cut to that.
pub fn server_wait<N: AsRef<[u8]>, V: AsRef<[u8]>>(
    fields: impl IntoIterator<Item = (N, V)>,
    now_us: u64,
) -> Option<Duration> {
    WaitFields::of(fields).wait(now_us)
}

/// The values of the fields that say how long to wait. Of the first three the first line counts.
#[derive(Debug, Default)]
pub(crate) struct WaitFields {
    retry_after_ms: Option<Box<[u8]>>,
    retry_after: Option<Box<[u8]>>,
    date: Option<Box<[u8]>>,
    /// All lines, joined as in RFC 9110, section 5.3; too long ones are cut to one byte more than is allowed.
    rate_limit: Vec<u8>,
}

impl WaitFields {
    pub(crate) fn of<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut read = Self::default();
        for (name, value) in fields {
            let (name, value) = (name.as_ref(), value.as_ref());
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            if is("retry-after") {
                read.retry_after.get_or_insert_with(|| value.into());
            } else if is("ratelimit") {
                if !read.rate_limit.is_empty() {
                    read.rate_limit.extend_from_slice(b", ");
                }
                read.rate_limit.extend_from_slice(&value[..value.len().min(MAX_BYTES + 1)]);
                read.rate_limit.truncate(MAX_BYTES + 1);
            } else if is("date") {
                read.date.get_or_insert_with(|| value.into());
            } else if is("retry-after-ms") {
                read.retry_after_ms.get_or_insert_with(|| value.into());
            }
        }
        read
    }

    pub(crate) fn wait(&self, now_us: u64) -> Option<Duration> {
        self.retry_after(now_us).or_else(|| self.rate_limit())
    }

    /// The wait by `Retry-After-Ms` or `Retry-After`.
    pub(crate) fn retry_after(&self, now_us: u64) -> Option<Duration> {
        let by_ms = || rounded_up(text(self.retry_after_ms.as_deref()?)?).map(Duration::from_millis);
        let wait = by_ms().or_else(|| {
            let value = text(self.retry_after.as_deref()?)?;
            rounded_up(value).map(Duration::from_secs).or_else(|| {
                let sent = self.date.as_deref().and_then(text).and_then(since_epoch);
                Some(since_epoch(value)?.saturating_sub(sent.unwrap_or(Duration::from_micros(now_us))))
            })
        });
        wait.map(|wait| wait.min(MAX_WAIT))
    }

    /// The wait by `RateLimit`.
    pub(crate) fn rate_limit(&self) -> Option<Duration> {
        longest_exhausted(&self.rate_limit).map(|wait| wait.min(MAX_WAIT))
    }
}

fn text(value: &[u8]) -> Option<&str> {
    str::from_utf8(value.trim_ascii()).ok()
}

/// A decimal number, rounded up to the next integer. Some servers send a fraction, such as 2.0, although the RFC requires whole
/// seconds.
fn rounded_up(value: &str) -> Option<u64> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    // A text of digits fails to parse only because it is too large.
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    Some(whole.saturating_add(u64::from(fraction.bytes().any(|digit| digit != b'0'))))
}

/// The time of an HTTP date.
fn since_epoch(date: &str) -> Option<Duration> {
    httpdate::parse_http_date(date).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()
}

/// The longest `t` over the policies with `r=0`, if there are any.
///
/// The field `RateLimit` is a List of Items (RFC 9651), one for each policy, with the parameters `r`, the available quota,
/// and `t`, the seconds in which no more than that may be used: `"burst";r=0;t=30, "daily";r=5;t=3600`. By section 4.2 of
/// the RFC a malformed field is ignored as a whole. A member of another kind, or whose `r` or `t` is missing or not a
/// number of the draft, is ignored alone, and so are other parameters.
fn longest_exhausted(field: &[u8]) -> Option<Duration> {
    if field.len() > MAX_BYTES {
        return None;
    }
    let mut parser = Parser { rest: field.trim_ascii(), longest: None };
    parser.list()?;
    parser.longest.map(Duration::from_secs)
}

/// The parameter values that matter here.
#[derive(Clone, Copy)]
enum Value {
    /// An Integer that is not negative.
    Count(u64),
    Other,
}

/// Each method parses the element that it is named after from the front of `rest`; `None` means that the field is malformed.
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

    /// The parameters `r` and `t`. If one is repeated, the last value counts.
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
