//! The guard of the core for web frameworks: one call decides about a request and says what the response has to be.

mod by_policy;
mod check;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use polylimit::http::guard::{self, KeyPart, MissingKey, RequestFacts, RequestLimits};
use polylimit::http::headers::HeaderSettings;

use crate::client_address::ClientAddressRules;
use crate::error::{PolylimitError, Result, guarded};
use crate::guard::by_policy::{ByPolicy, PolicyOptions};
use crate::guard::check::blocking;
pub(crate) use crate::guard::check::{Ask, Conclusion, Settled};
pub use crate::guard::check::{GuardAnswer, GuardCheck, GuardOutage};
use crate::headers::by_name;
use crate::number::{Span, address, unsigned};
use crate::request_attributes::RequestAttributes;

/// The options of a guard; those that are left out have the same defaults in every language.
#[derive(Clone, Debug, Default, uniffi::Record)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct GuardOptions {
    /// Policies by name, or quotas such as `100/minute`, all different; by default what the configuration of the limiter says, and
    /// without a configuration the limiter's only policy.
    #[uniffi(default)]
    pub policies: Option<Vec<String>>,
    /// Only requests of these methods are limited, however they are written; by default those of all.
    #[uniffi(default)]
    pub methods: Vec<String>,
    /// Whether `GET` in `methods` covers only itself, and `GET` and `HEAD` of a route have budgets of their own; by default a `HEAD` counts
    /// as a `GET`.
    #[uniffi(default)]
    pub separate_head: bool,
    /// Whether preflights count, by which browsers ask whether a page may send a request; by default they do not, unless `OPTIONS` is
    /// among `methods`.
    #[uniffi(default)]
    pub count_preflights: bool,
    /// The origins whose pages may read denials, such as `https://app.example`, or only `*` for all; by default none.
    #[uniffi(default)]
    pub cors_origins: Vec<String>,
    /// Whether each request brings its policies.
    #[uniffi(default)]
    pub per_request: bool,
    /// The budget of quotas without a name, 1 to 256 bytes.
    #[uniffi(default)]
    pub scope: Option<String>,
    /// Whether quotas without a name have a budget for each route, where there is no scope; by default they do not.
    #[uniffi(default)]
    pub per_route: bool,
    /// The parts of the key: `address`, `user`, `header:NAME`, `cookie:NAME` and `path:NAME`.
    #[uniffi(default)]
    pub key_parts: Vec<String>,
    /// How a request without a key counts: `address`, `share` or `refuse`.
    #[uniffi(default)]
    pub missing_key: Option<String>,
    /// The units that each request spends, 0 to 10^12; 1 by default.
    #[uniffi(default)]
    pub cost: Option<i64>,
    /// The units that each request spends under single policies, 0 to 10^12, by what `policies` calls them; `cost` under the others.
    #[uniffi(default)]
    pub costs: HashMap<String, i64>,
    /// The policies, as `policies` calls them, for which each request brings its own units: see `GuardFacts.costs`.
    #[uniffi(default)]
    pub costs_per_request: Vec<String>,
    /// Which fields the response has, as in `header_fields`.
    #[uniffi(default)]
    pub headers: Option<String>,
    /// The status of a request that is over its limit, 400 to 599; 429 by default.
    #[uniffi(default)]
    pub status: Option<i32>,
    /// The sentence in the body of a request that is over its limit.
    #[uniffi(default)]
    pub message: Option<String>,
    /// Whether the guard decides, spends and reports without ever denying.
    #[uniffi(default)]
    pub dry_run: bool,
    /// Whether the program is called with outages: then an answer may have an `outage`, which `overrule` concludes.
    #[uniffi(default)]
    pub hears_outages: bool,
    /// The proxies that may name the client's address; none by default.
    #[uniffi(default)]
    pub client_address: Option<Arc<ClientAddressRules>>,
    /// Whether all policies are reserved until the response is done, because the program says then what it has spent; by default
    /// those with a quota of concurrency are.
    #[uniffi(default)]
    pub reserved: bool,
    /// The policies, as `policies` calls them, that are reserved in the same way where not all are, because the program says what was
    /// spent under them.
    #[uniffi(default)]
    pub reserved_policies: Vec<String>,
    /// What a request has spent, as its response reports it, such as `usage:total`, `header:x-tokens` or `3*usage:input + 15*usage:output`:
    /// requests are then reserved, and the response is passed to the check. A response that reports nothing has spent the cost.
    #[uniffi(default)]
    pub spent_by: Option<String>,
    /// The same under single policies, by what `policies` calls them; `spent_by` under the others, but for `reserved_policies`.
    #[uniffi(default)]
    pub spent_by_policy: HashMap<String, String>,
    /// How long a reservation lasts after its last renewal: 1 ms to 48 h; 30 seconds by default.
    #[uniffi(default)]
    pub ttl: Option<Span>,
    /// How long reservations are renewed; one hour by default.
    #[uniffi(default)]
    pub max_age: Option<Span>,
    /// How long a request that would be denied may be held, up to 60 s: until it would be admitted, if that is in time, and then it is decided
    /// again; by default requests are not held. A leaky bucket holds a request until its turn.
    #[uniffi(default)]
    pub wait: Option<Span>,
    /// How many requests may be held at the same time, 1 to 1,000,000; 100 by default. A further one is denied at once.
    #[uniffi(default)]
    pub max_waiting: Option<i32>,
}

