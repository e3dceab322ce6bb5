//! What a limiter's configuration consists of and reports: the attributes of requests, the policies of a request, the status of the
//! configuration and the counts of a candidate.

use std::fmt::Write as _;
use std::sync::Arc;

use polylimit::admin::{CandidateCounts, ConfigurationStatus};
use polylimit::document::{PolicyMatch, RequestAttributes, RouterPaths};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDateTime, PyDict, PyMapping, PyString, PyTuple};

use crate::convert::{Key, Utf8Text, read_integer, read_items, seconds, wrong_type};
use crate::policy::PyQuota;
use crate::value::immutable;

/// What is known of a request: what the rules, lists and plans of a configuration are about.
///
/// Texts count as their UTF-8 bytes, and whole numbers as their decimal text. What is not given is absent, and so is an empty value.
///
/// Parameters
/// ----------
/// method
///     The method, such as ``"GET"``. Methods are compared as they are written.
/// path
///     The path as the client sent it, with its escapes; scheme and authority before it and a query after it are ignored.
/// peer
///     The other end of the socket: an address, with or without a port.
/// headers
///     The lines of the header, as pairs of a name in any case and a value, in their order.
/// attributes
///     What the application knows, such as ``{"user": "alice"}``. A name is a letter and then letters, digits and ``_``, in lower
///     case.
/// router_paths
///     How the router behind the limit reads paths, as a sum: 1 where it ignores case, 2 where it drops the parameters of segments such
///     as ``;x=1``, and 4 where it accepts a format at the end, such as ``.json``. The table ``paths`` of a document overrides it.
#[pyclass(name = "RequestAttributes", module = "polylimit", frozen, weakref)]
pub(crate) struct PyRequestAttributes(Arc<OwnedAttributes>);

impl PyRequestAttributes {
    pub(crate) fn shared(&self) -> Arc<OwnedAttributes> {
        Arc::clone(&self.0)
    }
}

/// The attributes of a request with texts of their own, which can outlive the Python call that made them.
pub(crate) struct OwnedAttributes {
    method: Option<Key>,
    path: Option<Key>,
    peer: Option<Utf8Text>,
    headers: Vec<(Key, Key)>,
    attributes: Vec<(Utf8Text, Key)>,
    router_paths: u32,
}

impl OwnedAttributes {
    pub(crate) fn as_core(&self) -> RequestAttributes<'_> {
        let mut request = RequestAttributes::new().router_paths(RouterPaths::from_bits(self.router_paths));
        if let Some(method) = &self.method {
            request = request.method(method.as_bytes());
        }
        if let Some(path) = &self.path {
            request = request.path(path.as_bytes());
        }
        if let Some(peer) = &self.peer {
            request = request.peer(&**peer);
        }
        for (name, value) in &self.headers {
            request = request.header(name.as_bytes(), value.as_bytes());
        }
        for (name, value) in &self.attributes {
            request = request.attribute(name, value.as_bytes());
        }
        request
    }
}

#[pymethods]
impl PyRequestAttributes {
    #[new]
    #[pyo3(
        signature = (*, method = None, path = None, peer = None, headers = None, attributes = None, router_paths = None),
        text_signature = "(*, method=None, path=None, peer=None, headers=(), attributes=None, router_paths=0)"
    )]
    fn new(
        method: Option<&Bound<'_, PyAny>>,
        path: Option<&Bound<'_, PyAny>>,
        peer: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        attributes: Option<&Bound<'_, PyAny>>,
        router_paths: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let bytes =
            |name, value: Option<&Bound<'_, PyAny>>| value.map(|value| Key::read(name, value)).transpose();
        let mut owned = OwnedAttributes {
            method: bytes("method", method)?,
            path: bytes("path", path)?,
            peer: peer.map(|peer| Utf8Text::read(peer, "peer")).transpose()?,
            headers: Vec::new(),
            attributes: Vec::new(),
            router_paths: router_paths.map_or(Ok(0), |sum| read_integer("router_paths", sum))?,
        };
        if let Some(headers) = headers {
            owned.headers = read_headers(headers)?;
        }
        if let Some(attributes) = attributes {
            owned.attributes = read_attributes(attributes)?;
        }
        Ok(Self(Arc::new(owned)))
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((), Bound<'py, PyDict>)> {
        let OwnedAttributes { method, path, peer, headers, attributes, router_paths } = &*self.0;
        let named = PyDict::new(py);
        named.set_item("method", method.as_ref().map(Key::as_bytes))?;
        named.set_item("path", path.as_ref().map(Key::as_bytes))?;
        named.set_item("peer", peer.as_deref())?;
        let lines: Vec<_> = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        named.set_item("headers", lines)?;
        let known = PyDict::new(py);
        for (name, value) in attributes {
            known.set_item(&**name, value.as_bytes())?;
        }
        named.set_item("attributes", known)?;
        named.set_item("router_paths", router_paths)?;
        Ok(((), named))
    }

    /// Shows which attributes there are, and no value: they identify clients.
    fn __repr__(&self) -> String {
        let OwnedAttributes { method, path, peer, headers, attributes, .. } = &*self.0;
        let mut text = "RequestAttributes(".to_owned();
        let given = [("method", method.is_some()), ("path", path.is_some()), ("peer", peer.is_some())];
        for (name, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            let _ = write!(text, "{name}=..., ");
        }
        let names: Vec<_> = attributes.iter().map(|(name, _)| &**name).collect();
        let _ = write!(text, "headers={}, attributes={names:?})", headers.len());
        text
    }
}

