//! The arguments of a limiter: its options, its clock, and its construction from both.

use std::ops::Deref;

use polylimit::clock::{Clock, ManualClock};
use polylimit::raw::{OptionKind, OptionPlace, StoreOption, Suggestion};
use polylimit::{Limiter, LimiterBuilder};
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyDict, PyFloat, PyMapping, PyString};

use crate::configuration::read_json;
use crate::convert::{Utf8Text, is_real, read_duration, seconds, whole_text, wrong_type};
use crate::error::{call_core, invalid_argument};
use crate::events;
use crate::policy::{PyPolicy, read_policies};
use crate::request::PolicyArgument;
use crate::value::immutable;

/// Every option of a limiter that is given by name.
#[pyfunction]
pub(crate) fn options() -> Vec<PyOption> {
    LimiterBuilder::options().into_iter().map(PyOption).collect()
}

/// An option of a limiter.
#[pyclass(name = "Option", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyOption(StoreOption);

#[pymethods]
impl PyOption {
    /// Its name.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name
    }

    /// What it is for.
    #[getter]
    fn about(&self) -> &'static str {
        self.0.about
    }

    /// Which values are allowed.
    #[getter]
    fn allowed(&self) -> &'static str {
        self.0.allowed
    }

    /// The default value, as text; ``None`` when there is none.
    #[getter]
    fn default(&self) -> Option<&'static str> {
        self.0.default
    }

    /// Whether its value is a secret that is never shown.
    #[getter]
    fn secret(&self) -> bool {
        self.0.secret
    }

    /// The kind of its values: ``"duration"``, ``"number"`` or ``"text"``.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.kind {
            OptionKind::Duration => "duration",
            OptionKind::Number => "number",
            _ => "text",
        }
    }

    fn __repr__(&self) -> String {
        format!("Option(name='{}')", self.0.name)
    }
}

/// What the error for an unknown option of a limit recommends, where these are known: ``use key`` for ``key_func``, or a name that is near.
#[pyfunction]
pub(crate) fn advice(name: &str, known: Vec<String>) -> String {
    let known: Vec<_> = known.iter().map(String::as_str).collect();
    Suggestion::advice(name, OptionPlace::Guard, &known)
}

/// A clock for tests: it moves only when it is set or advanced, and it may go back.
///
/// Parameters
/// ----------
/// now
///     The time: seconds since the Unix epoch, or a ``timedelta`` since then, up to the year 2255.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When the time is after the year 2255.
#[pyclass(name = "ManualClock", module = "polylimit", frozen, weakref)]
pub(crate) struct PyManualClock(ManualClock);

#[pymethods]
impl PyManualClock {
    #[new]
    fn new(py: Python<'_>, now: &Bound<'_, PyAny>) -> PyResult<Self> {
        let now_us = read_us("now", now)?;
        Ok(Self(call_core(py, || ManualClock::new(now_us))?))
    }

    /// The time in seconds since the Unix epoch.
    #[getter]
    fn now(&self) -> f64 {
        seconds(self.0.now_us())
    }

    /// The time in whole microseconds since the Unix epoch, exact.
    #[getter]
    fn now_us(&self) -> u64 {
        self.0.now_us()
    }

    /// Sets the time, in seconds since the Unix epoch or as a ``timedelta`` since then; it may go back.
    fn set(&self, py: Python<'_>, now: &Bound<'_, PyAny>) -> PyResult<()> {
        let now_us = read_us("now", now)?;
        call_core(py, || self.0.set(now_us))
    }

    /// Moves the time forward, by seconds or a ``timedelta``.
    fn advance(&self, py: Python<'_>, by: &Bound<'_, PyAny>) -> PyResult<()> {
        let by = read_duration("by", by)?;
        call_core(py, || self.0.advance(by))
    }

    fn __repr__(&self) -> String {
        format!("ManualClock({:?})", self.now())
    }
}

fn read_us(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(u64::try_from(read_duration(name, value)?.as_micros()).unwrap_or(u64::MAX))
}

/// Reads the argument `clock`.
fn read_clock(clock: &Bound<'_, PyAny>) -> PyResult<Clock> {
    if let Ok(clock) = clock.cast::<PyManualClock>() {
        return Ok(clock.get().0.clone().into());
    }
    let allowed = "allowed are \"system\", \"coarse\" and a ManualClock";
    let name = clock.cast::<PyString>().map_err(|_| wrong_type("clock", clock, allowed))?;
    match &*name.to_cow()? {
        "system" => Ok(Clock::system()),
        "coarse" => Ok(Clock::coarse()),
        _ => Err(invalid_argument(
            clock.py(),
            "clock is not known: allowed are system, coarse and a ManualClock",
        )),
    }
}

