//! `Quota` and `Policy`, and the forms in which callers write them.

use std::hash::{DefaultHasher, Hash, Hasher};

use polylimit::quota::Algorithm;
use polylimit::{Policy, Quota};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple};

use crate::convert::{Utf8Text, read_bool, read_duration, read_integer, wrong_type};
use crate::error::{call_core, call_core_with, invalid_argument};
use crate::value::immutable;

/// At most ``limit`` units per ``period``, counted by an algorithm.
///
/// ``Quota("100/minute")`` reads the text form; ``Quota(100, 60)`` and ``Quota(100, timedelta(minutes=1))`` take numbers.
/// ``Quota.concurrent(20)`` limits reservations at a time. ``str(quota)`` is the text form.
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
///     The capacity of the two buckets in units, from 1 to 10**12; the default is ``limit``.
/// step
///     Token bucket only: how many tokens arrive at a time.
/// buckets
///     Sliding window only: into how many sub-windows the period is divided, from 1 to 60.
/// aligned
///     Fixed window only: windows start at multiples of the period since the Unix epoch.
/// count_denied
///     Denied requests are charged as well.
/// excess
///     Units beyond the limit or burst that are admitted as well and reported as ``over`` in decisions, from 0 to ``limit``.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When a number is out of bounds, or a setting does not belong to the algorithm.
#[pyclass(name = "Quota", module = "polylimit", frozen, eq, hash, weakref)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyQuota(pub(crate) Quota);

