//! `Quota`: an algorithm with its numbers.

use polylimit::{Algorithm, Quota};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::duration;
use crate::error::guarded;
use crate::key;
use crate::utf8::Utf8;

/// At most ``limit`` units per ``period``, counted by an algorithm.
///
/// ``Quota("100/minute")`` reads the text form; ``Quota(100, 60)`` or ``Quota(100, timedelta(minutes=1))`` makes one of
/// numbers. ``str(quota)`` is the text form again.
///
/// Parameters
/// ----------
/// limit
///     The text form, or units per period from 0 to 10**12; 0 admits nothing.
/// period
///     Seconds or a ``timedelta``, from 1 ms to 366 days, in whole microseconds.
/// algorithm
///     ``"sliding_window"`` (the default), ``"token_bucket"``, ``"leaky_bucket"``, ``"fixed_window"`` or ``"sliding_log"``.
/// burst
///     The capacity of the two buckets in units, from 1 to 10**12; ``limit`` unless told otherwise.
/// step
///     Token bucket only: tokens arrive so many at a time.
/// buckets
///     Sliding window only: into how many sub-windows the period is cut, from 1 to 60.
/// aligned
///     Fixed window only: windows start at multiples of the period since the Unix epoch.
/// count_denied
///     Denied requests are charged too.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When a number is out of bounds or a setting does not belong to the algorithm.
#[pyclass(name = "Quota", module = "polylimit", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyQuota(pub(crate) Quota);

#[pymethods]
impl PyQuota {
    #[new]
    #[pyo3(signature = (limit, period = None, *, algorithm = None, burst = None, step = None, buckets = None, aligned = None, count_denied = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python")]
    fn new(
        py: Python<'_>,
        limit: &Bound<'_, PyAny>,
        period: Option<&Bound<'_, PyAny>>,
        algorithm: Option<&Bound<'_, PyAny>>,
        burst: Option<&Bound<'_, PyAny>>,
        step: Option<&Bound<'_, PyAny>>,
        buckets: Option<&Bound<'_, PyAny>>,
        aligned: Option<&Bound<'_, PyAny>>,
        count_denied: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let Some(period) = period else {
            let is_alone = algorithm.is_none() && burst.or(step).is_none() && buckets.is_none();
            if !is_alone || aligned.or(count_denied).is_some() {
                return Err(PyTypeError::new_err(
                    "a quota of numbers needs a period, and a text has all settings in it",
                ));
            }
            let text = limit.cast::<PyString>().map_err(|_| {
                PyTypeError::new_err("a quota of numbers needs a period; without one a text is read")
            })?;
            let text = Utf8::of(text, "quota")?;
            return Ok(Self(guarded(py, || text.parse())?));
        };
        let limit = key::whole("limit", limit)?;
        let period = duration::read("period", period)?;
        let algorithm = algorithm.map(|name| Utf8::read(name, "algorithm")).transpose()?;
        let algorithm = algorithm.map(|name| guarded(py, || name.parse::<Algorithm>())).transpose()?;
        let mut builder = Quota::builder(limit, period);
        if let Some(algorithm) = algorithm {
            builder = builder.algorithm(algorithm);
        }
        if let Some(burst) = burst {
            builder = builder.burst(key::whole("burst", burst)?);
        }
        if let Some(step) = step {
            builder = builder.step(key::whole("step", step)?);
        }
        if let Some(buckets) = buckets {
            builder = builder.buckets(key::whole("buckets", buckets)?);
        }
        if let Some(aligned) = aligned {
            builder = builder.aligned(yes_or_no("aligned", aligned)?);
        }
        if let Some(count_denied) = count_denied {
            builder = builder.count_denied(yes_or_no("count_denied", count_denied)?);
        }
        Ok(Self(guarded(py, || builder.build())?))
    }

    /// Units per period.
    #[getter]
    fn limit(&self) -> u64 {
        self.0.limit()
    }

    /// The period in seconds.
    #[getter]
    fn period(&self) -> f64 {
        self.0.period().as_secs_f64()
    }

    /// The name of the algorithm.
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.0.algorithm().name()
    }

    /// The most units that can be spent at once.
    #[getter]
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    /// How many tokens a stepped token bucket gets at a time; ``None`` for every other quota.
    #[getter]
    fn step(&self) -> Option<u64> {
        self.0.step()
    }

    /// How many sub-windows a sliding window has; ``None`` for every other algorithm.
    #[getter]
    fn buckets(&self) -> Option<u32> {
        self.0.buckets()
    }

    /// Whether a fixed window starts at multiples of the period since the Unix epoch.
    #[getter]
    fn aligned(&self) -> bool {
        self.0.aligned()
    }

    /// Whether denied requests are charged too.
    #[getter]
    fn count_denied(&self) -> bool {
        self.0.count_denied()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Quota('{}')", self.0)
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.0.to_string(),)
    }
}

fn yes_or_no(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let kind = value.get_type().name()?;
    value.extract().map_err(|_| PyTypeError::new_err(format!("{name} is of type {kind}: allowed is bool")))
}

/// The text of quotas: a text, a quota, or several of either.
pub(crate) fn text_of(quotas: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Some(text) = text_of_one(quotas)? {
        return Ok(text);
    }
    let refused = |value: &Bound<'_, PyAny>, allowed: &str| {
        let kind = value.get_type().name()?;
        Err(PyTypeError::new_err(format!("quotas are of type {kind}: allowed are {allowed}")))
    };
    if !quotas.is_instance_of::<PyList>() && !quotas.is_instance_of::<PyTuple>() {
        return refused(quotas, "str, Quota, and a list or tuple of them");
    }
    let mut text = String::new();
    for quota in quotas.try_iter()? {
        let quota = quota?;
        // Not a list within a list: one that is within itself has no end.
        let Some(one) = text_of_one(&quota)? else { return refused(&quota, "str and Quota within a list") };
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&one);
    }
    Ok(text)
}

fn text_of_one(quota: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Ok(text) = quota.cast::<PyString>() {
        return Ok(Some(Utf8::of(text, "quota")?.to_string()));
    }
    Ok(quota.cast::<PyQuota>().ok().map(|quota| quota.get().0.to_string()))
}
