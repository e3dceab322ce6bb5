//! Values of JavaScript as those of the core, and errors. The error for a number that is out of range or fractional names the argument.

use std::time::Duration;

use polylimit::{Error, ErrorKind};
use serde::de::DeserializeOwned;
use wasm_bindgen::JsValue;

/// 2^53: larger integers are not exact in JavaScript.
const TOO_LARGE: f64 = 9_007_199_254_740_992.0;

pub(crate) type Result<T> = std::result::Result<T, JsValue>;

/// The code of an error and its message, as `ts/errors.ts` reads them.
pub(crate) fn to_js(error: &Error) -> JsValue {
    thrown(error.kind(), error.message())
}

pub(crate) fn invalid(message: &str) -> JsValue {
    thrown(ErrorKind::InvalidArgument, message)
}

fn thrown(kind: ErrorKind, message: &str) -> JsValue {
    js_sys::Array::of2(&kind.code().into(), &message.into()).into()
}

/// Reads an object of `ts/`, which has checked its types.
pub(crate) fn read<T: DeserializeOwned>(value: JsValue) -> Result<T> {
    serde_wasm_bindgen::from_value(value).map_err(|error| invalid(&error.to_string()))
}

/// Reads a whole number from 0 up. The core checks the maximum.
pub(crate) fn whole(name: &str, number: f64, allowed: &str) -> Result<u64> {
    if (0.0..TOO_LARGE).contains(&number) && number.fract() == 0.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        return Ok(number as u64);
    }
    Err(invalid(&format!("{name} is {number}: allowed is {allowed}")))
}

pub(crate) const UNITS: &str = "a whole number from 0 to 1000000000000 units";

/// Converts milliseconds, with a fraction down to the microsecond. The core checks the bounds.
pub(crate) fn duration(name: &str, ms: f64) -> Result<Duration> {
    let us = (ms * 1000.0).round();
    if ms >= 0.0 && us < TOO_LARGE {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        return Ok(Duration::from_micros(us as u64));
    }
    Err(invalid(&format!("{name} is {ms} ms: allowed is a number of milliseconds, 0 or more")))
}

/// Converts a count or microseconds, which are below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

/// Converts microseconds to milliseconds, exactly to the microsecond up to 70 years.
pub(crate) fn milliseconds(us: u64) -> f64 {
    number(us) / 1000.0
}