immutable!(PyRequestAttributes);

/// Reads pairs of names and values, or a mapping.
fn read_headers(headers: &Bound<'_, PyAny>) -> PyResult<Vec<(Key, Key)>> {
    let allowed = "a list of pairs of a name and a value";
    let pairs = match headers.cast::<PyMapping>() {
        Ok(mapping) => mapping.items()?.into_any(),
        Err(_) => headers.clone(),
    };
    read_items("headers", &pairs, allowed, |pair| {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract().map_err(|_| {
            wrong_type("an item of headers", &pair, "allowed is a pair of a name and a value")
        })?;
        Ok((Key::read("a name in headers", &name)?, Key::read("a value in headers", &value)?))
    })
}

fn read_attributes(attributes: &Bound<'_, PyAny>) -> PyResult<Vec<(Utf8Text, Key)>> {
    let Ok(mapping) = attributes.cast::<PyMapping>() else {
        return Err(wrong_type("attributes", attributes, "allowed is a dict"));
    };
    let pairs = mapping.items()?.into_iter().filter_map(|pair| {
        let pair = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>();
        let read = pair.and_then(|(name, value)| {
            let name = Utf8Text::read(&name, "a name in attributes")?;
            Ok(if value.is_none() { None } else { Some((name, Key::read("a value in attributes", &value)?)) })
        });
        read.transpose()
    });
    pairs.collect()
}

/// Reads a document or the value of an entry: its text, or a dict, which becomes JSON.
pub(crate) fn read_json(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Box<str>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok((&*Utf8Text::new(text, name)?).into());
    }
    if value.cast::<PyMapping>().is_err() {
        return Err(wrong_type(name, value, "allowed are str and dict"));
    }
    let py = value.py();
    let options = PyDict::new(py);
    let in_value = name.to_owned();
    let write = move |arguments: &Bound<'_, PyTuple>,
                      _named: Option<&Bound<'_, PyDict>>|
          -> PyResult<String> { write_in_json(&in_value, &arguments.get_item(0)?) };
    options.set_item("default", PyCFunction::new_closure(py, None, None, write)?)?;
    let dict = PyDict::new(py);
    dict.update(value.cast::<PyMapping>()?)?;
    let text = py.import("json")?.call_method("dumps", (dict,), Some(&options))?;
    Ok((&*Utf8Text::read(&text, name)?).into())
}

/// The text of an object that JSON does not have: quotas, and a time, such as that of `until`, as RFC 3339 writes it.
fn write_in_json(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(quota) = value.cast::<PyQuota>() {
        return Ok(quota.get().0.to_string());
    }
    if value.cast::<PyDateTime>().is_ok() {
        return value.call_method0("isoformat")?.extract();
    }
    let allowed = "allowed are what JSON has, a datetime and a Quota";
    Err(wrong_type(&format!("a value in {name}"), value, allowed))
}

/// Which configuration is active, and where it comes from.
#[pyclass(name = "ConfigurationStatus", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyConfigurationStatus(pub(crate) ConfigurationStatus);

#[pymethods]
impl PyConfigurationStatus {
    /// The source: ``"document"`` for one that the program gives, otherwise as the option ``configuration`` names it.
    #[getter]
    fn source(&self) -> &str {
        &self.0.source
    }

