//! `ManualClock`, and the clock that a limiter is given.

use polylimit::{Clock, ManualClock};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::duration;
use crate::error::{guarded, invalid_argument};

/// A clock for tests: it stands still until it is set or advanced, and it may go back.
///
/// Parameters
/// ----------
/// now
///     The time that it shows: seconds since the Unix epoch, or a ``timedelta`` since then, up to the year 2255.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When the time is beyond what it can show.
#[pyclass(name = "ManualClock", module = "polylimit", frozen)]
pub(crate) struct PyManualClock(ManualClock);

#[pymethods]
impl PyManualClock {
    #[new]
    fn new(py: Python<'_>, now: &Bound<'_, PyAny>) -> PyResult<Self> {
        let now_us = us("now", now)?;
        Ok(Self(guarded(py, || ManualClock::new(now_us))?))
    }

    /// The time it shows, in seconds since the Unix epoch.
    #[getter]
    fn now(&self) -> f64 {
        duration::seconds(self.0.now_us())
    }

    /// The time it shows, in whole microseconds since the Unix epoch: exact.
    #[getter]
    fn now_us(&self) -> u64 {
        self.0.now_us()
    }

    /// Sets the time, in seconds since the Unix epoch or as a ``timedelta`` since then; it may go back.
    fn set(&self, py: Python<'_>, now: &Bound<'_, PyAny>) -> PyResult<()> {
        let now_us = us("now", now)?;
        guarded(py, || self.0.set(now_us))
    }

    /// Moves the time forward, by seconds or a ``timedelta``.
    fn advance(&self, py: Python<'_>, by: &Bound<'_, PyAny>) -> PyResult<()> {
        let by = duration::read("by", by)?;
        guarded(py, || self.0.advance(by))
    }

    fn __repr__(&self) -> String {
        format!("ManualClock({:?})", self.now())
    }
}

fn us(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(u64::try_from(duration::read(name, value)?.as_micros()).unwrap_or(u64::MAX))
}

/// The clock of a limiter: ``"system"``, ``"coarse"`` or a manual one.
pub(crate) fn read(clock: &Bound<'_, PyAny>) -> PyResult<Clock> {
    if let Ok(clock) = clock.cast::<PyManualClock>() {
        return Ok(clock.get().0.clone().into());
    }
    let name = clock.cast::<PyString>().map_err(|_| {
        PyTypeError::new_err("clock is neither a ManualClock nor one of \"system\" and \"coarse\"")
    })?;
    match &*name.to_cow()? {
        "system" => Ok(Clock::system()),
        "coarse" => Ok(Clock::coarse()),
        _ => Err(invalid_argument(
            clock.py(),
            "clock is not known: allowed are system, coarse and a ManualClock",
        )),
    }
}