/// What is known about a request.
#[derive(Clone, uniffi::Record)]
#[uniffi::export(Debug)]
pub struct GuardFacts {
    /// The key, where the program finds it.
    #[uniffi(default)]
    pub key: Option<Vec<u8>>,
    /// The values of the parts of the key, in order; the value of the address is not read.
    #[uniffi(default)]
    pub parts: Vec<Option<Vec<u8>>>,
    /// The other end of the socket.
    pub peer: String,
    /// The values of all lines of the header that `ClientAddressRules` name, in the order they were received.
    #[uniffi(default)]
    pub forwarded: Vec<String>,
    /// The units that the request spends, where they are not the guard's.
    #[uniffi(default)]
    pub cost: Option<i64>,
    /// The policies of this request, in place of the guard's; with none in the list the request is not limited.
    #[uniffi(default)]
    pub policies: Option<Vec<String>>,
    /// The request's `accept` field.
    #[uniffi(default)]
    pub accept: Option<String>,
    /// The framework's name of the route, for a guard with a budget for each route.
    #[uniffi(default)]
    pub route: Option<String>,
    /// The check of the guard around this one, on the same request.
    #[uniffi(default)]
    pub outer: Option<Arc<GuardCheck>>,
    /// The attributes of the request, for a guard that decides by the configuration of its limiter.
    #[uniffi(default)]
    pub attributes: Option<RequestAttributes>,
    /// The units that the request spends under single policies, 0 to 10^12, by what the guard's options call them.
    #[uniffi(default)]
    pub costs: HashMap<String, i64>,
}

/// Shows no key.
impl fmt::Debug for GuardFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardFacts").field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// The facts of a request without their owner.
pub(crate) struct Facts<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) parts: Vec<Option<&'a [u8]>>,
    pub(crate) peer: &'a str,
    pub(crate) forwarded: Vec<&'a [u8]>,
    pub(crate) cost: Option<i64>,
    pub(crate) policies: Option<Vec<&'a str>>,
    pub(crate) accept: Option<&'a str>,
    pub(crate) route: Option<&'a str>,
    /// For a guard that decides by the configuration of its limiter.
    pub(crate) attributes: Option<polylimit::document::RequestAttributes<'a>>,
    /// The costs of single policies by what the guard calls them.
    pub(crate) costs: Vec<(&'a str, i64)>,
}

