//! `AsyncLimiter`: the face for event loops.

use polylimit::Limiter;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::call::{Asked, Job, Operation, PolicyText};
use crate::error::guarded;
use crate::key::Key;
use crate::limiter::{NOT_COPIED, PyLimiter};
use crate::operation::State;
use crate::policy::{self, PyPolicy};
use crate::settings::{self, Url};
use crate::utf8::Utf8;
use crate::{duration, operation_type};

/// Decides whether requests may proceed, in an asyncio event loop.
///
/// The operations are awaited: each starts when it is first awaited, and one whose answer is known at once never waits.
///
/// A denial is a value and raises nothing: ``if limiter.check("user:42"): ...``
///
/// Parameters
/// ----------
/// url
///     Where the states are kept: ``"memory:"``, ``"local:name"`` for all processes of a host, ``"redis://host:port"``,
///     ``"redis-sentinel://..."``, ``"redis-cluster://..."``, and ``rediss`` for TLS.
/// policies
///     Policies by name: ``{"api": "100/minute; 1000/hour"}``. Quotas may also be given with each request.
/// clock
///     ``"system"``, ``"coarse"`` or a ``ManualClock``; the server's clock for Redis unless told otherwise.
/// on_degraded
///     Called with a ``DegradedEvent`` when the limiter begins to decide without its store, when it decides with it again, and
///     with what its doctor finds, on the thread of a call. The same is logged as a warning of the logger ``polylimit``.
/// options
///     Options of the store by name, as ``options()`` lists them: text, numbers, and seconds or a ``timedelta`` for
///     durations. ``outage`` may be a dict of policies with their own.
///
/// Raises
/// ------
/// InvalidArgumentError
///     When the URL, a policy or an option is not valid. A store that cannot be reached raises nothing here.
#[pyclass(name = "AsyncLimiter", module = "polylimit", frozen)]
pub(crate) struct PyAsyncLimiter {
    limiter: Limiter,
}

impl PyAsyncLimiter {
    pub(crate) fn of(limiter: &Limiter) -> Self {
        Self { limiter: limiter.clone() }
    }

    /// The limiter itself.
    pub(crate) fn face(&self) -> &Limiter {
        &self.limiter
    }

    fn close_now(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        guarded(py, || {
            py.detach(|| self.limiter.close());
            Ok(())
        })?;
        operation_type::create(py, State::Done(py.None()))
    }
}

fn start(this: &Bound<'_, PyAsyncLimiter>, job: Job) -> PyResult<Py<PyAny>> {
    operation_type::create(this.py(), State::New(this.clone().unbind(), Box::new(job)))
}

fn one(
    this: &Bound<'_, PyAsyncLimiter>,
    operation: Operation,
    key: Key,
    policy: Option<PolicyText>,
    cost: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    start(this, Job::One(operation, Asked::new(key, policy, cost)?))
}

