//! The guard: how a limit handles an HTTP request, the same in every framework and language, without I/O.
//!
//! A middleware passes the facts of a request to a [`Guard`] and gets a [`GuardCheck`]. The check returns the calls that the
//! store has to decide, takes the answers and concludes with a [`Verdict`]: the request proceeds, or a response is sent
//! instead. It also returns the fields of the response and the units to refund. A middleware therefore contains no rules of its
//! own: it reads its framework's request, waits for the store, and writes the response.
//!
//! The rules:
//!
//! - **Lists.** Several policies of one guard are decided together: either all of them admit the request, or it spends nothing
//!   under any. Equal quotas are one policy, however they are written, and a list has no duplicates.
//! - **One charge.** Several guards of one request that have the same policy of the same limiter and the same key charge it
//!   once, with the highest of their costs.
//! - **Asking ahead.** A guard may have the store decide for later guards of the request in the same round trip. A later guard
//!   takes its decision when the request reaches it, and units that none has claimed by the response are refunded, so that the
//!   result is that of one call after the other.
//! - **Refunds.** A limit that admitted a request keeps its units, unless a later limit of the same request denies it or
//!   cannot decide because of the store, or `count` says that the response does not count. Where the framework may attempt
//!   a request again, the last attempt decides. Units that an outage policy admitted are not refunded: the store does not
//!   know them. Units that several guards rely on are refunded when no guard relies on them any more.
//! - **Reservations.** A policy with a quota of concurrency is reserved until the response is done, as is every policy of a
//!   guard whose program reports the units that a response has [spent](GuardCheck::end). Then those units are committed, or the
//!   cost where the program reports none; nothing, where a check would be refunded.
//! - **Outages.** `on_outage` is called for every decision without the store, and when the store could not decide at all; it
//!   may admit the request or deny it. It cannot admit a request that the store itself denied. If it does not answer, the
//!   outage policy's decision holds, and the response is 503 where the store could not decide.
//! - **Dry run.** A guard in a dry run decides, spends and reports, and never denies.
//! - **Waiting.** With a [`wait`](GuardBuilder::wait) a denied request is held until the store would admit it, if that is soon enough, and
//!   decided again; one that a leaky bucket admits is held until its turn, and denied if that comes too late.

mod asking;
mod builder;
mod by_configuration;
mod check;
mod configured_request;
mod cors;
mod ending;
mod key;
mod ledger;
mod methods;
mod settlement;
mod store_steps;
mod waiting;
mod waiting_steps;

use std::fmt;
use std::sync::Arc;

pub use builder::GuardBuilder;
pub use check::{GuardCheck, OutageReport, Verdict};
pub use key::{KeyPart, MissingKey};
pub use ledger::{RequestLimits, Spent};

use crate::http::guard::builder::{Shared, resolve};
use crate::http::guard::configured_request::{ConfiguredRequest, no_attributes};
use crate::http::headers::{HeaderField, HeaderSettings};
use crate::limiter::Limiter;
use polylimit_document::request::RequestAttributes;
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::report::{hex, sha256};
use polylimit_rules::request::Request;

/// The maximum number of lists of policies that a guard remembers, by route and by the result of its function. A further list
/// is resolved for each request.
const MAX_RESOLVED: usize = 4096;

/// The validated options of a limit. Clones are cheap and share everything.
///
/// ```
/// use polylimit::http::guard::{Guard, RequestFacts, RequestLimits, Verdict};
/// use polylimit::{Limiter, Policy};
///
/// # fn main() -> Result<(), polylimit::Error> {
/// let limiter = Limiter::builder().policy(Policy::parse("api", "1/minute")?).build()?;
/// let guard = Guard::builder(limiter).policy("api").build()?;
/// let admitted = |key: &str| {
///     let mut check = guard.start(&RequestLimits::default(), &RequestFacts::new().key(key.as_bytes()))?;
///     check.run_blocking();
///     Ok::<bool, polylimit::Error>(matches!(check.conclude(), Verdict::Admit))
/// };
/// assert!(admitted("user:42")? && !admitted("user:42")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Guard {
    shared: Arc<Shared>,
}

/// The facts that a middleware knows about a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts<'a> {
    key: Option<&'a [u8]>,
    cost: Option<u64>,
    costs: &'a [Option<u64>],
    route: Option<&'a str>,
    policies: Option<&'a [&'a str]>,
    attributes: Option<&'a RequestAttributes<'a>>,
}

impl<'a> RequestFacts<'a> {
    /// A request without a key, at the guard's cost, outside of all routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The key by which the request is counted. An empty key counts as none.
    #[must_use]
    pub fn key(mut self, key: &'a [u8]) -> Self {
        self.key = Some(key);
        self
    }

