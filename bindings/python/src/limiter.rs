//! The operations of `Limiter`, which wait on the caller's thread, and of `AsyncLimiter`, which are awaited in an asyncio event loop.

use polylimit::raw::Call;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::admin::{PyAdmin, PyAsyncAdmin};
use crate::call::{AnswerForm, Operation, OwnedCall, answer_to_python, try_attached};
use crate::convert::{Key, read_duration};
use crate::limiter_classes::{self, PyAsyncLimiter, PyLimiter};
use crate::operation::State;
use crate::operation_type;
use crate::options::{LimiterArguments, Url, build_limiter};
use crate::policy::PyPolicy;
use crate::request::{OwnedRequest, Plan, PolicyArgument};
use crate::reserve::{self, ReserveArguments, Reserver, Reserving, reserve_doc};
use crate::reserve_operation::PyReserveOperation;
use crate::waiting::wait;

impl PyLimiter {
    /// Makes a call: decides at once where the store allows it, and otherwise waits on this thread while others run.
    pub(crate) fn call(&self, py: Python<'_>, owned: &OwnedCall) -> PyResult<Py<PyAny>> {
        owned.with(|call| {
            if let Some(answer) = try_attached(py, self.core(), call)? {
                return answer_to_python(py, answer, &owned.answer_form());
            }
            self.wait_for(py, call, &owned.answer_form())
        })
    }

    /// Waits on this thread for a call that is not decided at once.
    pub(crate) fn wait_for(&self, py: Python<'_>, call: &Call<'_>, form: &AnswerForm) -> PyResult<Py<PyAny>> {
        match wait(py, self.blocking(), call)? {
            Some(answer) => answer_to_python(py, answer, form),
            None => Ok(py.None()),
        }
    }

    pub(crate) fn make(this: &Bound<'_, Self>, call: OwnedCall) -> PyResult<Py<PyAny>> {
        this.get().call(this.py(), &call)
    }
}

impl PyAsyncLimiter {
    /// The operation that makes the call when it is awaited.
    pub(crate) fn make(this: &Bound<'_, Self>, call: OwnedCall) -> PyResult<Py<PyAny>> {
        operation_type::create(this.py(), State::NotStarted(this.get().core().clone(), Box::new(call)))
    }
}

/// The documentation of the arguments that take, charge and refund share.
macro_rules! operation_doc {
    () => {
        r#"
Parameters
----------
key
    The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
policy
    A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
cost
    Units, from 0 to 10**12; the default is 1.
plan
    The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

Raises
------
InvalidArgumentError
    When the key, the policy or the cost is not valid.
ClosedError
    When the limiter was closed."#
    };
}

/// The documentation of the arguments of check and peek.
macro_rules! decision_doc {
    () => {
        r#"
Parameters
----------
key
    The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
policy
    A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
cost
    Units, from 0 to 10**12; the default is 1.
headroom
    The part of each quota that the request leaves for others, in percent from 0 to 99, rounded up to whole units; the default is
    0. So less important requests are denied first.
plan
    The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

Raises
------
InvalidArgumentError
    When the key, the policy, the cost or the headroom is not valid.
ClosedError
    When the limiter was closed."#
    };
}

