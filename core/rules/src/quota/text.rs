//! The text form of quotas: parsed, and printed in its canonical form.
//!
//! ```text
//! quotas   = quota { ";" quota }
//! quota    = limit ws "concurrent"
//! quota    = limit ( [ws] "/" [ws] | ws "per" ws ) period { ws setting }
//! limit    = digits, with "_" allowed between them
//! period   = [digits [ws]] unit ;  unit = us|ms|s|sec|second|m|min|minute|h|hr|hour|d|day|w|week, plural forms too
//!          | [ "1" | "2" | "3" | "4" | "6" ] month | quarter | year, plural forms too
//! setting  = algorithm | "burst=" n | "step=" n | "buckets=" n | "aligned" | "count_denied" | "excess=" n ["%"]
//!          | "zone=" name | "from=" start
//! ```
//!
//! A month, a quarter and a year are [windows by the calendar](super::calendar), and so are a day with `zone` and a week with `zone` or
//! `from`.
//!
//! `per` and units may be in upper case, except for a single `M`, which could mean a month.

use std::borrow::Cow;
use std::fmt;
use std::iter::Peekable;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::Weekday;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use crate::error::{Error, excerpt};
use crate::quota::builder::default_buckets;
use crate::quota::calendar::{Calendar, CalendarStart, CalendarUnit};
use crate::quota::{Algorithm, Quota, QuotaBuilder};
use crate::units::micros;
use crate::zone::Zone;

const DAY_US: u64 = 86_400_000_000;
const WEEK_US: u64 = 604_800_000_000;

/// The units of a period from long to short: microseconds, the word for one unit, the letters after a number, and other
/// spellings.
const UNITS: [(u64, &str, &str, &str); 7] = [
    (WEEK_US, "week", "w", "weeks"),
    (DAY_US, "day", "d", "days"),
    (3_600_000_000, "hour", "h", "hr hrs hours"),
    (60_000_000, "minute", "m", "min mins minutes"),
    (1_000_000, "second", "s", "sec secs seconds"),
    (1_000, "ms", "ms", "millisecond milliseconds"),
    (1, "us", "us", "microsecond microseconds"),
];

/// What other limiters call our algorithms.
const OF_OTHERS: [(&str, &str); 8] = [
    ("gcra", "token_bucket"),
    ("token-bucket", "token_bucket"),
    ("leaky-bucket", "leaky_bucket"),
    ("fixed-window", "fixed_window"),
    ("moving-window", "sliding_log"),
    ("sliding-log", "sliding_log"),
    ("sliding-window", "sliding_window"),
    ("sliding-window-counter", "sliding_window"),
];

/// The canonical text: settings that equal the default are left out, and the period is in the longest unit that divides
/// it.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.algorithm == Algorithm::Concurrency {
            return write!(f, "{} concurrent", self.limit);
        }
        write!(f, "{}/", self.limit)?;
        if let Some(calendar) = &self.calendar {
            write!(f, "{calendar}")?;
            return self.write_common_settings(f);
        }
        for (unit_us, word, letters, _) in UNITS {
            if self.period_us == unit_us {
                f.write_str(word)?;
                break;
            }
            if self.period_us.is_multiple_of(unit_us) {
                write!(f, "{}{letters}", self.period_us / unit_us)?;
                break;
            }
        }
        if self.algorithm != Algorithm::default() {
            write!(f, " {}", self.algorithm)?;
        }
        let burst = self.capacity - self.excess;
        if burst != self.limit {
            write!(f, " burst={burst}")?;
        }
        if let Some(step) = self.step() {
            write!(f, " step={step}")?;
        }
        if let Some(buckets) = self.buckets().filter(|&buckets| buckets != default_buckets(self.period_us)) {
            write!(f, " buckets={buckets}")?;
        }
        if self.aligned {
            f.write_str(" aligned")?;
        }
        self.write_common_settings(f)
    }
}

impl Quota {
    /// The settings of every algorithm.
    fn write_common_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count_denied {
            f.write_str(" count_denied")?;
        }
        if self.excess > 0 {
            write!(f, " excess={}", self.excess)?;
        }
        Ok(())
    }
}

