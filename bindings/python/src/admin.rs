//! The classes `Admin` and `AsyncAdmin`: the operations for operators. Those on the configuration are in `configured.rs`, the
//! reports in `reports.rs`.

use std::time::Duration;

use polylimit::Limiter;
use pyo3::prelude::*;

use crate::call::OwnedCall;
use crate::convert::{Key, Utf8Text, read_duration};
use crate::error::call_core;
use crate::limiter_classes::{self, PyLimiter};
use crate::operation::State;
use crate::operation_type;
use crate::request::{OwnedRequest, Plan, PolicyArgument};

/// The operations for operators, by ``Limiter.admin``: keys of the store, explanations, the policy document, lists.
#[pyclass(name = "Admin", module = "polylimit", frozen, weakref)]
pub(crate) struct PyAdmin(PyLimiter);

impl PyAdmin {
    pub(crate) fn from_core(limiter: &Limiter) -> Self {
        Self(PyLimiter::from_core(limiter.clone()))
    }

    pub(crate) fn core(&self) -> &Limiter {
        self.0.core()
    }

    pub(crate) fn make(this: &Bound<'_, Self>, call: OwnedCall) -> PyResult<Py<PyAny>> {
        this.get().0.call(this.py(), &call)
    }
}

/// The operations for operators, by ``AsyncLimiter.admin``: keys of the store, explanations, the policy document, lists.
#[pyclass(name = "AsyncAdmin", module = "polylimit", frozen, weakref)]
pub(crate) struct PyAsyncAdmin(Limiter);

impl PyAsyncAdmin {
    pub(crate) fn from_core(limiter: &Limiter) -> Self {
        Self(limiter.clone())
    }

    pub(crate) fn core(&self) -> &Limiter {
        &self.0
    }

    pub(crate) fn make(this: &Bound<'_, Self>, call: OwnedCall) -> PyResult<Py<PyAny>> {
        operation_type::create(this.py(), State::NotStarted(this.get().core().clone(), Box::new(call)))
    }
}

/// Writes the methods, which are the same in both classes.
macro_rules! admin_methods {
    ($class:ident, $name:literal) => {
        #[pymethods]
        impl $class {
            /// Denies every check, peek and reserve of the key for a time from now, unless it is blocked for longer already. A take takes
            /// nothing meanwhile; all other operations go on.
            ///
            /// Parameters
            /// ----------
            /// key
            ///     The client or resource that is blocked: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
            /// policy
            ///     A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
            /// time
            ///     Seconds or a ``timedelta``, from 1 ms to 366 days. 0 ends the block, as ``unblock`` does.
            /// plan
            ///     The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When the key, the policy or the time is not valid.
            /// ClosedError
            ///     When the limiter was closed.
            #[pyo3(signature = (key, policy = None, *, time, plan = None))]
            fn block(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                time: &Bound<'_, PyAny>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                let time = read_duration("time", time)?;
                Self::make(this, OwnedCall::Block(OwnedRequest::new(key, policy, plan), time))
            }

            /// Ends the key's block at once, and forgets the denials and blocks that a penalty has counted.
            #[pyo3(signature = (key, policy = None, *, plan = None))]
            fn unblock(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                Self::make(this, OwnedCall::Block(OwnedRequest::new(key, policy, plan), Duration::ZERO))
            }

            /// Examines the store for problems of operation: version, memory policy, rights, latency and clock.
            fn doctor(this: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
                Self::make(this, OwnedCall::Doctor)
            }

            /// How many keys have a state in the memory store or the local store; ``None`` for Redis.
            fn keys(&self) -> Option<usize> {
                self.core().admin().keys()
            }

            /// Changes the password, and the user name if given, with which new connections authenticate.
            #[pyo3(signature = (password, *, username = None))]
            fn set_credentials(
                &self,
                py: Python<'_>,
                password: &Bound<'_, PyAny>,
                username: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<()> {
                set_credentials(py, self.core(), password, username)
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

admin_methods!(PyAdmin, "Admin");
admin_methods!(PyAsyncAdmin, "AsyncAdmin");

fn set_credentials(
    py: Python<'_>,
    limiter: &Limiter,
    password: &Bound<'_, PyAny>,
    username: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let password = Utf8Text::read(password, "password")?;
    let username = username.map(|username| Utf8Text::read(username, "username")).transpose()?;
    call_core(py, || limiter.admin().set_credentials(username.as_deref(), &password))
}
