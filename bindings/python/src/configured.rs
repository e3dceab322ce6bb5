//! The operations on the configuration of a limiter, and the decision on a request by it.

use std::time::Duration;

use polylimit::Limiter;
use pyo3::prelude::*;

use crate::admin::{PyAdmin, PyAsyncAdmin};
use crate::call::OwnedCall;
use crate::configuration::{
    PyCandidateCounts, PyConfigurationStatus, PyPolicyMatch, PyRequestAttributes, read_json,
};
use crate::convert::{Utf8Text, read_duration, read_integer, read_object};
use crate::error::call_core;
use crate::limiter_classes::{PyAsyncLimiter, PyLimiter};
use crate::request::PolicyArgument;
use crate::reserve::read_terms;

/// Writes the decision on a request, which is the same in both classes.
macro_rules! decide_method {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            /// Decides about a request by the configuration: its lists, its rules, and the policies that these apply.
            ///
            /// All policies admit the request, or nothing is spent. Policies with a quota such as ``"20 concurrent"`` are reserved: the caller
            /// commits or cancels them by ``id``. All others spend.
            ///
            /// Parameters
            /// ----------
            /// attributes
            ///     What is known of the request.
            /// id
            ///     The id of the reservations: 1 to 64 bytes of text; random by default.
            /// ttl
            ///     How long reservations last, in seconds or as a ``timedelta``: 1 ms to 48 h; the default is 30 s.
            /// remember
            ///     How long after their commits the id is remembered, as in ``reserve``; by default it is not.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When the limiter has no configuration, or the attribute that gives a cost holds none.
            /// ClosedError
            ///     When the limiter was closed.
            #[pyo3(signature = (attributes, *, id = None, ttl = None, remember = None))]
            fn decide(
                this: &Bound<'_, Self>,
                attributes: &Bound<'_, PyAny>,
                id: Option<&Bound<'_, PyAny>>,
                ttl: Option<&Bound<'_, PyAny>>,
                remember: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, decide_call(attributes, id, ttl, remember)?)
            }
        }
    };
}

decide_method!(PyLimiter);
decide_method!(PyAsyncLimiter);

/// Writes the operators' methods, which are the same in both classes.
macro_rules! configuration_methods {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            /// The policies that the configuration's rules apply to a request, with keys and costs; decides nothing.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When the limiter has no configuration, or the attribute that gives a cost holds none.
            fn matching(&self, attributes: &Bound<'_, PyAny>) -> PyResult<Vec<PyPolicyMatch>> {
                matching(self.core(), attributes)
            }

            /// Which configuration is active, and where it comes from; ``None`` for a limiter without one.
            fn configuration(&self) -> Option<PyConfigurationStatus> {
                self.core().admin().configuration().map(PyConfigurationStatus)
            }

            /// Replaces the document that the program has given; entries stay.
            ///
            /// Parameters
            /// ----------
            /// document
            ///     The text, in TOML or JSON, or a dict.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When the document cannot be used: ``line L, column C: ...``; the previous one stays active. Also for a limiter whose
            ///     configuration comes from elsewhere.
            fn set_document(&self, document: &Bound<'_, PyAny>) -> PyResult<PyConfigurationStatus> {
                set_document(self.core(), document)
            }

            /// Sets an entry of the configuration, which takes the place of one with the same text.
            ///
            /// Parameters
            /// ----------
            /// item
            ///     ``"deny ITEM"``, ``"allow ITEM"`` or ``"override POLICY KEY"``, such as ``"deny client 203.0.113.0/24"``.
            /// value
            ///     A dict, or its JSON text, with ``until``, ``by``, ``why`` and, for an override, ``numbers``:
            ///     ``{"numbers": "500/minute", "until": "2027-01-01T00:00:00Z"}``. A ``datetime`` with a time zone may be a time.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When the entry cannot be read or does not fit the document, or the source of the configuration has no entries.
            /// StoreUnavailableError
            ///     When Redis does not answer: the entry may have been set.
            #[pyo3(signature = (item, value = None))]
            fn set_entry(
                this: &Bound<'_, Self>,
                item: &Bound<'_, PyAny>,
                value: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, set_entry_call(item, value)?)
            }

            /// Deletes an entry of the configuration; one that is not there is no error.
            ///
            /// Parameters
            /// ----------
            /// item
            ///     The text of the entry, such as ``"deny client 203.0.113.0/24"``.
            fn delete_entry(this: &Bound<'_, Self>, item: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                Self::make(this, delete_entry_call(item)?)
            }

            /// Publishes a document to the Redis store that the configuration comes from, and waits until it is active here. Every
            /// process that follows the store takes it within a second.
            ///
            /// Parameters
            /// ----------
            /// document
            ///     The text, in TOML or JSON, or a dict.
            /// expected_version
            ///     The version of the document that this one replaces; by default whichever is there. With another version there, nothing
            ///     is published.
            /// by
            ///     The author's name, up to 256 bytes.
            /// why
            ///     The reason, up to 1,024 bytes.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When the document cannot be used, with its line and column; when another version than the expected one is there; when
            ///     the document does not come from Redis.
            /// StoreUnavailableError
            ///     When Redis does not answer: the document may have been published.
            #[pyo3(signature = (document, *, expected_version = None, by = None, why = None))]
            fn publish(
                this: &Bound<'_, Self>,
                document: &Bound<'_, PyAny>,
                expected_version: Option<&Bound<'_, PyAny>>,
                by: Option<&Bound<'_, PyAny>>,
                why: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, publish_call(document, expected_version, by, why)?)
            }

            /// Waits until this version of the configuration or a later one is active.
            ///
            /// Parameters
            /// ----------
            /// version
            ///     The version, as in the status that ``configuration()`` returns.
            /// timeout
            ///     Seconds or a ``timedelta``.
            ///
            /// Raises
            /// ------
            /// StoreUnavailableError
            ///     When the timeout passes before.
            /// InvalidArgumentError
            ///     When the limiter has no configuration.
            fn wait_for_version(
                this: &Bound<'_, Self>,
                version: &Bound<'_, PyAny>,
                timeout: &Bound<'_, PyAny>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, wait_call(version, timeout)?)
            }

            /// What the candidate of a policy would have decided; ``None`` for a policy without a candidate.
            fn candidate_counts(&self, policy: &Bound<'_, PyAny>) -> PyResult<Option<PyCandidateCounts>> {
                candidate_counts(self.core(), policy)
            }
        }
    };
}