#[pymethods]
impl PyQuota {
    #[new]
    #[pyo3(signature = (limit, period = None, *, algorithm = None, burst = None, step = None, buckets = None, aligned = None, count_denied = None, excess = None))]
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
        excess: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let Some(period) = period else {
            let is_only_text = algorithm.is_none() && burst.or(step).is_none() && buckets.is_none();
            if !is_only_text || aligned.or(count_denied).or(excess).is_some() {
                return Err(PyTypeError::new_err(
                    "a quota of numbers needs a period, and a text has all settings in it",
                ));
            }
            let text = limit.cast::<PyString>().map_err(|_| {
                wrong_type("limit", limit, "without a period, allowed is a text such as \"100/minute\"")
            })?;
            let text = Utf8Text::new(text, "quota")?;
            return Ok(Self(call_core(py, || text.parse())?));
        };
        let limit = read_integer("limit", limit)?;
        let written = [("period", Some(period))];
        let period = read_duration("period", period)?;
        let algorithm = algorithm.map(|name| Utf8Text::read(name, "algorithm")).transpose()?;
        let algorithm = algorithm.map(|name| call_core(py, || name.parse::<Algorithm>())).transpose()?;
        let mut builder = Quota::builder(limit, period);
        if let Some(algorithm) = algorithm {
            builder = builder.algorithm(algorithm);
        }
        if let Some(burst) = burst {
            builder = builder.burst(read_integer("burst", burst)?);
        }
        if let Some(step) = step {
            builder = builder.step(read_integer("step", step)?);
        }
        if let Some(buckets) = buckets {
            builder = builder.buckets(read_integer("buckets", buckets)?);
        }
        if let Some(aligned) = aligned {
            builder = builder.aligned(read_bool("aligned", aligned)?);
        }
        if let Some(count_denied) = count_denied {
            builder = builder.count_denied(read_bool("count_denied", count_denied)?);
        }
        if let Some(excess) = excess {
            builder = builder.excess(read_integer("excess", excess)?);
        }
        Ok(Self(call_core_with(py, &written, || builder.build())?))
    }

    /// At most ``limit`` reservations of a key at a time, whatever their cost; the text form is ``"20 concurrent"``. Requests
    /// under a policy with such a quota can only be reserved.
    ///
    /// Parameters
    /// ----------
    /// limit
    ///     Reservations, from 0 to 10**12; a key never has more than 1000.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     When the number is out of bounds.
    #[staticmethod]
    fn concurrent(py: Python<'_>, limit: &Bound<'_, PyAny>) -> PyResult<Self> {
        let limit = read_integer("limit", limit)?;
        Ok(Self(call_core(py, || Quota::concurrent(limit))?))
    }

    /// Units per period; reservations at a time for ``"concurrency"``.
    #[getter]
    fn limit(&self) -> u64 {
        self.0.limit()
    }

    /// The period in seconds; 0 for ``"concurrency"``, which has none. By the calendar, no window is shorter.
    #[getter]
    fn period(&self) -> f64 {
        self.0.period().as_secs_f64()
    }

    /// The windows by the calendar of a fixed window, such as ``"month from=15 zone=Europe/Berlin"``; ``None`` for a period.
    #[getter]
    fn calendar(&self) -> Option<String> {
        self.0.calendar().map(ToString::to_string)
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

    /// How many tokens arrive in a stepped token bucket at a time; ``None`` for every other quota.
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

    /// Whether denied requests are charged as well.
    #[getter]
    fn count_denied(&self) -> bool {
        self.0.count_denied()
    }

    /// Units beyond the limit or burst that are admitted as well.
    #[getter]
    fn excess(&self) -> u64 {
        self.0.excess()
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

immutable!(PyQuota);

/// The text form of quotas, which are given as a `str`, a `Quota`, or a list or tuple of them.
fn quotas_text(quotas: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Some(text) = quota_text(quotas)? {
        return Ok(text);
    }
    if !quotas.is_instance_of::<PyList>() && !quotas.is_instance_of::<PyTuple>() {
        return Err(wrong_type(
            "quotas",
            quotas,
            "allowed are str, Quota, Policy, and a list or tuple of str and Quota",
        ));
    }
    let mut text = String::new();
    for quota in quotas.try_iter()? {
        let quota = quota?;
        // Nested lists are refused: a list that contains itself would recurse without end.
        let Some(one) = quota_text(&quota)? else {
            return Err(wrong_type("an item of quotas", &quota, "allowed are str and Quota"));
        };
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&one);
    }
    Ok(text)
}

fn quota_text(quota: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Ok(text) = quota.cast::<PyString>() {
        return Ok(Some(Utf8Text::new(text, "quota")?.to_string()));
    }
    Ok(quota.cast::<PyQuota>().ok().map(|quota| quota.get().0.to_string()))
}

/// A named list of one or more quotas: a request is admitted by all of them, or spends nothing under any.
///
/// Parameters
/// ----------
/// name
///     1 to 64 letters, digits and ``!#$%&'*+-.^_`|~``.
/// quotas
///     Text such as ``"10/s; 1000/h"``, a ``Quota``, or a list of either; 1 to 16 quotas.
///
/// A limiter takes it in place of its name and quotas: ``Limiter("memory:", [policy])``; and an operation in place of its name:
/// ``limiter.check("user:42", policy)``.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When the name or a quota is not valid, or two quotas cannot be distinguished.
#[pyclass(name = "Policy", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyPolicy(pub(crate) Policy);

#[pymethods]
impl PyPolicy {
    #[new]
    fn new(py: Python<'_>, name: &Bound<'_, PyAny>, quotas: &Bound<'_, PyAny>) -> PyResult<Self> {
        read_policy(py, &Utf8Text::read(name, "name")?, quotas).map(Self)
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The quotas, in the order in which they were given.
    #[getter]
    fn quotas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let quotas = self.0.quotas().iter().map(|quota| Py::new(py, PyQuota(quota.clone())));
        PyTuple::new(py, quotas.collect::<PyResult<Vec<_>>>()?)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Policy({})", self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.name().hash(&mut hasher);
        hasher.finish()
    }

    fn __getnewargs__(&self) -> (&str, Vec<String>) {
        (self.0.name(), self.0.quotas().iter().map(ToString::to_string).collect())
    }
}

immutable!(PyPolicy);

/// Makes a policy of quotas in any of their forms, or of a policy of that name.
pub(crate) fn read_policy(py: Python<'_>, name: &str, quotas: &Bound<'_, PyAny>) -> PyResult<Policy> {
    if let Ok(policy) = quotas.cast::<PyPolicy>() {
        let policy = &policy.get().0;
        if policy.name() != name {
            let message = format!(
                "quotas are the policy {}, under the name {name}: allowed is its own name",
                policy.name()
            );
            return Err(invalid_argument(py, &message));
        }
        return Ok(policy.clone());
    }
    let quotas = quotas_text(quotas)?;
    call_core(py, || Policy::parse(name, &quotas))
}

/// Reads a mapping of names to quotas, or a list of policies.
pub(crate) fn read_policies(policies: &Bound<'_, PyAny>) -> PyResult<Vec<Policy>> {
    let py = policies.py();
    let allowed = "allowed are a dict of names with their quotas, and a list of Policy objects";
    if policies.is_instance_of::<PyList>() || policies.is_instance_of::<PyTuple>() {
        let each = policies.try_iter()?.map(|policy| {
            let policy = policy?;
            let known = policy.cast::<PyPolicy>().map(|policy| policy.get().0.clone());
            known.map_err(|_| wrong_type("an item of policies", &policy, allowed))
        });
        return each.collect();
    }
    let Ok(mapping) = policies.cast::<PyMapping>() else {
        return Err(wrong_type("policies", policies, allowed));
    };
    let dict = PyDict::new(py);
    dict.update(mapping)?;
    dict.iter()
        .map(|(name, quotas)| read_policy(py, &Utf8Text::read(&name, "a name in policies")?, &quotas))
        .collect()
}