#[pymethods]
impl PyAsyncLimiter {
    #[new]
    #[pyo3(
        signature = (url = Url::default(), policies = None, *, clock = None, on_degraded = None, **options),
        text_signature = "(url='memory:', policies=None, *, clock=None, on_degraded=None, **options)"
    )]
    fn new(
        py: Python<'_>,
        url: Url,
        policies: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
        on_degraded: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self { limiter: settings::build(py, &url, policies, clock, on_degraded, options)? })
    }

    /// Decides, and spends the cost from every quota of the policy when all admit it.
    ///
    /// Parameters
    /// ----------
    /// key
    ///     Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
    /// policy
    ///     A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
    /// cost
    ///     Units, from 0 to 10**12; 1 unless told otherwise.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     When the key, the policy or the cost is not valid.
    /// ClosedError
    ///     When the limiter was closed.
    #[pyo3(signature = (key, policy = None, *, cost = None))]
    fn check(
        this: &Bound<'_, Self>,
        key: Key,
        policy: Option<PolicyText>,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        one(this, Operation::Check, key, policy, cost)
    }

    /// The decision that a check would give now; leaves no trace.
    ///
    /// Parameters
    /// ----------
    /// key
    ///     Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
    /// policy
    ///     A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
    /// cost
    ///     Units, from 0 to 10**12; 1 unless told otherwise.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     When the key, the policy or the cost is not valid.
    /// ClosedError
    ///     When the limiter was closed.
    #[pyo3(signature = (key, policy = None, *, cost = None))]
    fn peek(
        this: &Bound<'_, Self>,
        key: Key,
        policy: Option<PolicyText>,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        one(this, Operation::Peek, key, policy, cost)
    }

    /// Spends as much of the cost as every quota admits, from 0 to the cost; ``taken`` says how much.
    ///
    /// Parameters
    /// ----------
    /// key
    ///     Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
    /// policy
    ///     A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
    /// cost
    ///     Units, from 0 to 10**12; 1 unless told otherwise.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     When the key, the policy or the cost is not valid.
    /// ClosedError
    ///     When the limiter was closed.
    #[pyo3(signature = (key, policy = None, *, cost = None))]
    fn take(
        this: &Bound<'_, Self>,
        key: Key,
        policy: Option<PolicyText>,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        one(this, Operation::Take, key, policy, cost)
    }

    /// Spends the cost whether it fits or not, for a cost that is learnt afterwards.
    ///
    /// Use saturates at 8 times each quota's capacity.
    ///
    /// Parameters
    /// ----------
    /// key
    ///     Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
    /// policy
    ///     A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
    /// cost
    ///     Units, from 0 to 10**12; 1 unless told otherwise.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     When the key, the policy or the cost is not valid.
    /// ClosedError
    ///     When the limiter was closed.
    #[pyo3(signature = (key, policy = None, *, cost = None))]
    fn charge(
        this: &Bound<'_, Self>,
        key: Key,
        policy: Option<PolicyText>,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        one(this, Operation::Charge, key, policy, cost)
    }

    /// Gives back up to what is used, the newest first.
    ///
    /// Parameters
    /// ----------
    /// key
    ///     Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
    /// policy
    ///     A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
    /// cost
    ///     Units, from 0 to 10**12; 1 unless told otherwise.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     When the key, the policy or the cost is not valid.
    /// ClosedError
    ///     When the limiter was closed.
    #[pyo3(signature = (key, policy = None, *, cost = None))]
    fn refund(
        this: &Bound<'_, Self>,
        key: Key,
        policy: Option<PolicyText>,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        one(this, Operation::Refund, key, policy, cost)
    }

    /// Forgets the key under its policy.
    #[pyo3(signature = (key, policy = None))]
    fn reset(this: &Bound<'_, Self>, key: Key, policy: Option<PolicyText>) -> PyResult<Py<PyAny>> {
        one(this, Operation::Reset, key, policy, None)
    }

    /// Waits until the request is admitted and, in a leaky bucket, until its turn has come.
    ///
    /// Says at once that the timeout cannot be met: then the decision is a denial, and nothing was spent. Those who wait for
    /// one key under one policy are served in the order in which they came.
    ///
    /// Parameters
    /// ----------
    /// timeout
    ///     Seconds or a ``timedelta``; ``math.inf`` waits for as long as it takes.
    #[pyo3(signature = (key, policy = None, *, cost = None, timeout))]
    fn acquire(
        this: &Bound<'_, Self>,
        key: Key,
        policy: Option<PolicyText>,
        cost: Option<&Bound<'_, PyAny>>,
        timeout: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let timeout = duration::read("timeout", timeout)?;
        start(this, Job::Acquire(Asked::new(key, policy, cost)?, timeout))
    }

    /// Checks several requests in one call, of one or more policies. Each is decided on its own, in order.
    ///
    /// Parameters
    /// ----------
    /// requests
    ///     Keys, or ``Request`` objects where policy or cost differ.
    /// return_exceptions
    ///     Whether errors stand in the list, in the place of their decisions. Otherwise the first one is raised.
    #[pyo3(signature = (requests, *, return_exceptions = false))]
    fn check_many(
        this: &Bound<'_, Self>,
        requests: &Bound<'_, PyAny>,
        return_exceptions: bool,
    ) -> PyResult<Py<PyAny>> {
        start(this, Job::check_many(requests, return_exceptions)?)
    }

    /// Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is
    /// spent. When one is denied or fails, what the others have spent is given back, and their decisions show what is left.
    ///
    /// Each is decided on its own, so that for a moment others may find units missing that are then given back.
    ///
    /// Parameters
    /// ----------
    /// requests
    ///     ``Request`` objects, or keys.
    ///
    /// Returns
    /// -------
    /// list
    ///     A ``Decision`` for each request, in their order: all are true, or the requests are not admitted.
    ///
    /// Raises
    /// ------
    /// PolylimitError
    ///     The first error of any request.
    fn check_together(this: &Bound<'_, Self>, requests: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        start(this, Job::check_together(requests)?)
    }

    /// Waits until the store answers, at most for ``timeout`` seconds or a ``timedelta``. Nothing needs it; a service that
    /// starts may want it.
    ///
    /// Raises
    /// ------
    /// StoreUnavailableError
    ///     When it does not answer in time.
    fn ready(this: &Bound<'_, Self>, timeout: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        start(this, Job::Ready(duration::read("timeout", timeout)?))
    }

    /// Looks at the store with the eyes of an operator: version, memory policy, rights, latency, clock.
    fn doctor(this: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        start(this, Job::Doctor)
    }

    /// Registers a policy, or changes the numbers of the one of that name. What was used is kept by every quota whose
    /// algorithm, period, step and buckets stay.
    fn set_policy(&self, py: Python<'_>, name: &Bound<'_, PyAny>, quotas: &Bound<'_, PyAny>) -> PyResult<()> {
        let policy = policy::read(py, &Utf8::read(name, "name")?, quotas)?;
        guarded(py, || self.limiter.set_policy(policy))
    }

    /// The policy of that name, or of these quotas if somebody asked for them; ``None`` when there is none.
    fn policy(&self, policy: PolicyText) -> Option<PyPolicy> {
        self.limiter.policy(policy.as_str()).map(PyPolicy)
    }

    /// The policy by which a request that names this one, these quotas, or none, is decided, with its current numbers. Its
    /// ``name`` is what requests may use as their policy from then on.
    ///
    /// Parameters
    /// ----------
    /// policy
    ///     A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
    /// scope
    ///     1 to 256 bytes of text, such as ``"/login"``. Quotas without a name get a budget of their own in each scope; a
    ///     policy with a name is shared by all scopes.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     When the policy is not known, its quotas cannot be read, none is named and there are several, or the scope is not
    ///     valid.
    /// ClosedError
    ///     When the limiter was closed.
    #[pyo3(signature = (policy = None, scope = None))]
    fn policy_for(
        &self,
        py: Python<'_>,
        policy: Option<PolicyText>,
        scope: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyPolicy> {
        let scope = scope.map(|scope| Utf8::read(scope, "scope")).transpose()?;
        let name = policy.as_ref().map(PolicyText::as_str);
        guarded(py, || self.limiter.policy_for(name, scope.as_deref())).map(PyPolicy)
    }

    /// All policies, in the order in which they were registered.
    fn policies(&self) -> Vec<PyPolicy> {
        self.limiter.policies().into_iter().map(PyPolicy).collect()
    }

    /// What became of the operations so far, by name: counts that only grow.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        for (name, count) in self.limiter.stats().iter() {
            stats.set_item(name, count)?;
        }
        Ok(stats)
    }

    /// How many keys the memory store or the local one holds a state for; ``None`` for a store elsewhere.
    fn keys(&self) -> Option<usize> {
        self.limiter.keys()
    }

    /// Authenticates new connections with another password, and user name if there is one, from now on.
    #[pyo3(signature = (password, *, username = None))]
    fn set_credentials(
        &self,
        py: Python<'_>,
        password: &Bound<'_, PyAny>,
        username: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let password = Utf8::read(password, "password")?;
        let username = username.map(|username| Utf8::read(username, "username")).transpose()?;
        guarded(py, || self.limiter.set_credentials(username.as_deref(), &password))
    }

    /// The synchronous face of the same limiter.
    #[getter]
    fn blocking(&self) -> PyLimiter {
        PyLimiter::of(&self.limiter)
    }

    /// Ends its use, at once: what comes after it raises ``ClosedError``, and connections are closed. Closing it again does
    /// nothing. There is nothing to await, and awaiting it does no harm.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.close_now(py)
    }

    fn __aenter__(this: Py<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        operation_type::create(py, State::Done(this.into_any()))
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        self.close_now(py)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(NOT_COPIED))
    }

    fn __repr__(&self) -> String {
        settings::shown("AsyncLimiter", &self.limiter)
    }
}
