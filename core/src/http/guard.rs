//! The guard: what a limit does with an HTTP request, the same in every framework and language, without I/O.
//!
//! A middleware gives a [`Guard`] the facts of a request and gets a [`GuardCheck`]. The check says what the store has to
//! decide; it takes the store's answer and concludes with a [`Verdict`]: the request proceeds, or this response is sent. It
//! also says which fields the response has and which units are refunded. A middleware therefore contains no rule of its own:
//! it reads its framework's request, waits for the store, and writes the response.
//!
//! The rules, each stated once:
//!
//! - **Lists.** Several policies of one guard are decided together: all of them admit the request, or it spends nothing under
//!   any. Equal quotas are one policy, however they are written, and a list has each policy once.
//! - **One charge.** Several guards of one request that have the same policy of the same limiter and the same key charge it
//!   once, with the highest of their costs.
//! - **Refunds.** A limit that admitted a request keeps its units, unless a later limit of the same request denies it or
//!   cannot decide because of the store, or `count` says that the response does not count. Units that an outage policy
//!   admitted are not refunded: the store does not know them. Units that several guards rely on are refunded when no guard
//!   relies on them any more.
//! - **Outages.** `on_outage` hears of every decision that was made without the store, and of a store that could not decide
//!   at all; it may admit the request or deny it. It cannot admit what the store itself denied. Without its answer the
//!   outage policy's decision holds, and a store that could not decide is answered by 503.
//! - **Dry run.** A guard in a dry run decides, spends and reports, and never denies.

mod check;
mod key;
mod ledger;

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::RwLock;
use sha2::{Digest, Sha256};

pub use check::{GuardCheck, OutageReport, Verdict};
pub use key::{KeyPart, MissingKey};
pub use ledger::RequestLimits;

use crate::error::{Error, excerpt};
use crate::http::headers::{HeaderField, HeaderSettings, HeaderStyle, ResetForm};
use crate::limiter::Limiter;
use crate::rules::policy::Policy;
use crate::rules::request::Request;

/// How many lists of policies a guard remembers by route and by what its function returned. A list beyond that is resolved
/// for each request.
const MAX_RESOLVED: usize = 4096;

/// The options of a limit, validated. Clones are cheap and share everything.
///
/// ```
/// use polylimit::guard::{Guard, RequestFacts, RequestLimits, Verdict};
/// use polylimit::{Limiter, Policy};
///
/// # fn main() -> Result<(), polylimit::Error> {
/// let limiter = Limiter::builder().policy(Policy::parse("api", "1/minute")?).build()?;
/// let guard = Guard::builder(limiter).policy("api").build()?;
/// let admitted = |key: &str| {
///     let mut check = guard.start(&RequestLimits::default(), &RequestFacts::new().key(key.as_bytes()))?;
///     check.ask_blocking();
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

struct Shared {
    limiter: Limiter,
    /// The policies as they were given; empty for the only policy of the limiter.
    given: Vec<String>,
    scope: Option<String>,
    /// The policies of a request without a route.
    everywhere: Arc<[Policy]>,
    /// Whether quotas without a name have a budget for each route.
    is_per_route: bool,
    /// The policies by route and by the list that a function returned.
    resolved: RwLock<HashMap<String, Arc<[Policy]>>>,
    key_parts: Vec<KeyPart>,
    missing_key: MissingKey,
    cost: u64,
    methods: Vec<String>,
    headers: HeaderSettings,
    status: Option<u16>,
    message: Option<String>,
    is_dry_run: bool,
}

/// What a middleware knows about a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts<'a> {
    key: Option<&'a [u8]>,
    cost: Option<u64>,
    route: Option<&'a str>,
    policies: Option<&'a [&'a str]>,
}

impl<'a> RequestFacts<'a> {
    /// A request without a key, at the guard's cost, outside of all routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The key that the request counts by.
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