/// Writes the methods that are the same in both classes.
macro_rules! limiter_methods {
    ($class:ident, $name:literal) => {
        impl $class {
            fn make_one(
                this: &Bound<'_, Self>,
                operation: Operation,
                request: OwnedRequest,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, OwnedCall::OneKey(operation, request))
            }
        }

        #[pymethods]
        impl $class {
            #[new]
            #[pyo3(
                signature = (url = Url::default(), policies = None, *, document = None, clock = None, on_degraded = None, credentials = None, **options),
                text_signature = "(url='memory:', policies=None, *, document=None, clock=None, on_degraded=None, credentials=None, **options)"
            )]
            #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python")]
            fn new(
                py: Python<'_>,
                url: Url,
                policies: Option<&Bound<'_, PyAny>>,
                document: Option<&Bound<'_, PyAny>>,
                clock: Option<&Bound<'_, PyAny>>,
                on_degraded: Option<&Bound<'_, PyAny>>,
                credentials: Option<&Bound<'_, PyAny>>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<Self> {
                let given = LimiterArguments { policies, document, clock, on_degraded, credentials, options };
                Ok(Self::from_core(build_limiter(py, &url, given)?))
            }

            /// Decides, and spends the cost from every quota of the policy when all admit it.
            #[doc = decision_doc!()]
            #[pyo3(signature = (key, policy = None, *, cost = None, headroom = None, plan = None))]
            fn check(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                cost: Option<&Bound<'_, PyAny>>,
                headroom: Option<&Bound<'_, PyAny>>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                let request = OwnedRequest::new(key, policy, plan).with_cost(cost)?.with_headroom(headroom)?;
                Self::make_one(this, Operation::Check, request)
            }

            /// The decision that a check would make now; changes nothing.
            #[doc = decision_doc!()]
            #[pyo3(signature = (key, policy = None, *, cost = None, headroom = None, plan = None))]
            fn peek(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                cost: Option<&Bound<'_, PyAny>>,
                headroom: Option<&Bound<'_, PyAny>>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                let request = OwnedRequest::new(key, policy, plan).with_cost(cost)?.with_headroom(headroom)?;
                Self::make_one(this, Operation::Peek, request)
            }

            /// Spends as much of the cost as every quota admits, from 0 to the cost; ``taken`` says how much.
            #[doc = operation_doc!()]
            #[pyo3(signature = (key, policy = None, *, cost = None, plan = None))]
            fn take(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                cost: Option<&Bound<'_, PyAny>>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                Self::make_one(this, Operation::Take, OwnedRequest::new(key, policy, plan).with_cost(cost)?)
            }

            /// Spends the cost even where it does not fit, for a cost that is known only afterwards.
            ///
            /// Usage is capped at 8 times the capacity of each quota.
            #[doc = operation_doc!()]
            #[pyo3(signature = (key, policy = None, *, cost = None, plan = None))]
            fn charge(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                cost: Option<&Bound<'_, PyAny>>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                Self::make_one(this, Operation::Charge, OwnedRequest::new(key, policy, plan).with_cost(cost)?)
            }

            /// Gives back the cost, at most what is used, the most recent units first.
            #[doc = operation_doc!()]
            #[pyo3(signature = (key, policy = None, *, cost = None, plan = None))]
            fn refund(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                cost: Option<&Bound<'_, PyAny>>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                Self::make_one(this, Operation::Refund, OwnedRequest::new(key, policy, plan).with_cost(cost)?)
            }

            /// Forgets the usage of the key under the policy.
            #[pyo3(signature = (key, policy = None, *, plan = None))]
            fn reset(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                Self::make_one(this, Operation::Reset, OwnedRequest::new(key, policy, plan))
            }

            /// Waits until the request is admitted and, in a leaky bucket, until its turn has come.
            ///
            /// If the request cannot be admitted within the timeout, it is denied at once and nothing is spent. Callers that wait for
            /// the same key under the same policy are served in the order of their arrival.
            ///
            /// Parameters
            /// ----------
            /// timeout
            ///     Seconds or a ``timedelta``; ``math.inf`` waits without a limit.
            #[pyo3(signature = (key, policy = None, *, cost = None, timeout, headroom = None, plan = None))]
            fn acquire(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                cost: Option<&Bound<'_, PyAny>>,
                timeout: &Bound<'_, PyAny>,
                headroom: Option<&Bound<'_, PyAny>>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                let timeout = read_duration("timeout", timeout)?;
                let request = OwnedRequest::new(key, policy, plan).with_cost(cost)?.with_headroom(headroom)?;
                Self::make(this, OwnedCall::Acquire(request, timeout))
            }

            /// Ends the reservation with this id and charges what was spent, as ``charge`` does. The usage's ``found`` is false, and
            /// nothing is charged, when it has ended before: a repeated commit never charges twice. Where the reservation was made to
            /// ``remember`` its commit, the usage's ``repeated`` says whether this is a repetition.
            ///
            /// Parameters
            /// ----------
            /// spent
            ///     Units, from 0 to 10**12: less than was reserved, or more; the default is what was reserved.
            #[pyo3(signature = (key, id, *, spent = None, policy = None, plan = None))]
            fn commit(
                this: &Bound<'_, Self>,
                key: Key,
                id: &Bound<'_, PyAny>,
                spent: Option<&Bound<'_, PyAny>>,
                policy: Option<PolicyArgument>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, reserve::commit_call(OwnedRequest::new(key, policy, plan), id, spent)?)
            }

            /// Ends the reservation with this id and spends nothing. The usage's ``found`` is false when it has ended before.
            #[pyo3(signature = (key, id, *, policy = None, plan = None))]
            fn cancel(
                this: &Bound<'_, Self>,
                key: Key,
                id: &Bound<'_, PyAny>,
                policy: Option<PolicyArgument>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, reserve::cancel_call(OwnedRequest::new(key, policy, plan), id)?)
            }

            /// Makes the reservation with this id end ``ttl`` from now. The usage's ``found`` is false when it has ended before.
            ///
            /// Parameters
            /// ----------
            /// ttl
            ///     Seconds or a ``timedelta``, from 1 ms to 48 h.
            #[pyo3(signature = (key, id, ttl, *, policy = None, plan = None))]
            fn renew(
                this: &Bound<'_, Self>,
                key: Key,
                id: &Bound<'_, PyAny>,
                ttl: &Bound<'_, PyAny>,
                policy: Option<PolicyArgument>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, reserve::renew_call(OwnedRequest::new(key, policy, plan), id, ttl)?)
            }

            /// Checks several requests under one or more policies in one call. Each is decided on its own, in order.
            ///
            /// Parameters
            /// ----------
            /// requests
            ///     Keys, or ``Request`` objects where the policy or the cost differs.
            /// return_exceptions
            ///     Whether errors are returned in the list, in the places of their decisions. Otherwise the first one is raised.
            #[pyo3(signature = (requests, *, return_exceptions = None), text_signature = "($self, requests, *, return_exceptions=False)")]
            fn check_many(
                this: &Bound<'_, Self>,
                requests: &Bound<'_, PyAny>,
                return_exceptions: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, OwnedCall::check_many(requests, return_exceptions)?)
            }

            /// Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is
            /// spent. When one is denied, the decisions that admit are those of a peek. Requests for the same key under the same policy are
            /// one of their sum.
            ///
            /// The store decides all of them in one step. Between slots of a cluster, units are given back within the call, so another caller
            /// may be denied meanwhile.
            ///
            /// Parameters
            /// ----------
            /// requests
            ///     ``Request`` objects, or keys.
            ///
            /// Returns
            /// -------
            /// list
            ///     A ``Decision`` for each request, in the same order. The requests are admitted if all decisions are true.
            ///
            /// Raises
            /// ------
            /// PolylimitError
            ///     The first error of any request.
            fn check_together(this: &Bound<'_, Self>, requests: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                Self::make(this, OwnedCall::check_together(requests)?)
            }

            /// The decisions that ``check_together`` would make now; changes nothing.
            ///
            /// Parameters
            /// ----------
            /// requests
            ///     ``Request`` objects, or keys.
            ///
            /// Returns
            /// -------
            /// list
            ///     A ``Decision`` for each request, in the same order.
            ///
            /// Raises
            /// ------
            /// PolylimitError
            ///     The first error of any request.
            fn peek_together(this: &Bound<'_, Self>, requests: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                Self::make(this, OwnedCall::peek_together(requests)?)
            }

            /// As ``check_together``, but requests under a policy with a quota such as ``"20 concurrent"`` are reserved, all under one id; the
            /// others spend. When one request is denied, nothing is spent or reserved.
            ///
            /// The caller ends each reservation by the limiter's ``commit`` or ``cancel`` with its key, its policy and this id. They are not renewed in
            /// the background: ``renew`` makes them last longer.
            ///
            /// Parameters
            /// ----------
            /// requests
            ///     ``Request`` objects, or keys.
            /// id
            ///     The id of the reservations: 1 to 64 bytes of text; random by default. A caller that has received no answer repeats the operation
            ///     with the same id.
            /// ttl
            ///     How long the reservations last, in seconds or as a ``timedelta``: 1 ms to 48 h; the default is 30 s.
            /// remember
            ///     How long after their commits the id is remembered, as in ``reserve``; by default it is not.
            ///
            /// Returns
            /// -------
            /// RequestReservation
            ///     A ``Decision`` for each request, and the id; true when all requests are admitted.
            ///
            /// Raises
            /// ------
            /// PolylimitError
            ///     The first error of any request.
            #[pyo3(signature = (requests, *, id = None, ttl = None, remember = None))]
            fn reserve_together(
                this: &Bound<'_, Self>,
                requests: &Bound<'_, PyAny>,
                id: Option<&Bound<'_, PyAny>>,
                ttl: Option<&Bound<'_, PyAny>>,
                remember: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, reserve::reserve_together_call(requests, id, ttl, remember)?)
            }

            /// Waits until the store answers, at most ``timeout``: seconds or a ``timedelta``. A service may call it when it starts; no
            /// operation needs it.
            ///
            /// Raises
            /// ------
            /// StoreUnavailableError
            ///     When the store does not answer in time.
            fn ready(this: &Bound<'_, Self>, timeout: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                Self::make(this, OwnedCall::Ready(read_duration("timeout", timeout)?))
            }

            /// Registers a policy, or replaces the quotas of the policy of that name. Usage is kept under every quota whose algorithm,
            /// period, step and buckets stay the same.
            fn set_policy(&self, py: Python<'_>, name: &Bound<'_, PyAny>, quotas: &Bound<'_, PyAny>) -> PyResult<()> {
                limiter_classes::set_policy(py, self.core(), name, quotas)
            }

            /// The policy of that name, or of these quotas if a request has used them; ``None`` if there is none.
            fn policy(&self, policy: PolicyArgument) -> Option<PyPolicy> {
                self.core().policy(policy.as_str()).map(PyPolicy)
            }

            /// The policy that decides requests with this argument, with its current quotas. Requests may use its ``name`` as their
            /// policy from then on.
            ///
            /// Parameters
            /// ----------
            /// policy
            ///     A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
            /// scope
            ///     1 to 256 bytes of text, such as ``"/login"``. Quotas without a name have a separate budget in each scope; a policy
            ///     with a name is shared by all scopes.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When the policy is not known, the quotas cannot be read, no policy is given though the limiter has several, or the
            ///     scope is not valid.
            /// ClosedError
            ///     When the limiter was closed.
            #[pyo3(signature = (policy = None, scope = None))]
            fn policy_for(
                &self,
                py: Python<'_>,
                policy: Option<PolicyArgument>,
                scope: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<PyPolicy> {
                limiter_classes::policy_for(py, self.core(), policy.as_ref(), scope)
            }

            /// All policies, in the order of their registration.
            fn policies(&self) -> Vec<PyPolicy> {
                self.core().policies().into_iter().map(PyPolicy).collect()
            }

            /// Counters of the operations so far, by name; they only increase.
            fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                limiter_classes::stats(py, self.core())
            }

            fn __reduce__(&self) -> PyResult<()> {
                Err(limiter_classes::not_copyable())
            }

            fn __repr__(&self) -> String {
                limiter_classes::repr($name, self.core())
            }
        }
    };
}