    /// The units that the request spends, where that depends on the request; up to [`Request::MAX_COST`].
    #[must_use]
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = Some(units);
        self
    }

    /// The units that the request spends under each policy, in the order of the policies, where they depend on the request. For
    /// `None`, and for policies beyond the end, the guard's [cost for that policy](GuardBuilder::costs) or the request's
    /// [cost](Self::cost) applies.
    #[must_use]
    pub fn costs(mut self, units: &'a [Option<u64>]) -> Self {
        self.costs = units;
        self
    }

    /// The framework's name of the route, which is the same in every process, such as `GET /users/{id}`. A name above 256 bytes
    /// is replaced by its SHA-256. `HEAD` at its beginning is read as `GET`, unless
    /// [`separate_head`](GuardBuilder::separate_head) is set.
    #[must_use]
    pub fn route(mut self, route: &'a str) -> Self {
        self.route = Some(route);
        self
    }

    /// The policies of this request, in place of the guard's: names of policies, or quotas as text. The texts must come from
    /// the program and never from its users, who would choose their own limits. With an empty list the request is not limited.
    #[must_use]
    pub fn policies(mut self, policies: &'a [&'a str]) -> Self {
        self.policies = Some(policies);
        self
    }
}

impl<'a> RequestFacts<'a> {
    /// The attributes of the request, for a guard that decides [by the configuration](GuardBuilder::by_configuration).
    #[must_use]
    pub fn attributes(mut self, attributes: &'a RequestAttributes<'a>) -> Self {
        self.attributes = Some(attributes);
        self
    }
}

impl Guard {
    /// The options of a guard on this limiter.
    pub fn builder(limiter: Limiter) -> GuardBuilder {
        GuardBuilder::new(limiter)
    }

    /// The limiter that decides.
    pub fn limiter(&self) -> &Limiter {
        &self.shared.limiter
    }

    /// Whether a request with this method is limited. Handlers of `GET` respond to `HEAD` too, so a limit on `GET` covers both,
    /// unless [`separate_head`](GuardBuilder::separate_head) is set.
    ///
    /// `requested_method` is the value of `access-control-request-method` in a request that also has an `origin`: with the
    /// method `OPTIONS` it is a preflight, by which a browser asks whether a page may send a request. Preflights are not
    /// limited, unless [`count_preflights`](GuardBuilder::count_preflights) is set or `OPTIONS` is one of the limit's methods.
    /// A limit that is attached to a handler passes `None`, because an `OPTIONS` request that gets there runs the handler.
    pub fn applies_to(&self, method: &str, requested_method: Option<&str>) -> bool {
        self.shared.options.methods.apply_to(method, requested_method)
    }

    /// The fields that let a page of this origin read a denial, for a denial without `access-control-allow-origin`; none
    /// without [`cors_origins`](GuardBuilder::cors_origins), and for other origins.
    pub fn cors_fields(&self, origin: Option<&str>) -> Vec<HeaderField> {
        self.shared.options.cors_origins.fields(origin, self.headers())
    }

    /// The parts of the key, in order; none if a function of the program returns the key.
    pub fn key_parts(&self) -> &[KeyPart] {
        &self.shared.options.key_parts
    }

    /// The key of a request whose parts have these values; `None` when one is missing.
    pub fn join_key<V: AsRef<[u8]>>(&self, values: &[Option<V>]) -> Option<Vec<u8>> {
        key::join(&self.shared.options.key_parts, values)
    }

    /// How a request without a key is counted. For [`MissingKey::Address`] the middleware passes the client's address as the
    /// key; for the others it passes none.
    pub fn missing_key(&self) -> MissingKey {
        self.shared.options.missing_key
    }

    /// The settings of the fields of its responses.
    pub fn headers(&self) -> &HeaderSettings {
        &self.shared.options.headers
    }

    /// The fields of a response to a request with these limits, by the clock of this guard's limiter.
    pub fn fields(&self, limits: &RequestLimits) -> Vec<HeaderField> {
        limits.fields_at(&|| self.limiter().shared().store().clock().now_us())
    }

    /// Whether it decides by the configuration of its limiter, and so needs the attributes of a request and no key.
    pub fn is_by_configuration(&self) -> bool {
        self.shared.is_by_configuration
    }

    /// Whether quotas without a name have a budget for each route, so that the guard needs the route of a request.
    pub fn is_per_route(&self) -> bool {
        self.shared.is_per_route
    }

    /// Whether responses report what was [spent](GuardBuilder::spent_by), and not the program.
    pub fn has_meters(&self) -> bool {
        self.shared.options.meters.is_some()
    }

    /// How many requests it holds at the moment; see [`wait`](GuardBuilder::wait).
    pub fn waiting(&self) -> u32 {
        self.shared.waiting.now()
    }