    /// The framework's name of the route, which is the same in every process. A name above 256 bytes is replaced by its
    /// SHA-256.
    #[must_use]
    pub fn route(mut self, route: &'a str) -> Self {
        self.route = Some(route);
        self
    }

    /// The policies of this request, in place of the guard's: names of policies, or quotas as text. The texts must come from
    /// the program and never from its users, because a limiter keeps each of them. With none the request is not limited.
    #[must_use]
    pub fn policies(mut self, policies: &'a [&'a str]) -> Self {
        self.policies = Some(policies);
        self
    }
}

impl Guard {
    /// The options of a guard on this limiter.
    pub fn builder(limiter: Limiter) -> GuardBuilder {
        GuardBuilder {
            limiter,
            given: None,
            is_per_request: false,
            scope: None,
            is_per_route: false,
            key_parts: Vec::new(),
            missing_key: MissingKey::Address,
            cost: 1,
            methods: Vec::new(),
            headers: HeaderSettings::default(),
            header_names: Vec::new(),
            status: None,
            message: None,
            is_dry_run: false,
        }
    }

    /// The limiter that decides.
    pub fn limiter(&self) -> &Limiter {
        &self.shared.limiter
    }

    /// Whether requests of this method are limited.
    pub fn applies_to(&self, method: &str) -> bool {
        let methods = &self.shared.methods;
        methods.is_empty() || methods.iter().any(|one| one.eq_ignore_ascii_case(method))
    }

    /// The parts of the key, in order; none where a function of the program finds the key.
    pub fn key_parts(&self) -> &[KeyPart] {
        &self.shared.key_parts
    }

    /// The key of a request whose parts have these values; `None` when one is missing.
    pub fn join_key<V: AsRef<[u8]>>(&self, values: &[Option<V>]) -> Option<Vec<u8>> {
        key::join(&self.shared.key_parts, values)
    }

    /// How a request without a key is counted. For [`MissingKey::Address`] the middleware gives the client's address as
    /// the key; for the others it gives none.
    pub fn missing_key(&self) -> MissingKey {
        self.shared.missing_key
    }

    /// The fields of its responses.
    pub fn headers(&self) -> &HeaderSettings {
        &self.shared.headers
    }

    /// The fields of a response to a request with these limits, at the time of this guard's limiter.
    pub fn fields(&self, limits: &RequestLimits) -> Vec<HeaderField> {
        limits.fields(self.limiter().shared().store().clock().now_us())
    }

    /// Whether quotas without a name have a budget for each route, so that the guard needs the route of a request.
    pub fn is_per_route(&self) -> bool {
        self.shared.is_per_route
    }

