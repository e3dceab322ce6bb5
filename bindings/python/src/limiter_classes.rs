//! The two limiter classes of Python, and the methods that are the same in both. Each returns the other one, so both are defined
//! here; the operations are in `limiter.rs`.

use polylimit::{Limiter, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::Utf8Text;
use crate::error::call_core;
use crate::policy::{PyPolicy, read_policy};
use crate::request::PolicyArgument;

/// The documentation of the constructor arguments of both classes.
macro_rules! constructor_doc {
    () => {
        r#"
Parameters
----------
url
    Where the states are kept: ``"memory:"``, ``"local:name"`` for all processes of a host, ``"redis://host:port"``,
    ``"redis-sentinel://..."``, ``"redis-cluster://..."``, and ``rediss`` for TLS.
policies
    Policies by name: ``{"api": "100/minute; 1000/hour"}``. Quotas may also be given with each request.
document
    A configuration with policies, rules and lists, in place of ``policies``: its text, in TOML or JSON, or a dict.
    ``admin().set_document`` replaces it.
clock
    ``"system"``, ``"coarse"`` or a ``ManualClock``. By default Redis uses the clock of its server.
on_degraded
    Called with a ``DegradedEvent`` when the limiter begins to decide without its store, when it decides with its store
    again, and for each problem that its doctor finds, on the thread of a later call. The logger ``polylimit`` gets the same
    events as warnings.
credentials
    A function without arguments that gives the password for each new connection to Redis, or a tuple of user and password, in
    place of those in the URL: for tokens that expire. It is called on a thread of its own, and again when the server refuses what
    it gave, then not for 0.25 to 10 seconds, growing with each time in a row. It may block: decisions keep their deadline. An
    exception is the cause in ``ready``, the events and the doctor. ``admin().set_credentials`` replaces it.
options
    Options of the store by name, as ``options()`` lists them: text, numbers, and seconds or a ``timedelta`` for
    durations. ``outage`` may be a dict of policy names and their outage policies.

Raises
------
InvalidArgumentError
    When the URL, a policy or an option is not valid. An unreachable store raises nothing here."#
    };
}

/// Decides whether requests may proceed.
///
/// A denial is a value and raises nothing: ``if limiter.check("user:42"): ...``
#[doc = constructor_doc!()]
#[pyclass(name = "Limiter", module = "polylimit", frozen, dict, weakref)]
pub(crate) struct PyLimiter {
    limiter: blocking::Limiter,
}

impl PyLimiter {
    pub(crate) fn from_core(limiter: Limiter) -> Self {
        Self { limiter: limiter.blocking() }
    }

    /// The core's limiter for callers that wait on their thread.
    pub(crate) fn blocking(&self) -> &blocking::Limiter {
        &self.limiter
    }

    /// The core's limiter for everything else.
    pub(crate) fn core(&self) -> &Limiter {
        self.limiter.asynchronous()
    }
}

/// Decides whether requests may proceed, in an asyncio event loop.
///
/// Every operation is awaited. It starts when it is first awaited, and one that needs no waiting never yields to the event loop.
///
/// A denial is a value and raises nothing: ``if await limiter.check("user:42"): ...``
#[doc = constructor_doc!()]
#[pyclass(name = "AsyncLimiter", module = "polylimit", frozen, dict, weakref)]
pub(crate) struct PyAsyncLimiter {
    limiter: Limiter,
}

impl PyAsyncLimiter {
    pub(crate) fn from_core(limiter: Limiter) -> Self {
        Self { limiter }
    }

    pub(crate) fn core(&self) -> &Limiter {
        &self.limiter
    }
}

pub(crate) fn set_policy(
    py: Python<'_>,
    limiter: &Limiter,
    name: &Bound<'_, PyAny>,
    quotas: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let policy = read_policy(py, &Utf8Text::read(name, "name")?, quotas)?;
    call_core(py, || limiter.set_policy(policy))
}

pub(crate) fn policy_for(
    py: Python<'_>,
    limiter: &Limiter,
    policy: Option<&PolicyArgument>,
    scope: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyPolicy> {
    let scope = scope.map(|scope| Utf8Text::read(scope, "scope")).transpose()?;
    let name = policy.map(PolicyArgument::as_str);
    call_core(py, || limiter.policy_for(name, scope.as_deref())).map(PyPolicy)
}

pub(crate) fn stats<'py>(py: Python<'py>, limiter: &Limiter) -> PyResult<Bound<'py, PyDict>> {
    let stats = PyDict::new(py);
    for (name, count) in limiter.stats().iter() {
        stats.set_item(name, count)?;
    }
    Ok(stats)
}

/// Closes the connections, which may take as long as one deadline; other threads run meanwhile.
pub(crate) fn close(py: Python<'_>, limiter: &Limiter) -> PyResult<()> {
    call_core(py, || {
        py.detach(|| limiter.close());
        Ok(())
    })
}

/// The `repr` of a limiter: its policies, without the URL and the options, which may contain secrets.
pub(crate) fn repr(class: &str, limiter: &Limiter) -> String {
    let policies: Vec<_> = limiter.policies().iter().map(ToString::to_string).collect();
    format!("{class}({})", policies.join(", "))
}

/// The error of pickle, copy and deepcopy.
pub(crate) fn not_copyable() -> PyErr {
    PyTypeError::new_err(
        "a limiter cannot be pickled or copied: it holds connections and states; share the object between threads, and \
         make one from the same URL in each process",
    )
}