configuration_methods!(PyAdmin);
configuration_methods!(PyAsyncAdmin);

fn decide_call(
    attributes: &Bound<'_, PyAny>,
    id: Option<&Bound<'_, PyAny>>,
    ttl: Option<&Bound<'_, PyAny>>,
    remember: Option<&Bound<'_, PyAny>>,
) -> PyResult<OwnedCall> {
    let shared = read_object::<PyRequestAttributes>("attributes", attributes)?.get().shared();
    Ok(OwnedCall::Decide(shared, read_terms(attributes.py(), id, ttl, remember)?))
}

fn matching(limiter: &Limiter, attributes: &Bound<'_, PyAny>) -> PyResult<Vec<PyPolicyMatch>> {
    let owned = read_object::<PyRequestAttributes>("attributes", attributes)?.get().shared();
    let matched = call_core(attributes.py(), || limiter.admin().matching(&owned.as_core()))?;
    Ok(matched.into_iter().map(PyPolicyMatch).collect())
}

fn set_document(limiter: &Limiter, document: &Bound<'_, PyAny>) -> PyResult<PyConfigurationStatus> {
    let (py, text) = (document.py(), read_json("document", document)?);
    // A large document takes some milliseconds; other threads run meanwhile.
    call_core(py, || py.detach(|| limiter.admin().set_document(&text))).map(PyConfigurationStatus)
}

fn set_entry_call(item: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) -> PyResult<OwnedCall> {
    let item = (&*Utf8Text::read(item, "item")?).into();
    let value = value.map_or_else(|| Ok("{}".into()), |value| read_json("value", value))?;
    Ok(OwnedCall::SetEntry(item, value))
}

fn delete_entry_call(item: &Bound<'_, PyAny>) -> PyResult<OwnedCall> {
    Ok(OwnedCall::DeleteEntry((&*Utf8Text::read(item, "item")?).into()))
}

fn publish_call(
    document: &Bound<'_, PyAny>,
    expected_version: Option<&Bound<'_, PyAny>>,
    by: Option<&Bound<'_, PyAny>>,
    why: Option<&Bound<'_, PyAny>>,
) -> PyResult<OwnedCall> {
    let text = |name: &str, value: Option<&Bound<'_, PyAny>>| -> PyResult<Box<str>> {
        value.map_or_else(|| Ok("".into()), |value| Ok((&*Utf8Text::read(value, name)?).into()))
    };
    Ok(OwnedCall::Publish {
        document: read_json("document", document)?,
        expected_version: expected_version
            .map(|version| read_integer("expected_version", version))
            .transpose()?,
        by: text("by", by)?,
        why: text("why", why)?,
    })
}

fn wait_call(version: &Bound<'_, PyAny>, timeout: &Bound<'_, PyAny>) -> PyResult<OwnedCall> {
    let timeout: Duration = read_duration("timeout", timeout)?;
    Ok(OwnedCall::WaitForVersion(read_integer("version", version)?, timeout))
}

fn candidate_counts(limiter: &Limiter, policy: &Bound<'_, PyAny>) -> PyResult<Option<PyCandidateCounts>> {
    let name: PolicyArgument = policy.extract()?;
    let counts = call_core(policy.py(), || Ok(limiter.admin().candidate_counts(name.as_str())))?;
    Ok(counts.map(PyCandidateCounts))
}
