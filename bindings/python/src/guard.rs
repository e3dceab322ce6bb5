//! The core's guard for the web integrations: what a limit does with a request.
//!
//! An integration reads the request of its framework and calls [`PyGuard::enter`] or [`PyGuard::start`]. A request that the
//! store admits at once needs no other call before its response; any other gets a [`PyGuardCheck`], which the Python
//! code takes through the remaining steps (`guard_check.rs`). `request_limits.rs` has what a request's guards share.

use std::borrow::Cow;
use std::sync::Arc;

use polylimit::Limiter;
use polylimit::http::ClientAddressRules;
use polylimit::http::guard::{Guard, RequestFacts, Verdict};
use polylimit::http::headers::HeaderSettings;
use pyo3::prelude::*;

use crate::configuration::{OwnedAttributes, PyRequestAttributes};
use crate::convert::{
    Key, Utf8Text, read_bool, read_cost, read_duration, read_integer, read_items, read_object, read_units,
    wrong_type,
};
use crate::error::{call_core, call_core_with};
use crate::events;
use crate::guard_check::{CheckStart, PyGuardCheck};
use crate::http::PyClientAddressRules;
use crate::limiter_classes::{PyAsyncLimiter, PyLimiter};
use crate::request::PolicyArgument;
use crate::request_limits::{GuardParts, PyRequestLimits, SpentFunctions};
use crate::response_sender::ResponseSender;

/// The address of the peer of a Unix socket.
const LOCAL_HOST: &str = "127.0.0.1";

/// The options of a limit that the core knows.
#[pyclass(name = "CoreGuard", module = "polylimit._core", frozen)]
pub(crate) struct PyGuard {
    parts: Arc<GuardParts>,
    /// How errors name the costs of the policies, by position.
    cost_names: Vec<String>,
    address_rules: ClientAddressRules,
}

#[pymethods]
impl PyGuard {
    #[new]
    #[pyo3(signature = (
        limiter, policies, *, by_configuration, per_request, scope, per_route, key_parts, missing_key, cost, costs, methods, headers,
        status, message, dry_run, client_address, count, spent, spent_each, spent_by, spent_by_each, ttl, max_age,
        separate_head, count_preflights, cors_origins, wait, max_waiting
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is an option of a limit")]
    fn new(
        py: Python<'_>,
        limiter: &Bound<'_, PyAny>,
        policies: Option<Vec<PolicyArgument>>,
        by_configuration: bool,
        per_request: bool,
        scope: Option<&Bound<'_, PyAny>>,
        per_route: bool,
        key_parts: &Bound<'_, PyAny>,
        missing_key: &Bound<'_, PyAny>,
        cost: &Bound<'_, PyAny>,
        costs: Vec<Option<Bound<'_, PyAny>>>,
        methods: &Bound<'_, PyAny>,
        headers: &Bound<'_, PyAny>,
        status: Option<&Bound<'_, PyAny>>,
        message: Option<&Bound<'_, PyAny>>,
        dry_run: &Bound<'_, PyAny>,
        client_address: &Bound<'_, PyAny>,
        count: Option<Py<PyAny>>,
        spent: Option<Py<PyAny>>,
        spent_each: Vec<Option<Py<PyAny>>>,
        spent_by: Option<String>,
        spent_by_each: Vec<Option<String>>,
        ttl: Option<&Bound<'_, PyAny>>,
        max_age: Option<&Bound<'_, PyAny>>,
        separate_head: &Bound<'_, PyAny>,
        count_preflights: &Bound<'_, PyAny>,
        cors_origins: &Bound<'_, PyAny>,
        wait: Option<&Bound<'_, PyAny>>,
        max_waiting: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let limiter = core_limiter(limiter)?;
        let cost_names = argument_names("cost", policies.as_deref());
        let spent_names = argument_names("spent", policies.as_deref());
        let cost = read_cost(cost)?;
        let costs = read_costs(&cost_names, &costs)?;
        let client_address = read_object::<PyClientAddressRules>("client_address", client_address)?;
        let key_parts = read_texts("key", key_parts)?;
        let methods = read_texts("methods", methods)?;
        let cors_origins = read_texts("cors_origins", cors_origins)?;
        let missing_key = Utf8Text::read(missing_key, "missing_key")?;
        let headers = Utf8Text::read(headers, "headers")?;
        let message = message.map(|message| Utf8Text::read(message, "message")).transpose()?;
        let dry_run = read_bool("dry_run", dry_run)?;
        let separate_head = read_bool("separate_head", separate_head)?;
        let count_preflights = read_bool("count_preflights", count_preflights)?;
        let written = [("ttl", ttl), ("max_age", max_age), ("wait", wait)];
        let scope = scope.map(|scope| Utf8Text::read(scope, "scope")).transpose()?;
        let status = status.map(|status| read_integer("status", status)).transpose()?;
        let ttl = ttl.map(|ttl| read_duration("ttl", ttl)).transpose()?;
        let max_age = max_age.map(|max_age| read_duration("max_age", max_age)).transpose()?;
        let wait = wait.map(|wait| read_duration("wait", wait)).transpose()?;
        let max_waiting = max_waiting.map(|most| read_integer("max_waiting", most)).transpose()?;
        let guard = call_core_with(py, &written, || {
            let mut builder = Guard::builder(limiter)
                .per_request(per_request)
                .per_route(per_route)
                .missing_key(missing_key.parse()?)
                .cost(cost)
                .costs(costs)
                .headers(headers.parse::<HeaderSettings>()?)
                .dry_run(dry_run)
                .separate_head(separate_head)
                .count_preflights(count_preflights)
                .cors_origins(cors_origins.iter().map(|origin| origin.to_string()))
                // A configuration says itself what is reserved.
                .reserved(spent.is_some() && !by_configuration)
                .reserved_each(spent_each.iter().map(Option::is_some));
            if by_configuration {
                builder = builder.by_configuration();
            }
            if !spent_by_each.is_empty() {
                builder = builder.spent_by_each(spent_by_each);
            } else if let Some(meter) = spent_by {
                builder = builder.spent_by(meter);
            }
            if let Some(ttl) = ttl {
                builder = builder.ttl(ttl);
            }
            if let Some(max_age) = max_age {
                builder = builder.max_age(max_age);
            }
            if let Some(wait) = wait {
                builder = builder.wait(wait);
            }
            if let Some(most) = max_waiting {
                builder = builder.max_waiting(most);
            }
            if let Some(policies) = &policies {
                builder = builder.policies(policies.iter().map(PolicyArgument::as_str));
            }
            if let Some(scope) = scope {
                builder = builder.scope(&*scope);
            }
            for part in key_parts {
                builder = builder.key_part(part.parse()?);
            }
            if let Some(status) = status {
                builder = builder.status(status);
            }
            if let Some(message) = message {
                builder = builder.message(&*message);
            }
            methods.iter().fold(builder, |builder, method| builder.method(&**method)).build()
        })?;
        let address_rules = client_address.get().rules().clone();
        let spent = if spent_each.is_empty() {
            SpentFunctions::ForAll(spent)
        } else {
            SpentFunctions::Each(spent_names.into_iter().zip(spent_each).collect())
        };
        Ok(Self { parts: Arc::new(GuardParts::new(guard, count, spent)), cost_names, address_rules })
    }