impl FromStr for Quota {
    type Err = Error;

    /// Parses one quota, such as `10/s token_bucket burst=20`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with the text at fault, its column (counted in characters,
    /// from 1), and what is allowed.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text.find(';') {
            None => Reader { text, what: "quota" }.quota(Span { start: 0, end: text.len() }),
            Some(at) => Err(Reader { text, what: "quota" }.error(at, "one quota; a policy takes several")),
        }
    }
}

impl FromStr for Calendar {
    type Err = Error;

    /// Parses a period with its settings, such as `month from=15 zone=Europe/Berlin`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with the text at fault, its column (counted in characters,
    /// from 1), and what is allowed.
    fn from_str(text: &str) -> Result<Self, Error> {
        let reader = Reader { text, what: "calendar" };
        let words = reader.split(Span { start: 0, end: text.len() }, char::is_whitespace);
        let mut words = words.into_iter().filter(|word| word.start < word.end).peekable();
        let first = words.next().unwrap_or(Span { start: text.len(), end: text.len() });
        let period = reader.period(first, &mut words)?;
        let mut settings = Settings::of(Quota::builder(0, Duration::ZERO));
        for word in words {
            reader.setting(word, &mut settings)?;
            if !matches!(settings.places.last(), Some(("zone" | "from", _))) {
                return Err(reader.error(word.start, "zone=name or from=start"));
            }
        }
        let calendar = reader.calendar(&period, &settings)?;
        calendar.ok_or_else(|| {
            reader.error(first.start, "windows by the calendar, such as month or day zone=UTC")
        })
    }
}

/// As its canonical text.
impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From a text that [`FromStr`] parses.
impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Parses quotas separated by `;`, such as `10/s; 1000/h`.
#[doc(hidden)]
pub fn parse_quotas(text: &str) -> Result<Vec<Quota>, Error> {
    let reader = Reader { text, what: "quota" };
    reader
        .split(Span { start: 0, end: text.len() }, |c| c == ';')
        .into_iter()
        .map(|span| reader.quota(span))
        .collect()
}

/// Parses a duration that is written as the period of a quota, such as `15m`.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(polylimit::raw::parse_duration("15m")?, Duration::from_secs(15 * 60));
/// # Ok::<(), polylimit::Error>(())
/// ```
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the text is no duration from [`Quota::MIN_PERIOD`] to
/// [`Quota::MAX_PERIOD`].
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    let reader = Reader { text, what: "duration" };
    let words = reader.split(Span { start: 0, end: text.len() }, char::is_whitespace);
    let mut words = words.into_iter().filter(|word| word.start < word.end).peekable();
    let first = words.next().unwrap_or(Span { start: text.len(), end: text.len() });
    let Period::Time { duration, .. } = reader.period(first, &mut words)? else {
        return Err(reader.error(first.start, "a time of one length, such as 30d"));
    };
    if let Some(word) = words.next() {
        return Err(reader.error(word.start, "a number and a unit such as 15m"));
    }
    if !(Quota::MIN_PERIOD..=Quota::MAX_PERIOD).contains(&duration) {
        let message = format!("{duration:?} is out of bounds: allowed is 1 ms to 366 days");
        return Err(reader.error_at(first.start, &message));
    }
    Ok(duration)
}

/// [`parse_duration`], as microseconds.
#[doc(hidden)]
pub fn parse_duration_us(text: &str) -> Result<u64, Error> {
    parse_duration(text).map(micros)
}

/// A part of the text, in bytes; it starts and ends between characters.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
}

struct Reader<'a> {
    text: &'a str,
    /// What is read, for messages.
    what: &'static str,
}

