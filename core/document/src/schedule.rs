//! `during`: spans of local time that recur every day or on some days of the week.

use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::zone::{Zone, minutes};

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
    /// The minute that a clock of the zone shows at an instant.
    pub(crate) fn at(now_us: u64, zone: &Zone) -> Self {
        let minutes = zone.local_us(now_us).div_euclid(MINUTE_US);
        // 1970-01-01 was a Thursday.
        let day = (minutes.div_euclid(DAY_MINUTES) + 3).rem_euclid(7);
        let minute = minutes.rem_euclid(DAY_MINUTES);
        Self { day: u32::try_from(day).unwrap_or(0), minute: u16::try_from(minute).unwrap_or(0) }
    }
}

/// A span such as `mon-fri 22:00-06:00`, which starts on certain days. One that ends before it starts crosses midnight and
/// belongs to the day on which it starts.
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
    /// Invalid argument: the text is not a span, or its start equals its end.
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
        Some(Self { days, start: minutes(start)?, end: minutes(end)? })
    }

    /// Whether a moment is within the span.
    pub(crate) fn contains(self, at: LocalMinute) -> bool {
        let starts_on = |day: u32| self.days >> (day % 7) & 1 == 1;
        if self.start < self.end {
            starts_on(at.day) && (self.start..self.end).contains(&at.minute)
        } else {
            starts_on(at.day) && self.start <= at.minute || starts_on(at.day + 6) && at.minute < self.end
        }
    }
}

/// `DAY` or `DAY-DAY`; days wrap around, so that `fri-mon` is four days.
fn days_of(text: &str) -> Option<u8> {
    let index = |day| DAYS.iter().position(|name| *name == day);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (index(first)?, index(last)?);
    let count = (last + 7 - first) % 7 + 1;
    Some((0..count).fold(0, |days, at| days | 1 << ((first + at) % 7)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylimit_rules::time::parse_time_us;

    const MONDAY_US: u64 = 1_789_948_800_000_000;

    fn contains(text: &str, day: u64, hour: u64, minute: u64) -> bool {
        let now_us = MONDAY_US + ((day * 24 + hour) * 60 + minute) * 60_000_000;
        DailySpan::parse(text).unwrap().contains(LocalMinute::at(now_us, &Zone::UTC))
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
        let minute = |hours: i64| LocalMinute::at(MONDAY_US, &Zone::Offset(hours * 3_600_000_000));
        assert_eq!(minute(-1), LocalMinute { day: 6, minute: 1380 });
        assert_eq!(minute(14), LocalMinute { day: 0, minute: 840 });
        assert_eq!(LocalMinute::at(0, &Zone::Offset(-60_000_000)), LocalMinute { day: 2, minute: 1439 });
    }

    /// When a span holds within 48 hours, as the first and the last minute that the zone's clock shows in each run.
    fn runs(zone: &str, from: &str, text: &str) -> Vec<String> {
        let (zone, span) = (Zone::parse_name(zone).unwrap(), DailySpan::parse(text).unwrap());
        let from_us = parse_time_us(from).unwrap();
        let at = |minute: u64| LocalMinute::at(from_us + minute * 60_000_000, &zone);
        let holds = |minute: &u64| span.contains(at(*minute));
        let shown = |minute: u64| format!("{:02}:{:02}", at(minute).minute / 60, at(minute).minute % 60);
        let mut found = Vec::new();
        let mut minute = 0;
        while minute < 2_880 {
            let length = (minute..2_880).take_while(holds).count() as u64;
            // A run ends where the clock changes, too.
            let steps = |next: &u64| at(next - 1).minute + 1 == at(*next).minute;
            let length = length.min(1 + (minute + 1..2_880).take_while(steps).count() as u64);
            if length > 0 {
                found.push(format!("{} to {}", shown(minute), shown(minute + length - 1)));
            }
            minute += length.max(1);
        }
        found
    }

    /// The table in docs/policies.md.
    #[test]
    fn span_holds_while_the_clock_of_the_zone_shows_its_times() {
        let (skipped, repeated) = ("2027-03-27T12:00:00Z", "2026-10-24T12:00:00Z");
        for (zone, from, text, expected) in [
            ("Europe/Berlin", skipped, "sun 01:30-03:30", &["01:30 to 01:59", "03:00 to 03:29"][..]),
            ("Europe/Berlin", repeated, "sun 01:30-03:30", &["01:30 to 02:59", "02:00 to 03:29"]),
            ("Europe/Berlin", skipped, "sun 02:00-02:30", &[]),
            ("Europe/Berlin", repeated, "sun 02:00-02:30", &["02:00 to 02:29", "02:00 to 02:29"]),
            ("Europe/Berlin", skipped, "sun 02:30-05:00", &["03:00 to 04:59"]),
            ("Europe/Berlin", repeated, "sun 02:30-05:00", &["02:30 to 02:59", "02:30 to 04:59"]),
            (
                "Europe/Berlin",
                skipped,
                "sat 22:00-06:00",
                &["22:00 to 23:59", "00:00 to 01:59", "03:00 to 05:59"],
            ),
            (
                "Europe/Berlin",
                repeated,
                "sat 22:00-06:00",
                &["22:00 to 23:59", "00:00 to 02:59", "02:00 to 05:59"],
            ),
            (
                "America/New_York",
                "2027-03-13T12:00:00Z",
                "sun 01:30-03:30",
                &["01:30 to 01:59", "03:00 to 03:29"],
            ),
            (
                "America/New_York",
                "2026-10-31T12:00:00Z",
                "sun 01:30-03:30",
                &["01:30 to 01:59", "01:30 to 03:29"],
            ),
            // Half an hour.
            (
                "Australia/Lord_Howe",
                "2026-10-03T02:00:00Z",
                "sun 01:45-02:45",
                &["01:45 to 01:59", "02:30 to 02:44"],
            ),
            ("Australia/Lord_Howe", "2026-10-03T02:00:00Z", "sun 02:00-02:30", &[]),
            (
                "Australia/Lord_Howe",
                "2027-04-03T02:00:00Z",
                "sun 01:30-02:00",
                &["01:30 to 01:59", "01:30 to 01:59"],
            ),
            ("Asia/Kolkata", "2026-10-24T18:30:00Z", "sun 01:30-03:30", &["01:30 to 03:29"]),
            // Midnight is skipped.
            ("Africa/Cairo", "2026-04-22T22:00:00Z", "fri 00:00-02:00", &["01:00 to 01:59"]),
            // A Friday is skipped. The hours after its midnight are those of a Saturday.
            ("Pacific/Apia", "2011-12-29T10:00:00Z", "fri 00:00-24:00", &[]),
            ("Pacific/Apia", "2011-12-29T10:00:00Z", "thu 22:00-06:00", &["22:00 to 23:59"]),
            ("Pacific/Apia", "2011-12-29T10:00:00Z", "fri 22:00-06:00", &["00:00 to 05:59"]),
        ] {
            assert_eq!(runs(zone, from, text), expected, "{text} in {zone} from {from}");
        }
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