/// The URL of a store; the default is the memory store. An explicit `None` is refused, because it usually comes from a missing
/// environment variable.
#[derive(Default)]
pub(crate) struct Url(Option<Utf8Text>);

impl<'py> FromPyObject<'_, 'py> for Url {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = value.cast::<PyString>().map_err(|_| {
            wrong_type(
                "url",
                &value,
                "allowed is str, such as \"memory:\", \"local:name\" or \"redis://host:port\"",
            )
        })?;
        Utf8Text::new(&text, "url").map(|url| Self(Some(url)))
    }
}

impl Deref for Url {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_deref().unwrap_or("memory:")
    }
}

/// The arguments of `Limiter(...)` and `AsyncLimiter(...)` besides the URL.
pub(crate) struct LimiterArguments<'a, 'py> {
    pub(crate) policies: Option<&'a Bound<'py, PyAny>>,
    pub(crate) document: Option<&'a Bound<'py, PyAny>>,
    pub(crate) clock: Option<&'a Bound<'py, PyAny>>,
    pub(crate) on_degraded: Option<&'a Bound<'py, PyAny>>,
    pub(crate) credentials: Option<&'a Bound<'py, PyAny>>,
    pub(crate) options: Option<&'a Bound<'py, PyDict>>,
}

/// Builds a limiter.
pub(crate) fn build_limiter(py: Python<'_>, url: &str, given: LimiterArguments<'_, '_>) -> PyResult<Limiter> {
    let LimiterArguments { policies, document, clock, on_degraded, credentials, options } = given;
    let mut builder = events::queue_events(Limiter::builder().store(url), on_degraded)?;
    if let Some(give) = credentials {
        builder = crate::credentials::take_from(builder, give)?;
    }
    if let Some(document) = document {
        builder = builder.document(&read_json("document", document)?);
    }
    if let Some(policies) = policies {
        for policy in read_policies(policies)? {
            builder = builder.policy(policy);
        }
    }
    if let Some(clock) = clock {
        builder = builder.clock(read_clock(clock)?);
    }
    for (name, value) in options.into_iter().flatten() {
        let name = name.cast_into::<PyString>()?;
        let name = Utf8Text::new(&name, "option")?;
        if value.is_none() {
            continue;
        }
        builder = match value.cast::<PyMapping>() {
            Ok(values) if matches!(&*name, "outage" | "lease") => add_policy_options(builder, &name, values)?,
            // The core refuses an unknown name, whatever the type of its value.
            _ if !is_known(&name) => builder.option(&name, ""),
            _ => builder.option(&name, &option_text(&name, &value)?),
        };
    }
    // A document may be large; other threads run while it is read.
    call_core(py, || py.detach(|| builder.build()))
}

/// Whether the core knows an option of this name, or one for a single policy such as `outage.login`.
fn is_known(name: &str) -> bool {
    let known = LimiterBuilder::options();
    name.starts_with("outage.")
        || name.starts_with("lease.")
        || known.iter().any(|option| option.name == name)
}

/// Adds the values of an option for single policies.
fn add_policy_options(
    mut builder: LimiterBuilder,
    name: &str,
    values: &Bound<'_, PyMapping>,
) -> PyResult<LimiterBuilder> {
    let dict = PyDict::new(values.py());
    dict.update(values)?;
    for (policy, value) in &dict {
        let policy: PolicyArgument = match policy.cast::<PyPolicy>() {
            Ok(policy) => policy.extract()?,
            Err(_) => PolicyArgument::Text(Utf8Text::read(&policy, &format!("a name in {name}"))?),
        };
        let name = format!("{name}.{}", policy.as_str());
        builder = builder.option(&name, &Utf8Text::read(&value, &name)?);
    }
    Ok(builder)
}

/// The text form of an option's value, which the core parses.
fn option_text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Utf8Text::new(text, name)?.to_string());
    }
    if !is_real(value) && !value.is_instance_of::<PyDelta>() {
        return Err(wrong_type(
            &format!("option {name}"),
            value,
            "allowed are str, numbers, and timedelta for durations",
        ));
    }
    let is_duration = LimiterBuilder::options()
        .iter()
        .any(|option| option.name == name && option.kind == OptionKind::Duration);
    if is_duration || value.is_instance_of::<PyDelta>() {
        return Ok(format!("{}us", read_duration(name, value)?.as_micros()));
    }
    if value.is_instance_of::<PyFloat>() {
        // The core reads at most six decimals.
        let text = format!("{:.6}", value.extract::<f64>()?);
        return Ok(text.trim_end_matches('0').trim_end_matches('.').to_owned());
    }
    Ok(whole_text(name, value)?.unwrap_or_default())
}

immutable!(PyOption);
