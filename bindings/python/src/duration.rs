//! Durations: `datetime.timedelta`, or seconds as a number.

use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyDeltaAccess, PyFloat, PyInt};

use crate::error::invalid_argument;

/// Reads a duration that the caller calls `name`; no more exactly than microseconds.
pub(crate) fn read(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = value.py();
    let refused = || {
        let shown = value.repr().map_or_else(|_| "unreadable".to_owned(), |repr| repr.to_string());
        invalid_argument(
            py,
            &format!("{name} is {shown}: allowed are seconds from 0 up, or a timedelta of 0 or more"),
        )
    };
    if let Ok(delta) = value.cast::<PyDelta>() {
        let days = u64::try_from(delta.get_days()).map_err(|_| refused())?;
        let seconds = u64::try_from(delta.get_seconds()).map_err(|_| refused())?;
        let us = u64::try_from(delta.get_microseconds()).map_err(|_| refused())?;
        return Ok(Duration::from_secs(days * 86_400 + seconds) + Duration::from_micros(us));
    }
    if !value.is_instance_of::<PyFloat>() && !value.is_instance_of::<PyInt>() {
        let kind = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "{name} is of type {kind}: allowed are seconds as a number, or a timedelta"
        )));
    }
    let seconds: f64 = value.extract().map_err(|_| refused())?;
    match seconds {
        seconds if seconds == f64::INFINITY => Ok(Duration::MAX),
        seconds if seconds >= 0.0 => {
            Ok(Duration::try_from_secs_f64(seconds).map_or(Duration::MAX, nearest_microsecond))
        }
        _ => Err(refused()),
    }
}

/// A float of seconds is near a number of microseconds, not on it.
fn nearest_microsecond(duration: Duration) -> Duration {
    let us = duration.saturating_add(Duration::from_nanos(500)).as_micros();
    u64::try_from(us).map_or(Duration::MAX, Duration::from_micros)
}

/// Microseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "floats are for people; the exact number is beside it")]
pub(crate) fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
