//! For clients of limited services: the wait that a response asks for, when to retry, and the steps of a throttled request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use polylimit::http::client::{Attempts, Step, Throttle};
use polylimit::http::{Backoff, server_wait as core_server_wait};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyDict;

use crate::convert::{Key, read_duration, read_integer, read_items, read_object, seconds, wrong_type};
use crate::decision::PyDecision;
use crate::error::{call_core, call_core_with};
use crate::once::intern;
use crate::value::immutable;

/// The name or the value of a header field.
pub(crate) enum FieldValue {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
}

impl FieldValue {
    /// Reads the argument `name`.
    fn read(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.extract::<PyBackedStr>() {
            return Ok(Self::Text(text));
        }
        let bytes = value.extract::<PyBackedBytes>();
        bytes.map(Self::Bytes).map_err(|_| wrong_type(name, value, "allowed are str and bytes"))
    }

    /// Reads the fields of a response: a mapping, or pairs.
    fn read_all(fields: &Bound<'_, PyAny>) -> PyResult<Vec<(Self, Self)>> {
        const ALLOWED: &str = "a mapping of header names to values, or pairs of them";
        let py = fields.py();
        let items = fields.getattr_opt(intern!(py, "items"))?.map(|items| items.call0()).transpose()?;
        read_items("headers", items.as_ref().unwrap_or(fields), ALLOWED, |item| {
            let (name, value) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().map_err(|_| {
                wrong_type("an item of headers", &item, "allowed is a pair of a name and a value")
            })?;
            Ok((Self::read("the name of a header", &name)?, Self::read("the value of a header", &value)?))
        })
    }
}