    /// The names of the policies of a request without a route.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        self.shared.everywhere.iter().map(Policy::name)
    }

    /// Starts the decision on a request. `limits` belong to the request and are shared by all of its guards.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the key has more than [`Request::MAX_KEY_LENGTH`] bytes or a
    /// cost is above [`Request::MAX_COST`], when one of the request's own policies is unknown or a duplicate, and when it has
    /// policies of its own but the guard has costs of single policies; [`Closed`](crate::ErrorKind::Closed) when the limiter is
    /// closed.
    pub fn start(&self, limits: &RequestLimits, facts: &RequestFacts<'_>) -> Result<GuardCheck, Error> {
        let shared = &*self.shared;
        if shared.is_by_configuration {
            let attributes = facts.attributes.ok_or_else(no_attributes)?;
            let configured = ConfiguredRequest::new(attributes, shared.options.reserve.terms()?);
            return GuardCheck::new(
                self.clone(),
                limits.clone(),
                &[],
                &|_| 0,
                &[],
                false,
                Some(Box::new(configured)),
            );
        }
        if facts.policies.is_some_and(|policies| !policies.is_empty())
            && let Some(name) = shared.options.own_of_policies()
        {
            return Err(Error::invalid_argument(format!(
                "policies is given with a request, next to {name} of single policies of the guard: leave out one of the two"
            )));
        }
        // An empty key identifies nothing.
        let is_refused =
            facts.key.is_none_or(<[u8]>::is_empty) && shared.options.missing_key == MissingKey::Refuse;
        let key = facts.key.unwrap_or_default();
        Request::new(key).cost(facts.cost.unwrap_or(shared.options.cost)).checked()?;
        facts.costs.iter().flatten().try_for_each(|cost| Request::new("").cost(*cost).checked().map(drop))?;
        let cost = |at| {
            let of_policy = facts.costs.get(at).copied().flatten().or_else(|| shared.options.own_cost(at));
            of_policy.or(facts.cost).unwrap_or(shared.options.cost)
        };
        let own;
        let policies = if is_refused {
            &[]
        } else if self.is_same_for_all(facts) {
            &*shared.everywhere
        } else {
            own = self.policies_for(facts)?;
            &*own
        };
        GuardCheck::new(self.clone(), limits.clone(), key, &cost, policies, is_refused, None)
    }

    /// Whether a request has the same policies as one without a route.
    fn is_same_for_all(&self, facts: &RequestFacts<'_>) -> bool {
        facts.policies.is_none() && (self.route_of(facts).is_none() || self.shared.everywhere.is_empty())
    }

    /// The route of a request, where policies depend on it.
    fn route_of<'a>(&self, facts: &RequestFacts<'a>) -> Option<&'a str> {
        facts.route.filter(|route| self.shared.is_per_route && !route.is_empty())
    }

    fn policies_for(&self, facts: &RequestFacts<'_>) -> Result<Arc<[Policy]>, Error> {
        let shared = &*self.shared;
        let route = self.route_of(facts);
        // A route contains no NUL, and neither does a policy.
        let mut name = String::from(route.unwrap_or_default());
        for policy in facts.policies.unwrap_or_default() {
            name.push('\0');
            name.push_str(policy);
        }
        if facts.policies.is_some_and(<[_]>::is_empty) {
            return Ok(Arc::from([]));
        }
        if let Some(known) = shared.resolved.read().get(&name).cloned() {
            known.iter().try_for_each(|policy| shared.limiter.keep_policy(policy))?;
            return Ok(known);
        }
        let scope = || route.map(|route| scope_of(&shared.options.methods.route_with_get(route)));
        let scope = shared.options.scope.clone().or_else(scope);
        let resolved = match facts.policies {
            Some(policies) => resolve(&shared.limiter, policies, &shared.options, scope.as_deref(), true)?,
            None => resolve(&shared.limiter, &shared.given, &shared.options, scope.as_deref(), true)?,
        };
        let mut known = shared.resolved.write();
        if known.len() < MAX_RESOLVED {
            known.insert(name, Arc::clone(&resolved));
        }
        Ok(resolved)
    }
}

impl GuardBuilder {
    /// Builds the guard.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when a policy is unknown or its quotas cannot be parsed, when a
    /// list is empty or has a duplicate, when none is given and the limiter does not have exactly one, when the scope of quotas
    /// is not 1 to 256 bytes, when a cost is above [`Request::MAX_COST`] or more than its policy can ever admit, when there are
    /// more costs than policies, when a field's name is not allowed, when the status is not 400 to 599, and when
    /// [`wait`](Self::wait) or [`max_waiting`](Self::max_waiting) is out of range; [`Closed`](crate::ErrorKind::Closed) when the limiter is
    /// closed.
    pub fn build(self) -> Result<Guard, Error> {
        Ok(Guard { shared: Arc::new(self.checked()?) })
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("policies", &self.policies().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The scope of a route: its name, or the SHA-256 of a name that is too long for a scope.
fn scope_of(route: &str) -> String {
    if route.len() <= Policy::MAX_SCOPE_LENGTH {
        return route.to_owned();
    }
    hex(&sha256(route.as_bytes()))
}

#[cfg(test)]
mod tests;
