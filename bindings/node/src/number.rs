//! JavaScript's numbers as integers. Out of range or fractional, they are refused by the name of what they were.

use napi_derive::napi;
use polylimit::Request;

use crate::failure::{Code, Result, guarded, invalid_argument};

/// 2^53: from there on JavaScript's numbers are not exact.
const TOO_LARGE: f64 = 9_007_199_254_740_992.0;

/// A whole number from 0 up. `allowed` completes the sentence of its refusal.
#[inline]
pub(crate) fn whole(name: &str, number: f64, allowed: &str) -> Result<u64> {
    if (0.0..TOO_LARGE).contains(&number) && number.fract() == 0.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        return Ok(number as u64);
    }
    Err(none(name, number, allowed))
}

fn none(name: &str, number: f64, allowed: &str) -> napi::Error<Code> {
    invalid_argument(format!("{name} is {}: allowed is {allowed}", written(number)))
}

const COSTS: &str = "a whole number from 0 to 1000000000000 units";

/// Refuses what no request can cost.
#[napi]
pub fn check_cost(units: f64) -> Result<()> {
    guarded(|| match cost(units)? {
        0..=Request::MAX_COST => Ok(()),
        _ => Err(none("cost", units, COSTS)),
    })
}

/// A cost; the core checks its largest.
#[inline]
pub(crate) fn cost(number: f64) -> Result<u64> {
    whole("cost", number, COSTS)
}

/// A number as JavaScript writes it.
fn written(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if number.abs() >= 1e21 { format!("{number:e}") } else { number.to_string() }
}

/// Milliseconds, with a fraction down to the microsecond, as microseconds.
pub(crate) fn microseconds(name: &str, ms: f64) -> Result<u64> {
    let us = (ms * 1000.0).round();
    if (0.0..TOO_LARGE).contains(&us) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        return Ok(us as u64);
    }
    Err(invalid_argument(format!(
        "{name} is {}: allowed are milliseconds from 0 to 9007199254740.991",
        written(ms)
    )))
}

/// Microseconds as milliseconds: exact to the microsecond up to 70 years.
#[expect(clippy::cast_precision_loss, reason = "said above")]
pub(crate) fn milliseconds(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// A count as JavaScript's number; units end at 10^12.
#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}