limiter_methods!(PyLimiter, "Limiter");
limiter_methods!(PyAsyncLimiter, "AsyncLimiter");

#[pymethods]
impl PyLimiter {
    /// Decides as a check does and, when every quota admits the request, sets its cost aside until the returned handle is
    /// committed, cancelled or forgotten, or until its ttl has passed without a renewal. Nothing is spent before the commit.
    ///
    /// ``with limiter.reserve("tenant:7", cost=4000) as reservation:`` ends it in every case. The handle of a denied request is
    /// false and raises nothing.
    #[doc = reserve_doc!()]
    #[pyo3(signature = (key, policy = None, *, cost = None, id = None, ttl = None, timeout = None, max_age = None, commit_at_end = None, remember = None, headroom = None, plan = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python")]
    fn reserve(
        this: &Bound<'_, Self>,
        key: Key,
        policy: Option<PolicyArgument>,
        cost: Option<&Bound<'_, PyAny>>,
        id: Option<&Bound<'_, PyAny>>,
        ttl: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
        max_age: Option<&Bound<'_, PyAny>>,
        commit_at_end: Option<&Bound<'_, PyAny>>,
        remember: Option<&Bound<'_, PyAny>>,
        headroom: Option<&Bound<'_, PyAny>>,
        plan: Option<Plan>,
    ) -> PyResult<Py<PyAny>> {
        let request = OwnedRequest::new(key, policy, plan).with_cost(cost)?.with_headroom(headroom)?;
        let arguments = ReserveArguments { request, id, ttl, timeout, max_age, commit_at_end, remember };
        let (call, _) = Reserving::call(this.py(), Reserver::Blocking(this.clone().unbind()), arguments)?;
        Self::make(this, call)
    }