impl GuardFacts {
    fn borrowed(&self) -> Facts<'_> {
        Facts {
            key: self.key.as_deref(),
            parts: self.parts.iter().map(Option::as_deref).collect(),
            peer: &self.peer,
            forwarded: self.forwarded.iter().map(String::as_bytes).collect(),
            cost: self.cost,
            policies: self.policies.as_ref().map(|policies| policies.iter().map(String::as_str).collect()),
            accept: self.accept.as_deref(),
            route: self.route.as_deref(),
            attributes: self.attributes.as_ref().map(RequestAttributes::to_core),
            costs: self.costs.iter().map(|(policy, units)| (policy.as_str(), *units)).collect(),
        }
    }
}

/// A limit on the requests of a web framework. It waits for the store on the caller's thread.
#[derive(Debug, uniffi::Object)]
pub struct Guard {
    core: guard::Guard,
    hears_outages: bool,
    rules: polylimit::http::ClientAddressRules,
    by_policy: Arc<ByPolicy>,
}

impl Guard {
    pub(crate) fn new(limiter: &polylimit::Limiter, options: GuardOptions) -> Result<Arc<Self>> {
        let mut builder = guard::Guard::builder(limiter.clone());
        let is_by_configuration =
            options.policies.is_none() && !options.per_request && limiter.admin().configuration().is_some();
        if is_by_configuration {
            builder = builder.by_configuration();
        }
        let of_policies = PolicyOptions {
            policies: options.policies.as_deref(),
            scope: options.scope.as_deref(),
            per_request: options.per_request,
            is_by_configuration,
            reserved: options.reserved,
            costs: &options.costs,
            costs_per_request: &options.costs_per_request,
            reserved_policies: &options.reserved_policies,
            spent_by: options.spent_by.as_deref(),
            spent_by_policy: &options.spent_by_policy,
        };
        let (by_policy, mut builder) = ByPolicy::of(limiter, &of_policies, builder)?;
        if let Some(policies) = options.policies {
            builder = builder.policies(policies);
        }
        builder =
            builder.per_request(options.per_request).per_route(options.per_route).dry_run(options.dry_run);
        for method in options.methods {
            builder = builder.method(method);
        }
        builder = builder
            .separate_head(options.separate_head)
            .count_preflights(options.count_preflights)
            .cors_origins(options.cors_origins);
        if let Some(scope) = options.scope {
            builder = builder.scope(scope);
        }
        builder = builder.reserved(options.reserved);
        if let Some(ttl) = options.ttl {
            builder = builder.ttl(ttl.duration("ttl")?);
        }
        if let Some(max_age) = options.max_age {
            builder = builder.max_age(max_age.duration("max_age")?);
        }
        if let Some(wait) = options.wait {
            builder = builder.wait(wait.duration("wait")?);
        }
        if let Some(most) = options.max_waiting {
            // A negative number is refused like 0.
            builder = builder.max_waiting(u32::try_from(most).unwrap_or(0));
        }
        for part in &options.key_parts {
            builder = builder.key_part(part.parse()?);
        }
        if let Some(missing_key) = options.missing_key {
            builder = builder.missing_key(missing_key.parse()?);
        }
        if let Some(cost) = options.cost {
            builder = builder.cost(unsigned("cost", cost)?);
        }
        if let Some(headers) = options.headers {
            builder = builder.headers(headers.parse::<HeaderSettings>()?);
        }
        if let Some(status) = options.status {
            // A status beyond 65535 is refused like any other that is no error.
            builder = builder.status(u16::try_from(status).unwrap_or(u16::MAX));
        }
        if let Some(message) = options.message {
            builder = builder.message(message);
        }
        let rules = match options.client_address {
            Some(rules) => rules.core().clone(),
            None => polylimit::http::ClientAddressRules::builder().build()?,
        };
        let (core, by_policy) = (builder.build()?, Arc::new(by_policy));
        Ok(Arc::new(Self { core, hears_outages: options.hears_outages, rules, by_policy }))
    }