impl<'a> Reader<'a> {
    fn read(&self, span: Span) -> &'a str {
        &self.text[span.start..span.end]
    }

    fn error(&self, at: usize, allowed: &str) -> Error {
        let read = match self.text[at..].split_whitespace().next() {
            Some(word) => format!("read {}", excerpt(word)),
            None => "the text ends".to_owned(),
        };
        self.error_at(at, &format!("{read}, allowed is {allowed}"))
    }

    fn error_at(&self, at: usize, message: &str) -> Error {
        let column = self.text[..at].chars().count() + 1;
        Error::invalid_argument(format!("{} at column {column}: {message}", self.what))
    }

    /// The parts of a span between separators, including empty ones.
    fn split(&self, span: Span, separator: fn(char) -> bool) -> Vec<Span> {
        let mut parts = Vec::new();
        let mut start = span.start;
        for (offset, separated_by) in self.read(span).match_indices(separator) {
            let end = span.start + offset;
            parts.push(Span { start, end });
            start = end + separated_by.len();
        }
        parts.push(Span { start, end: span.end });
        parts
    }

    fn quota(&self, span: Span) -> Result<Quota, Error> {
        let words = self.split(span, char::is_whitespace);
        let mut words = words.into_iter().filter(|word| word.start < word.end).peekable();
        let Some(first) = words.next() else {
            return Err(self.error(span.start, "a quota such as 100/minute"));
        };
        if let Some(word) = words.next_if(|word| self.read(*word).eq_ignore_ascii_case("concurrent")) {
            return self.concurrency(first, word, words.next());
        }
        let (limit, period) = self.around_separator(first, &mut words)?;
        let limit = self.number(limit, "digits with _ between them, then / and a period")?;
        let (period_at, period) = (period.start, self.period(period, &mut words)?);
        let duration = match period {
            Period::Time { duration, .. } => duration,
            Period::Calendar(_) => Duration::ZERO,
        };
        let builder = Quota::builder(limit, duration);
        let mut settings = Settings::of(builder);
        for word in words {
            self.setting(word, &mut settings)?;
        }
        let builder = match self.calendar(&period, &settings)? {
            Some(calendar) => settings.builder.without_period().calendar(calendar),
            None => settings.builder,
        };
        builder.check().map_err(|refusal| {
            let place = settings.places.iter().find(|(setting, _)| *setting == refusal.setting);
            let otherwise = if refusal.setting == "period" { period_at } else { first.start };
            let at = place.map_or(otherwise, |(_, at)| *at);
            self.error_at(at, &refusal.message)
        })
    }

    /// The quota `<limit> concurrent`, after which nothing follows.
    fn concurrency(&self, limit: Span, word: Span, next: Option<Span>) -> Result<Quota, Error> {
        if let Some(next) = next {
            return Err(self.error(next.start, "nothing after concurrent, which has no settings"));
        }
        let units = self.number(limit, "digits with _ between them, then concurrent")?;
        let builder = Quota::builder(units, Duration::ZERO).algorithm(Algorithm::Concurrency);
        builder.check().map_err(|refusal| {
            let at = if refusal.setting == "limit" { limit.start } else { word.start };
            self.error_at(at, &refusal.message)
        })
    }

    /// The limit and the first word of the period: the parts before and after `/` or `per`.
    fn around_separator(
        &self,
        first: Span,
        words: &mut Peekable<impl Iterator<Item = Span>>,
    ) -> Result<(Span, Span), Error> {
        const EXAMPLE: &str = "a quota such as 100/minute";
        const AFTER_LIMIT: &str = "per or / and a period, as in 100/minute, or concurrent";
        let (limit, after) = if let Some(at) = self.read(first).find('/') {
            let slash = first.start + at;
            (Span { end: slash, ..first }, Span { start: slash + 1, ..first })
        } else {
            let Some(separator) = words.next() else { return Err(self.error(first.start, EXAMPLE)) };
            let read = self.read(separator);
            let length = if read.eq_ignore_ascii_case("per") { read.len() } else { 1 };
            if length == 1 && !read.starts_with('/') {
                let is_limit = self.number(first, EXAMPLE).is_ok();
                let (at, allowed) =
                    if is_limit { (separator.start, AFTER_LIMIT) } else { (first.start, EXAMPLE) };
                return Err(self.error(at, allowed));
            }
            (first, Span { start: separator.start + length, ..separator })
        };
        if after.start < after.end {
            return Ok((limit, after));
        }
        Ok((limit, words.next().unwrap_or(after)))
    }

    /// Digits, with single underscores allowed between them.
    fn number(&self, span: Span, allowed: &str) -> Result<u64, Error> {
        let read = self.read(span);
        let well_formed =
            read.split('_').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        if !well_formed {
            return Err(self.error(span.start, allowed));
        }
        read.replace('_', "").parse().map_err(|_| self.error(span.start, "a number up to 1000000000000"))
    }

    /// The windows by the calendar of a period with these settings, if they are that.
    fn calendar(&self, period: &Period, settings: &Settings<'a>) -> Result<Option<Calendar>, Error> {
        let unit = match (period, settings.from.or(settings.zone)) {
            (Period::Calendar(unit), _) | (Period::Time { unit: Some(unit), .. }, Some(_)) => *unit,
            (Period::Time { unit: None, .. }, Some(value)) => {
                let setting = if settings.from.is_some() { "from" } else { "zone" };
                let message = format!(
                    "{setting} belongs to windows by the calendar, which are a day, a week, 1, 2, 3, 4 or 6 months, and a year: leave it \
                     out, or use one of these"
                );
                return Err(self.error_at(value.start, &message));
            }
            (Period::Time { .. }, None) => return Ok(None),
        };
        let unit = match settings.from {
            Some(from) => {
                let start = CalendarStart::parse(self.read(from)).and_then(|start| unit.starting(start));
                start.ok_or_else(|| self.error(from.start, unit.starts()))?
            }
            None => unit,
        };
        let zone = match settings.zone {
            Some(zone) => {
                let read = Zone::parse(self.read(zone));
                read.map_err(|error| self.error_at(zone.start, error.message()))?
            }
            None => Zone::UTC,
        };
        Ok(Some(Calendar::new(unit, zone)))
    }

    /// An optional number and a unit, which may be the next word.
    fn period(&self, span: Span, words: &mut Peekable<impl Iterator<Item = Span>>) -> Result<Period, Error> {
        let read = self.read(span);
        let digits = read.bytes().take_while(u8::is_ascii_digit).count();
        let is_unit = |word: &Span| {
            let unit = lower_case(self.read(*word));
            unit_us(&unit).is_some() || months_of(&unit).is_some()
        };
        let (written, unit_at) = match words.next_if(|word| digits == read.len() && is_unit(word)) {
            Some(word) => (self.read(word), word.start),
            None => (&read[digits..], span.start + digits),
        };
        let unit = &*lower_case(written);
        if let Some(at) = written.find([',', '|', '&', '+']) {
            return Err(self.error(unit_at + at, "; between quotas, as in 10/second; 100/minute"));
        }
        if unit == "M" {
            return Err(self.error_at(unit_at, "read \"M\", allowed is m for minutes, or month"));
        }
        let count: u64 = match &read[..digits] {
            "" => 1,
            count => count.parse().unwrap_or(u64::MAX),
        };
        if let Some(months) = months_of(unit) {
            let unit = match months.saturating_mul(count) {
                months @ (1 | 2 | 3 | 4 | 6) => CalendarUnit::Months(u8::try_from(months).unwrap_or(1), 1),
                12 if months == 12 => CalendarUnit::Year(1, 1),
                _ => {
                    let message = format!(
                        "read {:?}, allowed are 1, 2, 3, 4 and 6 months, and 1 year",
                        format!("{count} {written}")
                    );
                    return Err(self.error_at(span.start, &message));
                }
            };
            return Ok(Period::Calendar(unit));
        }
        if let Some(word) = match unit {
            "mo" | "mon" => Some("month"),
            "y" | "yr" => Some("year"),
            _ => None,
        } {
            return Err(self.error(unit_at, word));
        }
        let Some(unit_us) = unit_us(unit) else {
            return Err(self.error(
                unit_at,
                "us, ms, s, m, h, d or w, or the word for it, such as minute, or month, quarter or year",
            ));
        };
        let unit = match (count, unit_us) {
            (1, DAY_US) => Some(CalendarUnit::Day),
            (1, WEEK_US) => Some(CalendarUnit::Week(Weekday::Monday)),
            _ => None,
        };
        // A period that is too long for the multiplication is also too long for a quota, and the builder refuses it.
        Ok(Period::Time { duration: Duration::from_micros(count.saturating_mul(unit_us)), unit })
    }

    fn setting(&self, word: Span, settings: &mut Settings<'a>) -> Result<(), Error> {
        let read = self.read(word);
        let (name, value) = match read.find('=') {
            Some(at) => (&read[..at], Some(Span { start: word.start + at + 1, end: word.end })),
            None => (read, None),
        };
        let algorithm = Algorithm::from_name(name).filter(|algorithm| value.is_none() && algorithm.is_rate());
        let (setting, allowed) = match (name, value) {
            _ if algorithm.is_some() => ("algorithm", "one algorithm".to_owned()),
            ("burst" | "step" | "buckets" | "excess" | "zone" | "from", Some(_))
            | ("aligned" | "count_denied", None) => (name, format!("{name} once")),
            _ => {
                if let Some((_, ours)) =
                    OF_OTHERS.iter().find(|(theirs, _)| name.eq_ignore_ascii_case(theirs))
                {
                    return Err(self.error(word.start, &format!("{ours}, which is that algorithm here")));
                }
                let rates = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.is_rate());
                let algorithms = rates.map(Algorithm::name).collect::<Vec<_>>().join(", ");
                let allowed = format!(
                    "{algorithms}, burst=n, step=n, buckets=n, excess=n, excess=n%, aligned, count_denied, zone=name or \
                     from=start"
                );
                return Err(self.error(word.start, &allowed));
            }
        };
        if settings.places.iter().any(|(given, _)| *given == setting) {
            return Err(self.error(word.start, &allowed));
        }
        settings.places.push((setting, word.start));
        match setting {
            "zone" => settings.zone = value,
            "from" => settings.from = value,
            _ => {}
        }
        if matches!(setting, "zone" | "from") {
            return Ok(());
        }
        let percent = value.filter(|&span| setting == "excess" && self.read(span).ends_with('%'));
        let digits = percent.map(|span| Span { end: span.end - 1, ..span }).or(value);
        let number = digits.map_or(Ok(0), |span| self.number(span, "digits with _ between them"))?;
        let builder = settings.builder.clone();
        settings.builder = match (setting, algorithm) {
            (_, Some(algorithm)) => builder.algorithm(algorithm),
            ("burst", _) => builder.burst(number),
            ("step", _) => builder.step(number),
            // More than 2^32 sub-windows are refused in the same way as 2^32.
            ("buckets", _) => builder.buckets(u32::try_from(number).unwrap_or(u32::MAX)),
            ("excess", _) if percent.is_some() => builder.excess_percent(number),
            ("excess", _) => builder.excess(number),
            ("aligned", _) => builder.aligned(true),
            _ => builder.count_denied(true),
        };
        Ok(())
    }
}