impl AsRef<[u8]> for FieldValue {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// How many seconds a response asks its client to wait, counted from now; ``None`` if it does not say.
///
/// The fields that are read, in their order: ``Retry-After-Ms``, ``Retry-After``, whose date is compared with that of ``Date``, and
/// the policies of ``RateLimit`` that have nothing left, of which the longest time counts. A malformed field is ignored; a wait
/// above 285 years is cut to that.
///
/// Parameters
/// ----------
/// headers
///     The header fields of the response: a mapping, such as ``response.headers``, or pairs of names, in any letter case, and values.
/// now
///     The time in seconds since the Unix epoch, or as a ``timedelta`` since then, with which a date is compared if the response
///     has none; the default is the system's time.
#[pyfunction]
#[pyo3(signature = (headers, *, now = None))]
pub(crate) fn server_wait(
    py: Python<'_>,
    headers: &Bound<'_, PyAny>,
    now: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<f64>> {
    let fields = FieldValue::read_all(headers)?;
    let now = match now {
        Some(now) => read_duration("now", now)?,
        None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    };
    call_core(py, || Ok(core_server_wait(fields, whole_us(now)).map(as_seconds)))
}

fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn as_seconds(duration: Duration) -> f64 {
    seconds(whole_us(duration))
}

/// When the client of a limited service tries again, and when it gives up: exponential backoff with full jitter.
///
/// The wait before retry n, counted from 0, is random from 0 to ``base * 2**n``, at most ``cap``. A wait that the server asks for
/// is added to it.
///
/// Parameters
/// ----------
/// base
///     Seconds or a ``timedelta``: the longest wait before the first retry, from 1 ms to the cap; 0.1 by default.
/// cap
///     Where the doubling ends, from the base to a day; 20 by default.
/// max_wait
///     The longest wait that a server may ask for, 0 to 366 days; 300 by default.
/// max_retries
///     How many retries may follow the first try; 5 by default.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When a setting is out of its range.
#[pyclass(name = "Backoff", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyBackoff(Backoff);

#[pymethods]
impl PyBackoff {
    #[new]
    #[pyo3(signature = (*, base = None, cap = None, max_wait = None, max_retries = None))]
    fn new(
        py: Python<'_>,
        base: Option<&Bound<'_, PyAny>>,
        cap: Option<&Bound<'_, PyAny>>,
        max_wait: Option<&Bound<'_, PyAny>>,
        max_retries: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut builder = Backoff::builder();
        let written = [("base", base), ("cap", cap), ("max_wait", max_wait)];
        if let Some(base) = base {
            builder = builder.base(read_duration("base", base)?);
        }
        if let Some(cap) = cap {
            builder = builder.cap(read_duration("cap", cap)?);
        }
        if let Some(max_wait) = max_wait {
            builder = builder.max_wait(read_duration("max_wait", max_wait)?);
        }
        if let Some(max_retries) = max_retries {
            builder = builder.max_retries(read_integer("max_retries", max_retries)?);
        }
        call_core_with(py, &written, || builder.build()).map(Self)
    }

    /// How many seconds to wait before the next try; ``None`` to give up.
    ///
    /// Gives up once ``max_retries`` retries were made, and when the server asks for more than ``max_wait``.
    ///
    /// Parameters
    /// ----------
    /// retry
    ///     How many retries were made before: 0 after the first failure.
    /// server_wait
    ///     What the last response asked for, as read by ``server_wait``.
    #[pyo3(signature = (retry, server_wait = None))]
    fn wait(
        &self,
        py: Python<'_>,
        retry: &Bound<'_, PyAny>,
        server_wait: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<f64>> {
        let retry = read_integer("retry", retry)?;
        let server_wait = server_wait.map(|wait| read_duration("server_wait", wait)).transpose()?;
        call_core(py, || Ok(self.0.wait(retry, server_wait).map(as_seconds)))
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((), Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        for (name, setting) in
            [("base", self.0.base()), ("cap", self.0.cap()), ("max_wait", self.0.max_wait())]
        {
            named.set_item(name, as_seconds(setting))?;
        }
        named.set_item("max_retries", self.0.max_retries())?;
        Ok(((), named))
    }

    fn __repr__(&self) -> String {
        let [base, cap, max_wait] = [self.0.base(), self.0.cap(), self.0.max_wait()].map(as_seconds);
        format!(
            "Backoff(base={base:?}, cap={cap:?}, max_wait={max_wait:?}, max_retries={})",
            self.0.max_retries()
        )
    }
}

immutable!(PyBackoff);

/// The pauses and the backoff of one client, for the wrappers of this package.
#[pyclass(name = "Throttle", module = "polylimit", frozen)]
pub(crate) struct PyThrottle(Throttle);

#[pymethods]
impl PyThrottle {
    #[new]
    #[pyo3(signature = (backoff = None))]
    fn new(backoff: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let backoff = backoff.map(|backoff| read_object::<PyBackoff>("backoff", backoff)).transpose()?;
        Ok(Self(Throttle::new(backoff.map(|backoff| backoff.get().0.clone()).unwrap_or_default())))
    }

    /// Starts a request; its waits end after the timeout or ``max_wait``, whichever is shorter.
    fn start(
        &self,
        py: Python<'_>,
        key: Key,
        method: &str,
        replayable: bool,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyAttempts> {
        let timeout = timeout.map(|timeout| read_duration("timeout", timeout)).transpose()?;
        call_core(py, || self.0.start(key.as_bytes(), method, replayable, timeout))
            .map(|attempts| PyAttempts(Mutex::new(attempts)))
    }
}

/// The attempts of one request of a throttled client.
#[pyclass(name = "Attempts", module = "polylimit", frozen)]
pub(crate) struct PyAttempts(Mutex<Attempts>);

#[pymethods]
impl PyAttempts {
    /// What to do next: ``wait`` this many seconds and ask again, ``acquire`` with this timeout, ``send``, or ``refuse``.
    fn step(&self, py: Python<'_>) -> PyResult<(&'static str, f64)> {
        call_core(py, || {
            Ok(match self.0.lock().step() {
                Step::Wait(wait) => ("wait", as_seconds(wait)),
                Step::Acquire(timeout) => ("acquire", as_seconds(timeout)),
                Step::Send => ("send", 0.0),
                Step::Refuse(_) => ("refuse", 0.0),
            })
        })
    }

    /// The limiter has decided.
    fn acquired(&self, decision: &Bound<'_, PyDecision>) {
        let decision = &decision.get().0;
        self.0.lock().acquired(decision.allowed(), decision.retry_after());
    }

    /// A response has arrived; returns whether to discard it and try again.
    fn responded(&self, py: Python<'_>, status: u16, headers: &Bound<'_, PyAny>) -> PyResult<bool> {
        let fields = FieldValue::read_all(headers)?;
        call_core(py, || Ok(self.0.lock().responded(status, fields)))
    }

    /// Why the request is refused, and after how many seconds it would be sent; ``None`` before.
    fn refusal(&self, py: Python<'_>) -> PyResult<Option<(String, Option<f64>)>> {
        call_core(py, || {
            Ok(match self.0.lock().step() {
                Step::Refuse(refusal) => {
                    Some((refusal.message().to_owned(), refusal.retry_after().map(as_seconds)))
                }
                _ => None,
            })
        })
    }
}
