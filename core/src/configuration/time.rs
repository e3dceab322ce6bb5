//! Times as text: RFC 3339, to the microsecond.

use std::ops::RangeInclusive;

use crate::error::{Error, excerpt};
use crate::units::MAX_US;

const SECOND_US: i64 = 1_000_000;
const MINUTE_S: i64 = 60;
const DAY_S: i64 = 86_400;

/// Reads a time, such as `2027-01-01T00:00:00Z` or `2026-09-21T02:00:00.5+02:00`, as microseconds since the Unix epoch.
///
/// A leap second is the first second after it, as in Unix time.
///
/// # Errors
/// Invalid argument: the text is no time of RFC 3339, has parts of microseconds, or lies before 1970 or after 2255-06-05.
pub(crate) fn parse_time_us(text: &str) -> Result<u64, Error> {
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
    let mut reader = Reader { rest: text.as_bytes() };
    let year = reader.number(4, 0..=9999)?;
    reader.one_of(b"-")?;
    let month = reader.number(2, 1..=12)?;
    reader.one_of(b"-")?;
    let day = reader.number(2, 1..=days_of(year, month))?;
    reader.one_of(b"Tt")?;
    let minute = reader.minute(23)?;
    reader.one_of(b":")?;
    let second = reader.number(2, 0..=60)?;
    let fraction_us = reader.fraction_us()?;
    let offset_s = match reader.one_of(b"Zz") {
        Some(_) => 0,
        None => reader.offset_s()?,
    };
    if !reader.rest.is_empty() {
        return None;
    }
    let at_s = days_since_epoch(year, month, day) * DAY_S + minute * MINUTE_S + second - offset_s;
    // A leap second ends a day of UTC.
    (second < 60 || at_s.rem_euclid(DAY_S) == 0).then_some(at_s * SECOND_US + fraction_us)
}

fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the Gregorian calendar. The year is counted from March, so that a leap day is its last day.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn one_of(&mut self, allowed: &[u8]) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        allowed.contains(first).then(|| self.rest = rest)?;
        Some(*first)
    }

    /// A number of exactly so many digits.
    fn number(&mut self, digits: usize, allowed: RangeInclusive<i64>) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(digits)?;
        self.rest = rest;
        digits.iter().all(u8::is_ascii_digit).then_some(())?;
        let number = digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
        allowed.contains(&number).then_some(number)
    }

    /// `HH:MM` as minutes.
    fn minute(&mut self, last_hour: i64) -> Option<i64> {
        let hour = self.number(2, 0..=last_hour)?;
        self.one_of(b":")?;
        Some(hour * 60 + self.number(2, 0..=59)?)
    }

    /// `+HH:MM` or `-HH:MM` as seconds.
    fn offset_s(&mut self) -> Option<i64> {
        let sign = if self.one_of(b"+-")? == b'-' { -1 } else { 1 };
        Some(sign * self.minute(23)? * MINUTE_S)
    }

    /// The digits after the point, if there is one.
    fn fraction_us(&mut self) -> Option<i64> {
        if self.one_of(b".").is_none() {
            return Some(0);
        }
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let power = u32::try_from(6_usize.checked_sub(digits).filter(|_| digits > 0)?).ok()?;
        Some(self.number(digits, 0..=999_999)? * 10_i64.pow(power))
    }
}

/// A time in microseconds since the Unix epoch as RFC 3339 in UTC, to the second.
///
/// ```
/// assert_eq!(polylimit::time_text(1_789_948_859_999_999), "2026-09-21T00:00:59Z");
/// ```
pub fn time_text(us: u64) -> String {
    let seconds = us / 1_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day since 1970-01-01. The year is counted from March, so that a leap day is its last day.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
            ("2255-06-05T23:47:34.740991Z", MAX_US),
        ] {
            assert_eq!(parse_time_us(text), Ok(us), "{text}");
        }
    }

    #[test]
    fn every_day_follows_the_day_before() {
        let mut expected = 0;
        for year in 1970..=2255 {
            for month in 1..=12 {
                for day in 1..=days_of(year, month) {
                    assert_eq!(days_since_epoch(year, month, day), expected, "{year}-{month}-{day}");
                    expected += 1;
                }
            }
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
        ] {
            assert!(parse_time_us(text).unwrap_err().message().contains("from 1970"), "{text}");
        }
    }
}
