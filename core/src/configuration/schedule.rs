//! `during`: spans of local time that come back every day or on some days of the week.

use crate::error::{Error, excerpt};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const ALL_DAYS: u8 = 0b0111_1111;
const MINUTE_US: i64 = 60_000_000;
const DAY_MINUTES: i64 = 24 * 60;

/// A minute of local time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalMinute {
    /// 0 is Monday.
    day: u32,
    /// 0 to 1439.
    minute: u16,
}

impl LocalMinute {
    /// The minute at a clock time, which is UTC, and an offset from UTC.
    pub(crate) fn at(now_us: u64, utc_offset_us: i64) -> Self {
        let minutes = now_us.cast_signed().saturating_add(utc_offset_us).div_euclid(MINUTE_US);
        // 1970-01-01 was a Thursday.
        let day = (minutes.div_euclid(DAY_MINUTES) + 3).rem_euclid(7);
        let minute = minutes.rem_euclid(DAY_MINUTES);
        Self { day: u32::try_from(day).unwrap_or(0), minute: u16::try_from(minute).unwrap_or(0) }
    }
}

/// A span such as `mon-fri 22:00-06:00`, which starts on certain days. One that ends before it starts goes over midnight
/// and belongs to the day on which it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DailySpan {
    /// The days on which it starts; bit 0 is Monday.
    days: u8,
    /// Inclusive, in minutes.
    start: u16,
    /// Exclusive, in minutes; up to 1440.
    end: u16,
}

impl DailySpan {
    /// Reads a span: `[DAY[-DAY] ]HH:MM-HH:MM`.
    ///
    /// # Errors
    /// Invalid argument: the text is no span, or its start is its end.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let span = Self::read(text).filter(|span| span.start < 1440 && span.start != span.end);
        span.ok_or_else(|| {
            Error::invalid_argument(format!(
                "during is {}; allowed are [DAY[-DAY] ]HH:MM-HH:MM with two different times from 00:00 to 24:00 and days \
                 from mon to sun, such as \"mon-fri 22:00-06:00\"",
                excerpt(text)
            ))
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (days, times) = match text.split_once(' ') {
            Some((days, times)) => (days_of(days)?, times),
            None => (ALL_DAYS, text),
        };
        let (start, end) = times.split_once('-')?;
        Some(Self { days, start: minute_of(start)?, end: minute_of(end)? })
    }

    /// Whether a moment lies in the span.
    pub(crate) fn contains(self, at: LocalMinute) -> bool {
        let starts_on = |day: u32| self.days >> (day % 7) & 1 == 1;
        if self.start < self.end {
            starts_on(at.day) && (self.start..self.end).contains(&at.minute)
        } else {
            starts_on(at.day) && self.start <= at.minute || starts_on(at.day + 6) && at.minute < self.end
        }
    }
}

/// `DAY` or `DAY-DAY`; days wrap, so that `fri-mon` is four days.
fn days_of(text: &str) -> Option<u8> {
    let index = |day| DAYS.iter().position(|name| *name == day);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (index(first)?, index(last)?);
    let count = (last + 7 - first) % 7 + 1;
    Some((0..count).fold(0, |days, at| days | 1 << ((first + at) % 7)))
}

fn minute_of(text: &str) -> Option<u16> {
    let &[h1, h2, b':', m1, m2] = text.as_bytes() else { return None };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u16::from(byte - b'0'));
    let (hour, minute) = (digit(h1)? * 10 + digit(h2)?, digit(m1)? * 10 + digit(m2)?);
    (minute < 60 && hour * 60 + minute <= 1440).then_some(hour * 60 + minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONDAY_US: u64 = 1_789_948_800_000_000;

    fn contains(text: &str, day: u64, hour: u64, minute: u64) -> bool {
        let now_us = MONDAY_US + ((day * 24 + hour) * 60 + minute) * 60_000_000;
        DailySpan::parse(text).unwrap().contains(LocalMinute::at(now_us, 0))
    }

    #[test]
    fn start_is_in_the_span_and_end_is_not() {
        for (text, day, hour, minute, expected) in [
            ("12:00-13:00", 0, 11, 59, false),
            ("12:00-13:00", 6, 12, 0, true),
            ("12:00-13:00", 3, 12, 59, true),
            ("12:00-13:00", 0, 13, 0, false),
            ("sat-sun 00:00-24:00", 4, 23, 59, false),
            ("sat-sun 00:00-24:00", 5, 0, 0, true),
            ("sat-sun 00:00-24:00", 6, 23, 59, true),
            ("sat-sun 00:00-24:00", 7, 0, 0, false),
            ("tue 10:00-11:00", 1, 10, 30, true),
            ("tue 10:00-11:00", 2, 10, 30, false),
        ] {
            assert_eq!(contains(text, day, hour, minute), expected, "{text} on day {day} at {hour}:{minute}");
        }
    }

    #[test]
    fn span_over_midnight_belongs_to_the_day_on_which_it_starts() {
        let text = "mon-fri 22:00-06:00";
        // The small hours of Monday belong to Sunday, those of Saturday to Friday.
        for (day, hour, expected) in [
            (0, 5, false),
            (0, 21, false),
            (0, 22, true),
            (1, 5, true),
            (1, 6, false),
            (5, 5, true),
            (5, 22, false),
        ] {
            assert_eq!(contains(text, day, hour, 0), expected, "day {day} at {hour}:00");
        }
        assert!(contains("sun 22:00-00:00", 6, 23, 59) && !contains("sun 22:00-00:00", 7, 0, 0));
        assert!(contains("sun 22:00-00:01", 7, 0, 0));
    }

    #[test]
    fn days_wrap() {
        for (day, expected) in [(3, false), (4, true), (5, true), (6, true), (0, true), (1, false)] {
            assert_eq!(contains("fri-mon 10:00-11:00", day, 10, 0), expected, "day {day}");
        }
        assert!((0..7).all(|day| contains("tue-mon 10:00-11:00", day, 10, 0)));
    }

    #[test]
    fn offset_moves_the_day() {
        let minute = |hours: i64| LocalMinute::at(MONDAY_US, hours * 3_600_000_000);
        assert_eq!(minute(-1), LocalMinute { day: 6, minute: 1380 });
        assert_eq!(minute(14), LocalMinute { day: 0, minute: 840 });
        assert_eq!(LocalMinute::at(0, -60_000_000), LocalMinute { day: 2, minute: 1439 });
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "25:00-26:00",
            "12:00",
            "12:00-12:00",
            "24:00-06:00",
            "00:00-24:01",
            "12:60-13:00",
            "1:00-2:00",
            "12:00 - 13:00",
            "mon",
            "mon 12:00",
            "Mon 12:00-13:00",
            "mon-xyz 12:00-13:00",
            "mon,tue 12:00-13:00",
            "mon-tue-wed 12:00-13:00",
            "mon  12:00-13:00",
            " 12:00-13:00",
            "12:00-13:00-14:00",
            "é2:00-13:00",
        ] {
            let message = DailySpan::parse(text).unwrap_err().message().to_owned();
            assert!(message.starts_with(&format!("during is {text:?}; allowed")), "{message}");
        }
    }
}
