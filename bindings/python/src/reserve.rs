//! The operations on reservations, which both limiter classes share: their arguments, and the handle that a reserve returns.

use std::sync::Arc;

use parking_lot::Mutex;
use polylimit::raw::{Answer, ReservationTerms};
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::{Error, ErrorKind, Limiter};
use pyo3::prelude::*;

use crate::call::{OwnedCall, Recipient};
use crate::convert::{Utf8Text, read_bool, read_duration};
use crate::decision::PyDecision;
use crate::error::{call_core, call_core_with, exception};
use crate::limiter_classes::{PyAsyncLimiter, PyLimiter};
use crate::request::{OwnedRequest, read_requests};
use crate::request_reservation::PyRequestReservation;
use crate::reservation::{PyAsyncReservation, PyReservation, ReservationParts, read_spent};

/// The documentation of `reserve` in both classes, after its first paragraph.
macro_rules! reserve_doc {
    () => {
        r#"
Parameters
----------
key
    The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
policy
    A policy's name, or quotas such as ``"20 concurrent; 100000/minute"``; it may be left out where the limiter has one policy.
cost
    Units that are set aside, from 0 to 10**12; the default is 1.
id
    1 to 64 bytes of text; random by default. A caller that has received no answer repeats the operation with the same id.
ttl
    How long the reservation lasts after its last renewal, in seconds or as a ``timedelta``: 1 ms to 48 h; the default is 30 s.
    So long its units stay set aside when this process is killed.
timeout
    How long to wait in line, as in ``acquire``, until the request is admitted; by default it is denied at once.
max_age
    How long the reservation is renewed in the background, every third of its ttl; the default is one hour, and 0 never renews.
commit_at_end
    Whether a scope that is left without an error, and a handle that is forgotten, commit what was reserved in place of
    cancelling it.
remember
    How long after its commit the id is remembered, in seconds or as a ``timedelta``: 1 ms to 48 h; by default it is not. Meanwhile
    nothing more is charged for the id under this key and policy: a commit that is repeated is reported as ``repeated``, and a
    ``reserve``, of a job that runs again, asks for a slot only. A key remembers its 1,000 latest commits.
headroom
    The part of each quota's units and slots that the request leaves for others, in percent from 0 to 99; the default is 0.
plan
    The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

Raises
------
InvalidArgumentError
    When an argument is not valid, a quota of the policy is a leaky bucket, or the policy is leased.
ClosedError
    When the limiter was closed."#
    };
}

pub(crate) use reserve_doc;

/// The arguments of `reserve`.
pub(crate) struct ReserveArguments<'a, 'py> {
    pub(crate) request: OwnedRequest,
    pub(crate) id: Option<&'a Bound<'py, PyAny>>,
    pub(crate) ttl: Option<&'a Bound<'py, PyAny>>,
    pub(crate) timeout: Option<&'a Bound<'py, PyAny>>,
    pub(crate) max_age: Option<&'a Bound<'py, PyAny>>,
    pub(crate) commit_at_end: Option<&'a Bound<'py, PyAny>>,
    pub(crate) remember: Option<&'a Bound<'py, PyAny>>,
}

/// The class of the limiter that reserves.
pub(crate) enum Reserver {
    Blocking(Py<PyLimiter>),
    Asynchronous(Py<PyAsyncLimiter>),
}

impl Reserver {
    fn core(&self) -> &Limiter {
        match self {
            Self::Blocking(limiter) => limiter.get().core(),
            Self::Asynchronous(limiter) => limiter.get().core(),
        }
    }
}

/// A reserve that waits for its decision and makes the handle of it.
pub(crate) struct Reserving {
    reserver: Reserver,
    request: Arc<OwnedRequest>,
    terms: ReservationTerms,
    options: ReserveOptions,
    scope: Mutex<Scope>,
}

/// What an `async with` keeps of its reservation.
enum Scope {
    /// There is none.
    No,
    Entered,
    Holds(Py<PyAsyncReservation>),
}

impl Reserving {
    /// The call that reserves, and what takes its answer.
    pub(crate) fn call(
        py: Python<'_>,
        reserver: Reserver,
        arguments: ReserveArguments<'_, '_>,
    ) -> PyResult<(OwnedCall, Arc<Self>)> {
        let ReserveArguments { request, id, ttl, timeout, max_age, commit_at_end, remember } = arguments;
        let mut options = ReserveOptions::default();
        if let Some(id) = id {
            options = options.id(read_id(id)?);
        }
        if let Some(ttl) = ttl {
            options = options.ttl(read_duration("ttl", ttl)?);
        }
        if let Some(timeout) = timeout {
            options = options.timeout(read_duration("timeout", timeout)?);
        }
        if let Some(max_age) = max_age {
            options = options.max_age(read_duration("max_age", max_age)?);
        }
        if let Some(commit_at_end) = commit_at_end {
            options = options.commit_at_end(read_bool("commit_at_end", commit_at_end)?);
        }
        if let Some(remember) = remember {
            options = options.remember(read_duration("remember", remember)?);
        }
        let request = Arc::new(request);
        let written = [("ttl", ttl), ("timeout", timeout), ("max_age", max_age), ("remember", remember)];
        let terms = call_core_with(py, &written, || options.terms())?;
        let call = OwnedCall::Reserve(Arc::clone(&request), terms);
        let this = Arc::new(Self { reserver, request, terms, options, scope: Mutex::new(Scope::No) });
        let recipient = Arc::clone(&this) as Arc<dyn Recipient>;
        Ok((OwnedCall::For(Box::new(call), recipient), this))
    }