    /// The operations for operators: keys of the store, explanations, the policy document, lists.
    fn admin(&self) -> PyAdmin {
        PyAdmin::from_core(self.core())
    }

    /// The same limiter as an ``AsyncLimiter``.
    #[getter]
    fn asynchronous(&self) -> PyAsyncLimiter {
        PyAsyncLimiter::from_core(self.core().clone())
    }

    /// Closes the limiter and its connections; later operations raise ``ClosedError``. Closing it again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        limiter_classes::close(py, self.core())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

#[pymethods]
impl PyAsyncLimiter {
    /// Decides as a check does and, when every quota admits the request, sets its cost aside until the handle is
    /// committed, cancelled or forgotten, or until its ttl has passed without a renewal. Nothing is spent before the commit.
    ///
    /// ``async with limiter.reserve("tenant:7", cost=4000) as reservation:`` ends it in every case; without a scope,
    /// ``reservation = await limiter.reserve(...)``. The handle of a denied request is false and raises nothing.
    #[doc = reserve_doc!()]
    #[pyo3(signature = (key, policy = None, *, cost = None, id = None, ttl = None, timeout = None, max_age = None, commit_at_end = None, remember = None, headroom = None, plan = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python")]
    fn reserve(
        this: &Bound<'_, Self>,
        key: Key,
        policy: Option<PolicyArgument>,
        cost: Option<&Bound<'_, PyAny>>,
        id: Option<&Bound<'_, PyAny>>,
        ttl: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
        max_age: Option<&Bound<'_, PyAny>>,
        commit_at_end: Option<&Bound<'_, PyAny>>,
        remember: Option<&Bound<'_, PyAny>>,
        headroom: Option<&Bound<'_, PyAny>>,
        plan: Option<Plan>,
    ) -> PyResult<PyReserveOperation> {
        let request = OwnedRequest::new(key, policy, plan).with_cost(cost)?.with_headroom(headroom)?;
        let arguments = ReserveArguments { request, id, ttl, timeout, max_age, commit_at_end, remember };
        PyReserveOperation::new(this, arguments)
    }

    /// The operations for operators: keys of the store, explanations, the policy document, lists.
    fn admin(&self) -> PyAsyncAdmin {
        PyAsyncAdmin::from_core(self.core())
    }

    /// The same limiter as a ``Limiter``.
    #[getter]
    fn blocking(&self) -> PyLimiter {
        PyLimiter::from_core(self.core().clone())
    }

    /// Closes the limiter and its connections at once; later operations raise ``ClosedError``. Closing it again does nothing. The
    /// result may be awaited and need not be.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        limiter_classes::close(py, self.core())?;
        operation_type::create(py, State::Ready(py.None()))
    }

    fn __aenter__(this: Py<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        operation_type::create(py, State::Ready(this.into_any()))
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        self.close(py)
    }
}
