//! How a limiter is made: URL, policies, clock, outage policies and options.

use std::ops::Deref;

use polylimit::{Limiter, LimiterBuilder, OptionKind};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyMapping, PyString};

use crate::error::guarded;
use crate::utf8::Utf8;
use crate::{clock, duration, event, policy};

/// The URL of a store: that of the memory store unless told otherwise. `None` is refused, as it is what is found where an
/// environment names no URL.
#[derive(Default)]
pub(crate) struct Url(Option<Utf8>);

impl<'py> FromPyObject<'_, 'py> for Url {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = value.cast::<PyString>().map_err(|_| {
            let kind = value.get_type().name().map_or_else(|_| "another".to_owned(), |kind| kind.to_string());
            PyTypeError::new_err(format!(
                "url is of type {kind}: allowed is str, such as \"memory:\", \"local:name\" or \"redis://host:port\""
            ))
        })?;
        Utf8::of(&text, "url").map(|url| Self(Some(url)))
    }
}

impl Deref for Url {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_deref().unwrap_or("memory:")
    }
}

/// Makes the limiter of both faces.
pub(crate) fn build(
    py: Python<'_>,
    url: &str,
    policies: Option<&Bound<'_, PyAny>>,
    clock: Option<&Bound<'_, PyAny>>,
    on_degraded: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Limiter> {
    let mut builder = event::kept(Limiter::builder().store(url), on_degraded)?;
    if let Some(policies) = policies {
        for policy in policy::read_all(policies)? {
            builder = builder.policy(policy);
        }
    }
    if let Some(clock) = clock {
        builder = builder.clock(clock::read(clock)?);
    }
    for (name, value) in options.into_iter().flatten() {
        let name = name.cast_into::<PyString>()?;
        let name = Utf8::of(&name, "option")?;
        if value.is_none() {
            continue;
        }
        builder = match value.cast::<PyMapping>() {
            Ok(each) if matches!(&*name, "outage" | "lease") => of_policies(builder, &name, each)?,
            // The core refuses the name; its value may be of any type.
            _ if !is_known(&name) => builder.option(&name, ""),
            _ => builder.option(&name, &text(&name, &value)?),
        };
    }
    guarded(py, || builder.build())
}

/// Whether there is an option of that name, or for a policy of that name.
fn is_known(name: &str) -> bool {
    let known = LimiterBuilder::options();
    name.starts_with("outage.")
        || name.starts_with("lease.")
        || known.iter().any(|option| option.name == name)
}

/// An option of single policies.
fn of_policies(
    mut builder: LimiterBuilder,
    name: &str,
    each: &Bound<'_, PyMapping>,
) -> PyResult<LimiterBuilder> {
    let dict = PyDict::new(each.py());
    dict.update(each)?;
    for (policy, value) in &dict {
        let (policy, value): (String, String) = (policy.extract()?, value.extract()?);
        builder = builder.option(&format!("{name}.{policy}"), &value);
    }
    Ok(builder)
}

/// The value of an option as the core reads it.
fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Utf8::of(text, name)?.to_string());
    }
    let is_number = (value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>())
        && !value.is_instance_of::<PyBool>();
    if !is_number && !value.is_instance_of::<PyDelta>() {
        let kind = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "option {name} is of type {kind}: allowed are str, numbers, and timedelta for durations"
        )));
    }
    let is_duration = LimiterBuilder::options()
        .iter()
        .any(|option| option.name == name && option.kind == OptionKind::Duration);
    if is_duration || value.is_instance_of::<PyDelta>() {
        return Ok(format!("{}us", duration::read(name, value)?.as_micros()));
    }
    if value.is_instance_of::<PyFloat>() {
        // Six decimals, as the core has them; one third has no shorter form.
        return Ok(format!("{:.6}", value.extract::<f64>()?));
    }
    Ok(value.str()?.to_string())
}

/// A limiter with its policies; neither its URL nor its options, which may hold secrets.
pub(crate) fn shown(face: &str, limiter: &Limiter) -> String {
    let policies: Vec<_> = limiter.policies().iter().map(ToString::to_string).collect();
    format!("{face}({})", policies.join(", "))
}
