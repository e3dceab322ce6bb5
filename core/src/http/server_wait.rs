//! The wait that a response asks of its client.

use std::time::{Duration, SystemTime};

use crate::http::rate_limit_field;

/// How long a response asks its client to wait, counted from now; `None` if it does not say.
///
/// `retry_after` is the value of the field `Retry-After` (RFC 9110, section 10.2.3): seconds, or a date in any of the
/// three formats of HTTP. It has precedence where it is present and well-formed (draft-ietf-httpapi-ratelimit-headers-11,
/// section 7). Otherwise `rate_limit_lines`, the values of all lines of the field `RateLimit` of that draft, decide: the
/// wait is the longest `t` over the policies with `r=0`, which have nothing left. A field that is malformed or, with all
/// lines joined, longer than 4 KiB is ignored.
///
/// `now_us` is the time in microseconds since the Unix epoch; only a date is compared with it, and a date that has passed
/// is a wait of zero. A number of seconds that does not fit 64 bits becomes the largest that does.
pub fn server_wait<'a>(
    retry_after: Option<&[u8]>,
    rate_limit_lines: impl IntoIterator<Item = &'a [u8]>,
    now_us: u64,
) -> Option<Duration> {
    retry_after
        .and_then(|value| parse_retry_after(value, now_us))
        .or_else(|| rate_limit_field::longest_exhausted(rate_limit_lines))
}

fn parse_retry_after(value: &[u8], now_us: u64) -> Option<Duration> {
    let value = str::from_utf8(value.trim_ascii()).ok()?;
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A text of digits fails to parse only because it is too large.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let since_epoch = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(since_epoch.saturating_sub(Duration::from_micros(now_us)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110.
    const EXAMPLE_US: u64 = 784_111_777_000_000;

    fn retry_after(value: &str, now_us: u64) -> Option<Duration> {
        server_wait(Some(value.as_bytes()), [], now_us)
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (value, seconds) in
            [("0", 0), ("120", 120), (" 7\t", 7), ("007", 7), ("18446744073709551616", u64::MAX)]
        {
            assert_eq!(retry_after(value, EXAMPLE_US), Some(Duration::from_secs(seconds)), "{value}");
        }
        for value in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            let wait_us = |now_us| retry_after(value, now_us).map(|wait| wait.as_micros());
            assert_eq!(wait_us(EXAMPLE_US - 1_500_000), Some(1_500_000), "{value}");
            assert_eq!(wait_us(EXAMPLE_US + 1), Some(0), "{value}");
            assert_eq!(wait_us(u64::MAX), Some(0), "{value}");
        }
        for value in
            ["", "-1", "+1", "1.5", "1 2", "1s", "soon", "Sun, 06 Nov 1994", "Sun, 99 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!(retry_after(value, EXAMPLE_US), None, "{value}");
        }
        assert_eq!(server_wait(Some(b"\xff"), [], 0), None);
    }

    #[test]
    fn a_date_with_any_byte_changed_is_read_without_panic() {
        for value in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            for at in 0..value.len() {
                for byte in 0..=u8::MAX {
                    let mut changed = value.as_bytes().to_vec();
                    changed[at] = byte;
                    let _ = server_wait(Some(&changed), [], EXAMPLE_US);
                    let _ = server_wait(Some(&changed[..at]), [], EXAMPLE_US);
                }
            }
        }
    }

    #[test]
    fn retry_after_wins_where_it_says_something() {
        let lines = [&br#""a";r=0;t=30"#[..]];
        let seconds = |retry_after: Option<&[u8]>| server_wait(retry_after, lines, 0).unwrap().as_secs();
        assert_eq!(seconds(Some(b"5")), 5);
        assert_eq!(seconds(Some(b"nonsense")), 30);
        assert_eq!(seconds(None), 30);
        assert_eq!(server_wait(None, [], 0), None);
    }
}
