//! Times as logs write them.

use jiff::Timestamp;
use jiff::fmt::strtime;

use crate::error::excerpt;

/// The variables of nginx that have the time.
pub(crate) const VARIABLES: [&str; 3] = ["time_local", "time_iso8601", "msec"];

/// A time of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time {
    /// Microseconds since the Unix epoch.
    pub(crate) us: i64,
    /// Whether no part of a second is written.
    pub(crate) is_whole: bool,
}

/// Reads `21/Nov/2026:10:00:00 +0000`, RFC 3339, or a number of seconds, milliseconds, microseconds or nanoseconds since the Unix
/// epoch, which are distinguished by their size.
pub(crate) fn read_time(text: &str) -> Result<Time, String> {
    let text = text.trim();
    let read = if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        read_number(text)
    } else if text.as_bytes().get(2) == Some(&b'/') || text.as_bytes().get(1) == Some(&b'/') {
        let parsed = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).and_then(|time| time.to_timestamp());
        parsed.ok().map(|time| Time { us: time.as_microsecond(), is_whole: true })
    } else {
        let parsed = text.parse::<Timestamp>().ok();
        parsed.map(|time| Time { us: time.as_microsecond(), is_whole: !has_fraction(text) })
    };
    read.ok_or_else(|| {
        format!(
            "read the time {}, allowed are 21/Nov/2026:10:00:00 +0000, 2026-11-21T10:00:00Z and numbers since 1970",
            excerpt(text)
        )
    })
}

/// Whether an RFC 3339 time has a fraction: a point or a comma after the seconds.
fn has_fraction(text: &str) -> bool {
    text.contains(['.', ','])
}

fn read_number(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let number: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Digits for a millionth of each unit, or none where the unit itself is short enough.
    let (scale, digits) = match number {
        ..100_000_000_000 => (1_000_000, 6),
        100_000_000_000..100_000_000_000_000 => (1_000, 3),
        100_000_000_000_000..100_000_000_000_000_000 => (1, 0),
        100_000_000_000_000_000.. => return Some(Time { us: number / 1_000, is_whole: false }),
    };
    let padded: String = fraction.chars().chain(std::iter::repeat('0')).take(digits).collect();
    let part: i64 = if padded.is_empty() { 0 } else { padded.parse().ok()? };
    Some(Time { us: number * scale + part, is_whole: digits == 6 && fraction.is_empty() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1_795_255_200_000_000;

    #[test]
    fn times_are_read() {
        for (text, us, is_whole) in [
            ("21/Nov/2026:10:00:00 +0000", US, true),
            ("21/Nov/2026:12:30:00 +0230", US, true),
            ("2026-11-21T10:00:00Z", US, true),
            ("2026-11-21T10:00:00+00:00", US, true),
            ("2026-11-21T12:00:00.250+02:00", US + 250_000, false),
            ("2026-11-21 10:00:00.000001Z", US + 1, false),
            ("1795255200", US, true),
            ("1795255200.000", US, false),
            ("1795255200.123", US + 123_000, false),
            ("1795255200.1234567", US + 123_456, false),
            ("1795255200123", US + 123_000, false),
            ("1795255200123.5", US + 123_500, false),
            ("1795255200123456", US + 123_456, false),
            ("1795255200123456789", US + 123_456, false),
        ] {
            assert_eq!(read_time(text), Ok(Time { us, is_whole }), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "-",
            ".",
            "yesterday",
            "21/Foo/2026:10:00:00 +0000",
            "31/Feb/2026:10:00:00 +0000",
            "2026-11-21",
            "1.2.3",
            "99999999999999999999",
        ] {
            let message = read_time(text).unwrap_err();
            assert!(message.contains("2026-11-21T10:00:00Z"), "{text}: {message}");
        }
    }
}
