//! JavaScript's numbers as integers, and back. The error for a number that is out of range or fractional names the argument.

use std::time::Duration;

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

fn out_of_range(name: &str, number: f64, allowed: &str) -> napi::Error<Code> {
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

/// Reads units of a cost; the core checks the maximum.
#[inline]
pub(crate) fn units(name: &str, number: f64) -> Result<u64> {
    whole(name, number, "a whole number from 0 to 1000000000000 units")
}

/// Converts milliseconds, as [`microseconds`] does, to a duration.
pub(crate) fn duration(name: &str, ms: f64) -> Result<Duration> {
    Ok(Duration::from_micros(microseconds(name, ms)?))
}

/// A number in JavaScript's notation.
fn display(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if number.abs() >= 1e21 { format!("{number:e}") } else { number.to_string() }
}

/// Converts milliseconds, with a fraction down to the microsecond, to microseconds.
pub(crate) fn microseconds(name: &str, ms: f64) -> Result<u64> {
    let us = (ms * 1000.0).round();
    if (0.0..TOO_LARGE).contains(&us) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        return Ok(us as u64);
    }
    Err(invalid_argument(format!(
        "{name} is {}: allowed are milliseconds from 0 to 9007199254740.991",
        display(ms)
    )))
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