    /// Whether a request with this method is limited. ``requested_method`` is the header ``access-control-request-method`` of a
    /// request with an ``origin``, where the limit is not attached to a handler.
    #[pyo3(signature = (method, requested_method = None))]
    fn applies_to(&self, method: &str, requested_method: Option<&str>) -> bool {
        self.parts.guard.applies_to(method, requested_method)
    }

    /// The fields by which a page of this origin may read a denial.
    fn cors_fields(&self, origin: Option<&str>) -> Vec<(Cow<'static, str>, String)> {
        self.parts.guard.cors_fields(origin).into_iter().map(|field| (field.name, field.value)).collect()
    }

    /// The parts of the key, each with its kind and its name.
    #[getter]
    fn key_parts(&self) -> Vec<(&'static str, &str)> {
        self.parts.guard.key_parts().iter().map(|part| (part.kind(), part.name())).collect()
    }

    /// Whether the guard needs the route of a request.
    #[getter]
    fn is_per_route(&self) -> bool {
        self.parts.guard.is_per_route()
    }

    /// The key of a request whose parts have these values; ``None`` when one is missing.
    fn join_key(&self, values: Vec<Option<Key>>) -> Option<Vec<u8>> {
        let values: Vec<_> = values.iter().map(|value| value.as_ref().map(Key::as_bytes)).collect();
        self.parts.guard.join_key(&values)
    }

    /// Starts the first decision on a request by the address of its peer; ``None`` is a Unix socket. Returns the request's
    /// limits, and the check unless the request is admitted.
    fn enter(&self, py: Python<'_>, peer: Option<&str>) -> PyResult<(PyRequestLimits, Option<PyGuardCheck>)> {
        let peer = peer.filter(|peer| !peer.is_empty()).unwrap_or(LOCAL_HOST);
        let key = call_core(py, || Ok(self.address_rules.key_of(peer, [])))?;
        let limits = PyRequestLimits::made_by(&self.parts);
        let check = self.run(py, &limits, &RequestFacts::new().key(key.as_bytes()), None)?;
        Ok((limits, check))
    }

    /// The same for an ASGI application, with the :class:`ResponseSender` of the limits, ``scope``, ``send``, ``start`` and ``end``.
    fn enter_asgi(
        &self,
        py: Python<'_>,
        peer: Option<&str>,
        scope: Py<PyAny>,
        send: Py<PyAny>,
        start: Py<PyAny>,
        end: Py<PyAny>,
    ) -> PyResult<(Py<PyRequestLimits>, ResponseSender, Option<PyGuardCheck>)> {
        let (limits, check) = self.enter(py, peer)?;
        let limits = Py::new(py, limits)?;
        let sender = ResponseSender::new(limits.clone_ref(py), scope, send, start, end);
        Ok((limits, sender, check))
    }

