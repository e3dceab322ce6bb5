//! Times as text: RFC 3339, to the microsecond.

use jiff::Timestamp;
use jiff::civil::{DateTime, date};

use crate::error::{Error, excerpt};
use crate::units::MAX_US;
use crate::zone::minutes;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// Reads a time, such as `2027-01-01T00:00:00Z` or `2026-09-21T02:00:00.5+02:00`, as microseconds since the Unix epoch.
///
/// A leap second is read as the first second after it, as in Unix time.
///
/// # Errors
/// Invalid argument: the text is not a time of RFC 3339, is finer than a microsecond, or is before 1970 or after 2255-06-05.
pub fn parse_time_us(text: &str) -> Result<u64, Error> {
    let read = excerpt(text);
    let refuse = || {
        Error::invalid_argument(format!(
            "time is {read}; allowed is RFC 3339 with an offset and at most 6 digits of a second, such as \
             2027-01-01T00:00:00Z"
        ))
    };
    let us = time_us(text).ok_or_else(refuse)?;
    u64::try_from(us).ok().filter(|us| *us <= MAX_US).ok_or_else(|| {
        Error::invalid_argument(format!(
            "time is {read}; allowed are times from 1970 to 2255-06-05T23:47:34Z"
        ))
    })
}

fn time_us(text: &str) -> Option<i64> {
    const SECOND: &str = "0000-00-00T00:00:00";
    const FRACTION: &str = ".000000";
    let (second, rest) = text.split_at_checked(SECOND.len())?;
    let (fraction, offset) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    // jiff accepts more than RFC 3339: other separators, times without seconds, names of zones.
    let has_fraction = match fraction.len() {
        0 => true,
        digits @ 2..=7 => has_form(fraction, &FRACTION[..digits]),
        _ => false,
    };
    if !has_form(second, SECOND) || !has_fraction {
        return None;
    }
    let at: DateTime = text[..second.len() + fraction.len()].parse().ok()?;
    let since_epoch = at.duration_since(date(1970, 1, 1).at(0, 0, 0, 0));
    let us = i64::try_from(since_epoch.as_micros()).ok()? - offset_us(offset)?;
    if !second.ends_with("60") {
        return Some(us);
    }
    // A leap second ends a day of UTC. jiff reads it as the second before.
    let after_us = us + SECOND_US;
    (after_us.rem_euclid(DAY_US) < SECOND_US).then_some(after_us)
}

/// Whether a text has digits where a form has `0`, its letters in either case, and otherwise the same characters.
fn has_form(text: &str, form: &str) -> bool {
    let fits = |(byte, wanted): (u8, u8)| match wanted {
        b'0' => byte.is_ascii_digit(),
        _ => byte.eq_ignore_ascii_case(&wanted),
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
}

/// `Z`, `+HH:MM` or `-HH:MM`, less than a day.
fn offset_us(text: &str) -> Option<i64> {
    let (sign, time) = text.split_at_checked(1)?;
    let sign = match sign {
        "+" => 1,
        "-" => -1,
        _ => return time.is_empty().then_some(0),
    };
    let minutes = minutes(time).filter(|minutes| *minutes < 24 * 60)?;
    Some(sign * i64::from(minutes) * 60 * SECOND_US)
}

/// A time in microseconds since the Unix epoch as RFC 3339 in UTC, to the second.
///
/// ```
/// assert_eq!(polylimit::raw::time_text(1_789_948_859_999_999), "2026-09-21T00:00:59Z");
/// ```
pub fn time_text(us: u64) -> String {
    let time = i64::try_from(us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    format!("{:.0}", time.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (us, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000_000, "2000-03-01T00:00:00Z"),
            (1_789_948_859_999_999, "2026-09-21T00:00:59Z"),
            (4_107_542_399_000_000, "2100-02-28T23:59:59Z"),
            (u64::MAX, "9999-12-30T22:00:00Z"),
        ] {
            assert_eq!(time_text(us), text);
        }
    }

    #[test]
    fn time_is_microseconds_since_1970() {
        for (text, us) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-09-21T00:00:00Z", 1_789_948_800_000_000),
            ("2026-09-21T00:00:20.5Z", 1_789_948_820_500_000),
            ("2026-09-21T00:00:59.000001Z", 1_789_948_859_000_001),
            ("2026-09-21T00:00:10+00:00", 1_789_948_810_000_000),
            ("2026-09-21t05:30:00+05:30", 1_789_948_800_000_000),
            ("2026-09-20T23:59:00.0-00:01", 1_789_948_800_000_000),
            ("2000-02-29T00:00:00z", 951_782_400_000_000),
            ("2000-03-01T00:00:00Z", 951_868_800_000_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000_000),
            ("2017-01-01T05:29:60+05:30", 1_483_228_800_000_000),
            ("2016-12-31T23:59:60.25Z", 1_483_228_800_250_000),
            ("2255-06-05T23:47:34.740991Z", MAX_US),
        ] {
            assert_eq!(parse_time_us(text), Ok(us), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again_on_every_day() {
        for day in 0..MAX_US / DAY_US.cast_unsigned() {
            let us = day * DAY_US.cast_unsigned() + 86_399_000_000;
            assert_eq!(parse_time_us(&time_text(us)), Ok(us));
        }
    }

    #[test]
    fn other_text_is_no_time() {
        for text in [
            "",
            "tomorrow",
            "2026-09-21",
            "2026-09-21T00:00:00",
            "2026-09-21 00:00:00Z",
            "2026-09-21T00:00Z",
            "2026-09-21T24:00:00Z",
            "2026-09-31T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-09-21T00:60:00Z",
            "2026-09-21T00:00:60Z",
            "2026-09-21T00:00:61Z",
            "2026-09-21T00:00:00.Z",
            "2026-09-21T00:00:00.1234567Z",
            "2026-09-21T00:00:00,5Z",
            "2026-09-21T00:00:00+00:00[UTC]",
            "2026-09-21T00:00:00-00",
            "20260921T000000Z",
            "+2026-09-21T00:00:00Z",
            "2026-09-21T00:00:00+24:00",
            "2026-09-21T00:00:00+0100",
            "2026-09-21T00:00:00Zx",
            "2026-9-21T00:00:00Z",
            "2026-09-21T00:00:00\u{661}Z",
            "2026-09-21T00:00:0\u{e9}",
        ] {
            let message = parse_time_us(text).unwrap_err().message().to_owned();
            assert!(message.starts_with("time is ") && message.contains("RFC 3339"), "{message}");
        }
        for text in [
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "2255-06-05T23:47:34.740992Z",
            "9999-01-01T00:00:00Z",
            "9999-12-31T23:59:59-23:59",
        ] {
            assert!(parse_time_us(text).unwrap_err().message().contains("from 1970"), "{text}");
        }
    }
}