    /// Raised with each change; 0 before the first.
    #[getter]
    fn version(&self) -> u64 {
        self.0.version
    }

    /// Which document of Redis is active, counted from 1: what ``expected_version`` of ``publish`` expects to replace. 0 where the
    /// document does not come from Redis.
    #[getter]
    fn document_version(&self) -> u64 {
        self.0.document_version
    }

    /// SHA-256 of the active document in canonical form, as hexadecimal digits; empty before the first.
    #[getter]
    fn digest(&self) -> &str {
        &self.0.digest
    }

    /// When this version was applied, in seconds since the Unix epoch by the clock of this host; 0 before the first.
    #[getter]
    fn applied_at(&self) -> f64 {
        seconds(self.0.applied_at_us)
    }

    /// ``applied_at`` in whole microseconds, exact.
    #[getter]
    fn applied_at_us(&self) -> u64 {
        self.0.applied_at_us
    }

    /// Seconds for which the source has been unreachable; 0 while it is reachable.
    #[getter]
    fn age(&self) -> f64 {
        seconds(self.0.unreachable_for_us)
    }

    /// ``age`` in whole microseconds, exact.
    #[getter]
    fn age_us(&self) -> u64 {
        self.0.unreachable_for_us
    }

    /// Why a newer configuration was not applied, or may not be known; ``None`` when all is well.
    #[getter]
    fn error(&self) -> Option<&str> {
        self.0.error.as_deref()
    }

    fn __repr__(&self) -> String {
        let ConfigurationStatus { source, version, digest, .. } = &self.0;
        let mut text = format!("ConfigurationStatus(source={source:?}, version={version}, digest='{digest}'");
        if self.0.unreachable_for_us > 0 {
            let _ = write!(text, ", age={:?}", seconds(self.0.unreachable_for_us));
        }
        if let Some(error) = &self.0.error {
            let _ = write!(text, ", error={error:?}");
        }
        text + ")"
    }
}

/// A policy that the rules of a configuration apply to a request.
#[pyclass(name = "PolicyMatch", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyPolicyMatch(pub(crate) PolicyMatch);

#[pymethods]
impl PyPolicyMatch {
    /// The policy's name.
    #[getter]
    fn policy(&self) -> &str {
        &self.0.policy
    }

    /// The key under the policy.
    #[getter]
    fn key(&self) -> &[u8] {
        &self.0.key
    }

    /// The units that the request spends.
    #[getter]
    fn cost(&self) -> u64 {
        self.0.cost
    }

    /// The part of each quota that the request leaves for others, in percent.
    #[getter]
    fn headroom(&self) -> u8 {
        self.0.headroom
    }

    /// Omits the key, which may be a secret or a person's name.
    fn __repr__(&self) -> String {
        let PolicyMatch { policy, cost, headroom, .. } = &self.0;
        format!("PolicyMatch(policy='{policy}', key=..., cost={cost}, headroom={headroom})")
    }
}

/// What the candidate of a policy would have decided compared with the effective quotas, in checks since either's quotas changed.
#[pyclass(name = "CandidateCounts", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyCandidateCounts(pub(crate) CandidateCounts);

#[pymethods]
impl PyCandidateCounts {
    /// Checks that both admit.
    #[getter]
    fn both_allow(&self) -> u64 {
        self.0.both_allow
    }

    /// Checks that the effective quotas deny and the candidate would admit.
    #[getter]
    fn only_live_denies(&self) -> u64 {
        self.0.only_live_denies
    }

    /// Checks that the effective quotas admit and the candidate would deny.
    #[getter]
    fn only_candidate_denies(&self) -> u64 {
        self.0.only_candidate_denies
    }

    /// Checks that both deny.
    #[getter]
    fn both_deny(&self) -> u64 {
        self.0.both_deny
    }

    fn __repr__(&self) -> String {
        let CandidateCounts { both_allow, only_live_denies, only_candidate_denies, both_deny } = self.0;
        format!(
            "CandidateCounts(both_allow={both_allow}, only_live_denies={only_live_denies}, \
             only_candidate_denies={only_candidate_denies}, both_deny={both_deny})"
        )
    }
}

immutable!(PyConfigurationStatus, PyPolicyMatch, PyCandidateCounts);