/// The settings of the words so far, and their positions by name.
struct Settings<'a> {
    builder: QuotaBuilder,
    places: Vec<(&'a str, usize)>,
    zone: Option<Span>,
    from: Option<Span>,
}

impl Settings<'_> {
    fn of(builder: QuotaBuilder) -> Self {
        Self { builder, places: Vec::new(), zone: None, from: None }
    }
}

/// A period as it is written.
enum Period {
    /// Of one length; one day and one week may also be windows by the calendar.
    Time {
        duration: Duration,
        unit: Option<CalendarUnit>,
    },
    Calendar(CalendarUnit),
}

/// A unit in lower case, except for `M`, which could mean a month.
fn lower_case(unit: &str) -> Cow<'_, str> {
    if unit == "M" || !unit.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Borrowed(unit)
    } else {
        Cow::Owned(unit.to_ascii_lowercase())
    }
}

/// The months of a unit of the calendar.
fn months_of(unit: &str) -> Option<u64> {
    match unit {
        "month" | "months" => Some(1),
        "quarter" | "quarters" => Some(3),
        "year" | "years" => Some(12),
        _ => None,
    }
}

fn unit_us(unit: &str) -> Option<u64> {
    let is_it = |(_, word, letters, others): &(u64, &str, &str, &str)| {
        unit == *word || unit == *letters || others.split(' ').any(|other| unit == other)
    };
    UNITS.into_iter().find(is_it).map(|(unit_us, ..)| unit_us)
}

#[cfg(test)]
mod tests;