    /// An `async with` was entered, which ends the reservation.
    pub(crate) fn enter_scope(&self) {
        *self.scope.lock() = Scope::Entered;
    }

    /// The reservation of the `async with`, if it was made.
    pub(crate) fn leave_scope(&self) -> Option<Py<PyAsyncReservation>> {
        match std::mem::replace(&mut *self.scope.lock(), Scope::No) {
            Scope::Holds(reservation) => Some(reservation),
            Scope::No | Scope::Entered => None,
        }
    }
}

impl Recipient for Reserving {
    fn receive(&self, py: Python<'_>, answer: Result<Answer, Error>) -> PyResult<Py<PyAny>> {
        let Answer::Decision(decision) = call_core(py, || answer)? else {
            return Err(exception(py, ErrorKind::Internal, "a reserve got no decision"));
        };
        let shown = Py::new(py, PyDecision(decision.clone()))?;
        let request = self.request.as_core();
        let adopt = || self.reserver.core().adopt(request, &self.terms, self.options, decision);
        let parts = ReservationParts::new(call_core(py, adopt)?, shown);
        match &self.reserver {
            Reserver::Blocking(limiter) => {
                let limiter = limiter.clone_ref(py);
                Ok(Py::new(py, PyReservation { limiter, parts })?.into_any())
            }
            Reserver::Asynchronous(limiter) => {
                let limiter = limiter.clone_ref(py);
                let reservation = Py::new(py, PyAsyncReservation { limiter, parts })?;
                let mut scope = self.scope.lock();
                if matches!(*scope, Scope::Entered) {
                    *scope = Scope::Holds(reservation.clone_ref(py));
                }
                Ok(reservation.into_any())
            }
        }
    }
}

/// The reservations of a request over several policies: their id.
struct ReservingTogether {
    id: ReservationId,
}

impl Recipient for ReservingTogether {
    fn receive(&self, py: Python<'_>, answer: Result<Answer, Error>) -> PyResult<Py<PyAny>> {
        let Answer::Decisions(decisions) = call_core(py, || answer)? else {
            return Err(exception(py, ErrorKind::Internal, "a reserve got no decisions"));
        };
        let decisions = call_core(py, || decisions.into_iter().collect())?;
        Ok(Py::new(py, PyRequestReservation::new(self.id, decisions))?.into_any())
    }
}

/// The call that reserves for a request over several policies.
pub(crate) fn reserve_together_call(
    requests: &Bound<'_, PyAny>,
    id: Option<&Bound<'_, PyAny>>,
    ttl: Option<&Bound<'_, PyAny>>,
    remember: Option<&Bound<'_, PyAny>>,
) -> PyResult<OwnedCall> {
    let terms = read_terms(requests.py(), id, ttl, remember)?;
    let call = OwnedCall::ReserveTogether(read_requests(requests)?, terms);
    Ok(OwnedCall::For(Box::new(call), Arc::new(ReservingTogether { id: terms.id })))
}

/// Reads the terms of reservations that have no handle.
pub(crate) fn read_terms(
    py: Python<'_>,
    id: Option<&Bound<'_, PyAny>>,
    ttl: Option<&Bound<'_, PyAny>>,
    remember: Option<&Bound<'_, PyAny>>,
) -> PyResult<ReservationTerms> {
    let mut options = ReserveOptions::default();
    if let Some(id) = id {
        options = options.id(read_id(id)?);
    }
    if let Some(ttl) = ttl {
        options = options.ttl(read_duration("ttl", ttl)?);
    }
    if let Some(remember) = remember {
        options = options.remember(read_duration("remember", remember)?);
    }
    call_core_with(py, &[("ttl", ttl), ("remember", remember)], || options.terms())
}

/// The call that commits by id.
pub(crate) fn commit_call(
    request: OwnedRequest,
    id: &Bound<'_, PyAny>,
    spent: Option<&Bound<'_, PyAny>>,
) -> PyResult<OwnedCall> {
    Ok(OwnedCall::Commit(request, read_id(id)?, read_spent(spent)?))
}

/// The call that cancels by id.
pub(crate) fn cancel_call(request: OwnedRequest, id: &Bound<'_, PyAny>) -> PyResult<OwnedCall> {
    Ok(OwnedCall::Cancel(request, read_id(id)?))
}

/// The call that renews by id.
pub(crate) fn renew_call(
    request: OwnedRequest,
    id: &Bound<'_, PyAny>,
    ttl: &Bound<'_, PyAny>,
) -> PyResult<OwnedCall> {
    Ok(OwnedCall::Renew(request, read_id(id)?, read_duration("ttl", ttl)?))
}

fn read_id(id: &Bound<'_, PyAny>) -> PyResult<ReservationId> {
    let text = Utf8Text::read(id, "id")?;
    call_core(id.py(), || ReservationId::new(&*text))
}