    /// The names of the policies of a request that is on no route.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        self.shared.everywhere.iter().map(Policy::name)
    }

    /// Starts the decision on a request. `limits` belong to the request and are shared by all of its guards.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the key has more than [`Request::MAX_KEY_LENGTH`] bytes or the cost
    /// is above [`Request::MAX_COST`], and when one of the request's own policies is not known or given twice;
    /// [`Closed`](crate::ErrorKind::Closed) when the limiter is closed.
    pub fn start(&self, limits: &RequestLimits, facts: &RequestFacts<'_>) -> Result<GuardCheck, Error> {
        let shared = &*self.shared;
        let cost = facts.cost.unwrap_or(shared.cost);
        let is_refused = facts.key.is_none() && shared.missing_key == MissingKey::Refuse;
        let key = facts.key.unwrap_or_default();
        Request::new(key).cost(cost).checked()?;
        let policies = if is_refused { Arc::from([]) } else { self.policies_for(facts)? };
        Ok(GuardCheck::new(self.clone(), limits.clone(), key, cost, &policies, is_refused))
    }

    fn policies_for(&self, facts: &RequestFacts<'_>) -> Result<Arc<[Policy]>, Error> {
        let shared = &*self.shared;
        let route = facts.route.filter(|route| shared.is_per_route && !route.is_empty());
        if facts.policies.is_none() && (route.is_none() || shared.everywhere.is_empty()) {
            return Ok(Arc::clone(&shared.everywhere));
        }
        // A route contains no NUL, and neither does a policy.
        let mut name = String::from(route.unwrap_or_default());
        for policy in facts.policies.unwrap_or_default() {
            name.push('\0');
            name.push_str(policy);
        }
        if facts.policies.is_some_and(<[_]>::is_empty) {
            return Ok(Arc::from([]));
        }
        if let Some(known) = shared.resolved.read().get(&name) {
            return Ok(Arc::clone(known));
        }
        let scope = shared.scope.clone().or_else(|| route.map(scope_of));
        let resolved = match facts.policies {
            Some(policies) => resolve(&shared.limiter, policies, scope.as_deref())?,
            None => resolve(&shared.limiter, &shared.given, scope.as_deref())?,
        };
        let mut known = shared.resolved.write();
        if known.len() < MAX_RESOLVED {
            known.insert(name, Arc::clone(&resolved));
        }
        Ok(resolved)
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
    Sha256::digest(route).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The policies of a list, or the only policy of the limiter.
fn resolve<T: AsRef<str>>(
    limiter: &Limiter,
    given: &[T],
    scope: Option<&str>,
) -> Result<Arc<[Policy]>, Error> {
    if given.is_empty() {
        return Ok([limiter.policy_for(None, scope)?].into());
    }
    let mut policies: Vec<Policy> = Vec::with_capacity(given.len());
    for text in given {
        // Quotas can be written in several ways; equal ones have equal names.
        let policy = limiter.policy_for(Some(text.as_ref()), scope)?;
        if policies.iter().any(|other| other.name() == policy.name()) {
            return Err(Error::invalid_argument(format!(
                "policy {} is given twice: once is enough",
                excerpt(text.as_ref())
            )));
        }
        policies.push(policy);
    }
    Ok(policies.into())
}

/// The options of a [`Guard`], with the same names and defaults in every language.
#[must_use = "a builder makes a guard only when `build` is called"]
pub struct GuardBuilder {
    limiter: Limiter,
    given: Option<Vec<String>>,
    is_per_request: bool,
    scope: Option<String>,
    is_per_route: bool,
    key_parts: Vec<KeyPart>,
    missing_key: MissingKey,
    cost: u64,
    methods: Vec<String>,
    headers: HeaderSettings,
    header_names: Vec<(String, String)>,
    status: Option<u16>,
    message: Option<String>,
    is_dry_run: bool,
}

impl GuardBuilder {
    /// Adds a policy by its name, or by its quotas such as `100/minute`. It may be left out where the limiter has one policy.
    pub fn policy(mut self, name_or_quotas: impl Into<String>) -> Self {
        self.given.get_or_insert_default().push(name_or_quotas.into());
        self
    }

    /// Policies in place of the guard's, as for [`policy`](Self::policy); an empty list is refused when the guard is made.
    pub fn policies(mut self, policies: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.given = Some(policies.into_iter().map(Into::into).collect());
        self
    }

    /// The policies are those that each [request](RequestFacts::policies) gives. A request that gives none has those of the
    /// guard, and is not limited where the guard has none either.
    pub fn per_request(mut self, is_per_request: bool) -> Self {
        self.is_per_request = is_per_request;
        self
    }

    /// The budget of quotas without a name, 1 to 256 bytes: guards with the same quotas and scope share one. A policy with a
    /// name has one budget in all scopes.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Without a scope, quotas without a name have a budget for each [route](RequestFacts::route); by default they do not.
    pub fn per_route(mut self, is_per_route: bool) -> Self {
        self.is_per_route = is_per_route;
        self
    }

    /// Adds a part of the key.
    pub fn key_part(mut self, part: KeyPart) -> Self {
        self.key_parts.push(part);
        self
    }

    /// How a request without a key is counted; by its client's address by default.
    pub fn missing_key(mut self, missing: MissingKey) -> Self {
        self.missing_key = missing;
        self
    }

    /// The units that each request spends; 1 by default, and at most [`Request::MAX_COST`].
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }

    /// Limits only requests of this method; may be called several times. By default all methods are limited.
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.methods.push(method.into());
        self
    }

    /// Which fields tell clients their limits; [`Ietf`](HeaderStyle::Ietf) by default.
    pub fn header_style(mut self, style: HeaderStyle) -> Self {
        self.headers = self.headers.style(style);
        self
    }

    /// How `x-ratelimit-reset` expresses a time; [`Seconds`](ResetForm::Seconds) by default.
    pub fn reset_form(mut self, form: ResetForm) -> Self {
        self.headers = self.headers.reset_form(form);
        self
    }

    /// Another name for a field: see [`HeaderSettings::names`]. An empty name turns the field off.
    pub fn header_name(mut self, field: impl Into<String>, name: impl Into<String>) -> Self {
        self.header_names.push((field.into(), name.into()));
        self
    }

    /// All settings of the fields at once.
    pub fn headers(mut self, settings: HeaderSettings) -> Self {
        self.headers = settings;
        self
    }

    /// The status of a request that is over its limit, 400 to 599; 429 by default. Responses because of an outage keep 503.
    pub fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The sentence in the body of a request that is over its limit, in place of the wait.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Decides, spends and reports without ever denying; off by default.
    pub fn dry_run(mut self, is_dry_run: bool) -> Self {
        self.is_dry_run = is_dry_run;
        self
    }

    /// Makes the guard.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when a policy is not known or its quotas cannot be read, when
    /// a list is empty or has one twice, when none is given and the limiter has not exactly one, when the scope of quotas is not 1 to 256
    /// bytes, when the cost is above [`Request::MAX_COST`], when a field's name is not allowed, and when the status is not 400 to 599;
    /// [`Closed`](crate::ErrorKind::Closed) when the limiter is closed.
    pub fn build(self) -> Result<Guard, Error> {
        Request::new("").cost(self.cost).checked()?;
        if self.given.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::invalid_argument(
                "policy is an empty list: allowed is a policy's name or quotas, or a list of at least one of them",
            ));
        }
        if let Some(status) = self.status
            && !(400..=599).contains(&status)
        {
            return Err(Error::invalid_argument(format!("status is {status}: allowed is 400 to 599")));
        }
        let headers = self.headers.names(self.header_names)?;
        let is_unlimited = self.is_per_request && self.given.is_none();
        let given = self.given.unwrap_or_default();
        let everywhere =
            if is_unlimited { Arc::from([]) } else { resolve(&self.limiter, &given, self.scope.as_deref())? };
        // A policy that was given by its name has one budget on all routes.
        let is_named = |(policy, text): (&Policy, &String)| policy.name() == text;
        let are_named = given.is_empty() || everywhere.iter().zip(&given).all(is_named);
        let has_quotas = self.is_per_request || !are_named;
        Ok(Guard {
            shared: Arc::new(Shared {
                is_per_route: self.is_per_route && self.scope.is_none() && has_quotas,
                limiter: self.limiter,
                given,
                scope: self.scope,
                everywhere,
                resolved: RwLock::default(),
                key_parts: self.key_parts,
                missing_key: self.missing_key,
                cost: self.cost,
                methods: self.methods,
                headers,
                status: self.status,
                message: self.message,
                is_dry_run: self.is_dry_run,
            }),
        })
    }
}

/// Reads a name among those of an option's values.
fn named<T: Copy>(option: &str, read: &str, known: &[(&str, T)]) -> Result<T, Error> {
    let found = known.iter().find(|(name, _)| *name == read).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        Error::invalid_argument(format!(
            "{option} {} is not known: use one of {}",
            excerpt(read),
            names.join(", ")
        ))
    })
}

impl FromStr for MissingKey {
    type Err = Error;

    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when no rule has that name.
    fn from_str(name: &str) -> Result<Self, Error> {
        named("missing key", name, &Self::ALL.map(|one| (one.name(), one)))
    }
}

#[cfg(test)]
mod tests;