    /// The key of a request; nothing where the guard counts requests without one otherwise than by their address.
    fn key<'a>(&self, facts: &mut Facts<'a>) -> Option<Cow<'a, [u8]>> {
        if let Some(key) = facts.key {
            return Some(key.into());
        }
        let parts = self.core.key_parts();
        let address = || self.rules.key_of(facts.peer, facts.forwarded.iter().copied()).into_bytes();
        let key = if parts.contains(&KeyPart::Address) {
            let address = address();
            let each = parts.iter().zip(&facts.parts);
            let values: Vec<_> = each
                .map(|(part, value)| if *part == KeyPart::Address { Some(&*address) } else { *value })
                .collect();
            self.core.join_key(&values)
        } else {
            self.core.join_key(&facts.parts)
        };
        let key = key.or_else(|| (self.core.missing_key() == MissingKey::Address).then(address));
        key.map(Cow::from)
    }

    /// The guard of the core.
    pub(crate) fn core(&self) -> &guard::Guard {
        &self.core
    }

    /// Starts the decision about a request.
    pub(crate) fn start(&self, limits: &RequestLimits, mut facts: Facts<'_>) -> Result<Arc<GuardCheck>> {
        let key = if self.core.is_by_configuration() { None } else { self.key(&mut facts) };
        let mut known = RequestFacts::new();
        if let Some(attributes) = &facts.attributes {
            known = known.attributes(attributes);
        }
        if let Some(key) = &key {
            known = known.key(key);
        }
        if let Some(cost) = facts.cost {
            known = known.cost(unsigned("cost", cost)?);
        }
        if let Some(route) = facts.route {
            known = known.route(route);
        }
        if let Some(policies) = &facts.policies {
            // Names of costs are those of the guard's policies.
            if !facts.costs.is_empty() {
                return Err(PolylimitError::InvalidArgument(
                    "policies is given with a request, next to costs of policies of the guard: leave out one of the two"
                        .to_owned(),
                ));
            }
            known = known.policies(policies);
        }
        // Policies that the request has brought have other positions.
        let is_own = facts.policies.is_none();
        let costs = if is_own { self.by_policy.costs(&facts.costs)? } else { Vec::new() };
        let check = self.core.start(limits, &known.costs(&costs))?;
        let by_policy = if is_own { Arc::clone(&self.by_policy) } else { Arc::default() };
        Ok(Arc::new(GuardCheck::new(check, self.hears_outages, facts.accept, by_policy)))
    }
}

#[uniffi::export]
impl Guard {
    /// The parts of the key as text, with the names of headers in lower case.
    pub fn key_parts(&self) -> Vec<String> {
        self.core.key_parts().iter().map(ToString::to_string).collect()
    }

    /// Whether the configuration of the limiter decides, by the attributes of requests.
    pub fn is_by_configuration(&self) -> bool {
        self.core.is_by_configuration()
    }

    /// Whether quotas without a name have a budget for each route, so that the guard needs the route of a request.
    pub fn is_per_route(&self) -> bool {
        self.core.is_per_route()
    }

    /// Where the guard is for direct calls, as long as it exists.
    pub fn address(&self) -> i64 {
        address(self)
    }

    /// Whether requests of this method are limited. `requested_method` is the `access-control-request-method` of an `OPTIONS` request that
    /// has an `origin`, unless the limit is attached to a handler: a preflight, which does not count by default.
    #[uniffi::method(default(requested_method = None))]
    pub fn applies_to(&self, method: String, requested_method: Option<String>) -> bool {
        self.core.applies_to(&method, requested_method.as_deref())
    }

    /// The fields by which a page of this origin may read a denial, for a denial that has no `access-control-allow-origin` yet.
    pub fn cors_fields(&self, origin: Option<String>) -> HashMap<String, String> {
        by_name(self.core.cors_fields(origin.as_deref()))
    }

    /// Decides about a request, and refunds what outer guards have spent when this one denies it.
    pub fn decide(&self, facts: GuardFacts) -> Result<GuardAnswer> {
        guarded(|| {
            let limits = facts.outer.as_ref().map_or_else(RequestLimits::default, |outer| outer.limits());
            let check = self.start(&limits, facts.borrowed())?;
            check.outage_or_conclusion(blocking).and_then(|settled| GuardAnswer::of(settled, check))
        })
    }
}
