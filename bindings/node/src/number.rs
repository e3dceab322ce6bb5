//! JavaScript's numbers as integers, and back. The error for a number that is out of range or fractional names the argument.

use std::time::Duration;

use polylimit::Quota;
use polylimit::http::Backoff;

use crate::error::{Code, Result, invalid_argument};

/// 2^53: larger integers are not exact in JavaScript.
const TOO_LARGE: f64 = 9_007_199_254_740_992.0;

/// Reads a whole number from 0 up. `allowed` is the end of the error message.
#[inline]
pub(crate) fn whole(name: &str, number: f64, allowed: &str) -> Result<u64> {
    if (0.0..TOO_LARGE).contains(&number) && number.fract() == 0.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        return Ok(number as u64);
    }
    Err(out_of_range(name, number, allowed))
}

pub(crate) fn out_of_range(name: &str, number: f64, allowed: &str) -> napi::Error<Code> {
    invalid_argument(format!("{name} is {}: allowed is {allowed}", display(number)))
}

/// Reads a cost; the core checks the maximum.
#[inline]
pub(crate) fn cost(number: f64) -> Result<u64> {
    units("cost", number)
}

/// Reads a headroom; the core checks the maximum.
#[inline]
pub(crate) fn headroom(percent: f64) -> Result<u8> {
    let percent = whole("headroom", percent, "a whole number from 0 to 99 percent")?;
    Ok(u8::try_from(percent).unwrap_or(u8::MAX))
}

/// Reads a percentage; the core checks the maximum.
pub(crate) fn percent(name: &str, number: f64, allowed: &str) -> Result<u8> {
    let allowed = format!("a whole number of percent, {allowed}");
    let percent = whole(name, number, &allowed)?;
    u8::try_from(percent).map_err(|_| out_of_range(name, number, &allowed))
}

/// The range of a cost.
pub(crate) const COST: &str = "a whole number from 0 to 1000000000000 units";

/// Reads units of a cost; the core checks the maximum.
#[inline]
pub(crate) fn units(name: &str, number: f64) -> Result<u64> {
    whole(name, number, COST)
}

/// The times that an argument allows. The core has the same bounds; here they are in the unit of JavaScript.
pub(crate) struct Span {
    least: Duration,
    most: Duration,
    /// Whether 0 is allowed too.
    has_zero: bool,
    allowed: &'static str,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LEAST: Duration = Duration::from_millis(1);

/// The period of a quota, which is 0 for concurrency.
pub(crate) const PERIOD: Span =
    Span { least: Quota::MIN_PERIOD, most: Quota::MAX_PERIOD, has_zero: true, allowed: "1 ms to 366 days" };
/// How long a key is blocked.
pub(crate) const BLOCK: Span = Span {
    least: LEAST,
    most: Quota::MAX_PERIOD,
    has_zero: true,
    allowed: "1 ms to 366 days, or 0 to forget the block",
};
/// How long a reservation lasts.
pub(crate) const TTL: Span =
    Span { least: LEAST, most: Duration::from_secs(48 * 60 * 60), has_zero: false, allowed: "1 ms to 48 h" };
/// How long a commit is remembered.
pub(crate) const REMEMBER: Span =
    Span { has_zero: true, allowed: "1 ms to 48 h, or 0 not to remember the commit", ..TTL };
/// How long a call may wait.
pub(crate) const TIMEOUT: Span = Span {
    least: Duration::ZERO,
    most: Duration::MAX,
    has_zero: true,
    allowed: "0 ms or more, and Infinity to wait without an end",
};
/// Any other time.
pub(crate) const ANY: Span =
    Span { least: Duration::ZERO, most: Duration::MAX, has_zero: true, allowed: "0 ms or more" };
/// How long a guard may hold a request.
pub(crate) const WAIT: Span =
    Span { least: Duration::ZERO, most: Duration::from_mins(1), has_zero: true, allowed: "0 ms to 60000 ms" };
/// The times of a backoff.
pub(crate) const BASE: Span = Span { least: LEAST, most: DAY, has_zero: false, allowed: "1 ms to capMs" };
pub(crate) const CAP: Span = Span { least: LEAST, most: DAY, has_zero: false, allowed: "baseMs to a day" };
pub(crate) const MAX_WAIT: Span =
    Span { least: Duration::ZERO, most: Backoff::MAX_WAIT, has_zero: true, allowed: "0 ms to 366 days" };

/// Converts milliseconds, with a fraction down to the microsecond, to a duration. `Infinity` is the longest one where there is no
/// upper bound.
pub(crate) fn duration(name: &str, ms: f64, span: &Span) -> Result<Duration> {
    let is_unbounded = span.most == Duration::MAX;
    let time = match microseconds(ms) {
        Some(us) => Duration::from_micros(us),
        None if is_unbounded && ms > 0.0 => return Ok(Duration::MAX),
        None => return Err(out_of_span(name, ms, span)),
    };
    if (span.least..=span.most).contains(&time) || (span.has_zero && ms == 0.0) {
        return Ok(time);
    }
    Err(out_of_span(name, ms, span))
}

fn out_of_span(name: &str, ms: f64, span: &Span) -> napi::Error<Code> {
    invalid_argument(format!("{name} is {} ms: allowed is {}", display(ms), span.allowed))
}

/// A number in JavaScript's notation.
fn display(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if number != 0.0 && !(1e-6..1e21).contains(&number.abs()) {
        format!("{number:e}")
    } else {
        number.to_string()
    }
}

/// Converts milliseconds to microseconds; `None` for a negative number and one without exact microseconds.
fn microseconds(ms: f64) -> Option<u64> {
    let us = (ms * 1000.0).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked in the same line")]
    (ms >= 0.0 && us < TOO_LARGE).then_some(us as u64)
}

/// Converts microseconds to milliseconds, exactly to the microsecond up to 70 years.
#[expect(clippy::cast_precision_loss, reason = "exact up to 70 years")]
pub(crate) fn milliseconds(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// Converts a count; the largest is 10^12 units.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}