    /// Starts a decision on a request that may have passed other guards. ``costs`` are those of the policies that have one of their own,
    /// by position. Returns the check unless the request is admitted.
    #[pyo3(signature = (limits, key, *, cost = None, costs = None, route = None, policies = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a fact of the request")]
    fn start(
        &self,
        py: Python<'_>,
        limits: &PyRequestLimits,
        key: Option<Key>,
        cost: Option<&Bound<'_, PyAny>>,
        costs: Option<Vec<Option<Bound<'_, PyAny>>>>,
        route: Option<&str>,
        policies: Option<Vec<PolicyArgument>>,
    ) -> PyResult<Option<PyGuardCheck>> {
        let policies: Option<Vec<_>> =
            policies.as_ref().map(|policies| policies.iter().map(PolicyArgument::as_str).collect());
        let costs = costs.map_or(Ok(Vec::new()), |costs| read_costs(&self.cost_names, &costs))?;
        let mut facts = RequestFacts::new().costs(&costs);
        if let Some(key) = &key {
            facts = facts.key(key.as_bytes());
        }
        if let Some(cost) = cost {
            facts = facts.cost(read_cost(cost)?);
        }
        if let Some(route) = route {
            facts = facts.route(route);
        }
        if let Some(policies) = &policies {
            facts = facts.policies(policies);
        }
        self.run(py, limits, &facts, None)
    }

    /// The same for a guard that decides by the configuration of its limiter.
    fn start_by_configuration(
        &self,
        py: Python<'_>,
        limits: &PyRequestLimits,
        attributes: &PyRequestAttributes,
    ) -> PyResult<Option<PyGuardCheck>> {
        let attributes = attributes.shared();
        let request = attributes.as_core();
        self.run(py, limits, &RequestFacts::new().attributes(&request), Some(&attributes))
    }

    /// Lets the store decide for this guard in the call of a guard that the request meets earlier.
    fn ask_ahead(&self, earlier: &PyGuardCheck, key: Option<Key>, route: Option<&str>) {
        let mut facts = RequestFacts::new();
        if let Some(key) = &key {
            facts = facts.key(key.as_bytes());
        }
        if let Some(route) = route {
            facts = facts.route(route);
        }
        earlier.ask_ahead(&self.parts.guard, &facts);
    }
}

impl PyGuard {
    /// Decides if that needs no waiting.
    fn run(
        &self,
        py: Python<'_>,
        limits: &PyRequestLimits,
        facts: &RequestFacts<'_>,
        attributes: Option<&Arc<OwnedAttributes>>,
    ) -> PyResult<Option<PyGuardCheck>> {
        let (check, start) = call_core(py, || {
            let mut check = self.parts.guard.start(limits.core(), facts)?;
            let start = if !check.try_run() {
                CheckStart::Asking
            } else if check.outage().is_some() {
                CheckStart::Answered
            } else {
                match check.conclude() {
                    Verdict::Admit => CheckStart::Admitted,
                    Verdict::Deny(problem) => CheckStart::Denied(problem),
                    Verdict::Fail(error) => return Err(error),
                }
            };
            Ok((check, start))
        })?;
        events::deliver_pending();
        let has_calls = || check.next_call(|_, _| ()).is_some();
        if matches!(start, CheckStart::Admitted) && !has_calls() {
            limits.admit(&self.parts, check);
            return Ok(None);
        }
        Ok(Some(PyGuardCheck::new(&self.parts, check, attributes.cloned(), start)))
    }
}

/// How errors name what an argument has for each policy.
fn argument_names(argument: &str, policies: Option<&[PolicyArgument]>) -> Vec<String> {
    let policies = policies.unwrap_or_default().iter();
    policies.map(|policy| format!("{argument}[\"{}\"]", policy.as_str())).collect()
}

/// Reads the costs of policies by their position.
fn read_costs(names: &[String], costs: &[Option<Bound<'_, PyAny>>]) -> PyResult<Vec<Option<u64>>> {
    let read = |(name, cost): (&String, &Option<Bound<'_, PyAny>>)| {
        cost.as_ref().map(|cost| read_units(name, cost)).transpose()
    };
    names.iter().zip(costs).map(read).collect()
}

/// Reads the argument `name`, texts.
fn read_texts(name: &str, texts: &Bound<'_, PyAny>) -> PyResult<Vec<Utf8Text>> {
    read_items(name, texts, "a list of str", |text| Utf8Text::read(&text, &format!("an item of {name}")))
}

fn core_limiter(limiter: &Bound<'_, PyAny>) -> PyResult<Limiter> {
    if let Ok(limiter) = limiter.cast::<PyAsyncLimiter>() {
        return Ok(limiter.get().core().clone());
    }
    match limiter.cast::<PyLimiter>() {
        Ok(limiter) => Ok(limiter.get().core().clone()),
        Err(_) => Err(wrong_type(
            "limiter",
            limiter,
            "allowed is a Limiter or an AsyncLimiter, which decides inside of the module: for a test take one in memory, such \
             as one with a ManualClock, and deny by its block or by the quotas 0/minute",
        )),
    }
}
