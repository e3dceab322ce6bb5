//! The options of a guard.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use crate::http::guard::cors::CorsOrigins;
use crate::http::guard::key::{KeyPart, MissingKey};
use crate::http::guard::methods::Methods;
use crate::http::guard::waiting::{WaitOptions, WaitingCount};
use crate::http::headers::HeaderSettings;
use crate::limiter::Limiter;
use crate::limiter::reservation::ReserveOptions;
use polylimit_document::meter::{Meter, Meters};
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Quota;
use polylimit_rules::request::Request;

/// The options of a [`Guard`](crate::http::guard::Guard), with the same names and defaults in every language.
#[must_use = "a builder makes a guard only when `build` is called"]
pub struct GuardBuilder {
    limiter: Limiter,
    given: Option<Vec<String>>,
    is_per_request: bool,
    is_per_route: bool,
    is_by_configuration: bool,
    cors_origins: Vec<String>,
    spent_by: Vec<Option<String>>,
    options: GuardOptions,
}

/// The state that the clones of a guard share.
pub(super) struct Shared {
    pub(super) limiter: Limiter,
    /// The policies as passed to the builder; empty for the only policy of the limiter.
    pub(super) given: Vec<String>,
    /// The policies of a request without a route.
    pub(super) everywhere: Arc<[Policy]>,
    /// Whether the limits come from the limiter's configuration.
    pub(super) is_by_configuration: bool,
    /// Whether quotas without a name have a budget for each route.
    pub(super) is_per_route: bool,
    /// The policies by route and by the list that a function returned, once resolved.
    pub(super) resolved: RwLock<HashMap<String, Arc<[Policy]>>>,
    /// How many requests are held.
    pub(super) waiting: WaitingCount,
    pub(super) options: GuardOptions,
}

/// The options that a guard takes unchanged.
pub(super) struct GuardOptions {
    pub(super) scope: Option<String>,
    pub(super) key_parts: Vec<KeyPart>,
    pub(super) missing_key: MissingKey,
    pub(super) cost: u64,
    /// The costs of policies by position, where they have their own.
    pub(super) costs: Vec<Option<u64>>,
    pub(super) methods: Methods,
    pub(super) cors_origins: CorsOrigins,
    pub(super) headers: HeaderSettings,
    pub(super) status: Option<u16>,
    pub(super) message: Option<String>,
    pub(super) is_dry_run: bool,
    /// Whether all policies are reserved, not only those with concurrency.
    pub(super) is_reserved: bool,
    /// The same by position, for policies with their own setting.
    pub(super) reserved: Vec<bool>,
    pub(super) reserve: ReserveOptions,
    pub(super) waiting: WaitOptions,
    /// What responses report as spent.
    pub(super) meters: Option<Arc<Meters>>,
    /// Whether a meter is for all policies, and not one for each position.
    pub(super) is_metered_for_all: bool,
}

impl GuardOptions {
    const DEFAULT_COST: u64 = 1;

    /// The own cost of the policy at this position.
    pub(super) fn own_cost(&self, at: usize) -> Option<u64> {
        self.costs.get(at).copied().flatten()
    }

    /// The option that is set for single policies, if there is one.
    pub(super) fn own_of_policies(&self) -> Option<&'static str> {
        let has_meters = self.meters.is_some() && !self.is_metered_for_all;
        let given = [
            ("cost", !self.costs.is_empty()),
            ("reserved", !self.reserved.is_empty()),
            ("spent", has_meters),
        ];
        given.iter().find(|(_, is_given)| *is_given).map(|(name, _)| *name)
    }

    /// Whether the policy at this position is reserved even without a quota of concurrency.
    pub(super) fn is_reserved_at(&self, at: usize) -> bool {
        let is_metered = self.meters.as_ref().is_some_and(|meters| meters.has(at));
        is_metered || self.reserved.get(at).copied().unwrap_or(self.is_reserved)
    }

    fn set_meters(&mut self, texts: &[Option<String>]) -> Result<(), Error> {
        let meters =
            texts.iter().map(|text| text.as_deref().map(|text| Meter::parse(text).map(Arc::new)).transpose());
        let meters = meters.collect::<Result<Vec<_>, Error>>()?;
        self.meters = match &meters[..] {
            [Some(meter)] if self.is_metered_for_all => Some(Meters::for_all(Arc::clone(meter))?),
            each if each.iter().any(Option::is_some) => Some(Meters::new(meters)?),
            _ => None,
        }
        .map(Arc::new);
        Ok(())
    }
}

impl GuardBuilder {
    pub(super) fn new(limiter: Limiter) -> Self {
        let options = GuardOptions {
            scope: None,
            key_parts: Vec::new(),
            missing_key: MissingKey::Address,
            cost: GuardOptions::DEFAULT_COST,
            costs: Vec::new(),
            methods: Methods::default(),
            cors_origins: CorsOrigins::default(),
            headers: HeaderSettings::default(),
            status: None,
            message: None,
            is_dry_run: false,
            is_reserved: false,
            reserved: Vec::new(),
            reserve: ReserveOptions::default(),
            waiting: WaitOptions::default(),
            meters: None,
            is_metered_for_all: false,
        };
        let (is_per_request, is_per_route) = (false, false);
        Self {
            limiter,
            given: None,
            is_per_request,
            is_per_route,
            is_by_configuration: false,
            cors_origins: Vec::new(),
            spent_by: Vec::new(),
            options,
        }
    }

    /// Adds a policy by its name, or by its quotas such as `100/minute`. It may be omitted if the limiter has one policy.
    pub fn policy(mut self, name_or_quotas: impl Into<String>) -> Self {
        self.given.get_or_insert_default().push(name_or_quotas.into());
        self
    }

    /// Replaces the guard's policies, in the form of [`policy`](Self::policy); an empty list is refused when the guard is
    /// built.
    pub fn policies(mut self, policies: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.given = Some(policies.into_iter().map(Into::into).collect());
        self
    }

    /// Each [request](crate::http::guard::RequestFacts::policies) brings its own policies. A request without any has those of
    /// the guard, and is not limited if the guard has none either. [`costs`](Self::costs) and
    /// [`reserved_each`](Self::reserved_each) apply to the guard's own policies, so they are refused.
    pub fn per_request(mut self, is_per_request: bool) -> Self {
        self.is_per_request = is_per_request;
        self
    }

    /// The budget of quotas without a name, 1 to 256 bytes: guards with the same quotas and scope share one. A policy
    /// with a name has one budget in all scopes.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.options.scope = Some(scope.into());
        self
    }

    /// The limits come from the limiter's configuration: its rules determine the policies, keys and costs of a request by its
    /// [attributes](crate::http::guard::RequestFacts::attributes). Policies, key, cost and scope cannot be set then.
    pub fn by_configuration(mut self) -> Self {
        self.is_by_configuration = true;
        self
    }

    /// Without a scope, quotas without a name have a budget for each [route](crate::http::guard::RequestFacts::route); by
    /// default they do not.
    pub fn per_route(mut self, is_per_route: bool) -> Self {
        self.is_per_route = is_per_route;
        self
    }

    /// Adds a part of the key.
    pub fn key_part(mut self, part: KeyPart) -> Self {
        self.options.key_parts.push(part);
        self
    }

    /// How a request without a key is counted; by its client's address by default.
    pub fn missing_key(mut self, missing: MissingKey) -> Self {
        self.options.missing_key = missing;
        self
    }

    /// The units that each request spends; 1 by default, and at most [`Request::MAX_COST`].
    pub fn cost(mut self, units: u64) -> Self {
        self.options.cost = units;
        self
    }

    /// The units that each request spends under each policy, in the order of the policies; for `None`, and for policies beyond
    /// the end, [`cost`](Self::cost) applies. This way one guard counts the tokens of a request under one policy and the
    /// request itself under another.
    ///
    /// ```
    /// use polylimit::http::guard::{Guard, RequestFacts, RequestLimits, Verdict};
    /// use polylimit::{Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::parse("tokens", "10000/minute token_bucket")?)
    ///     .policy(Policy::parse("requests", "60/minute")?)
    ///     .build()?;
    /// let guard = Guard::builder(limiter).policies(["tokens", "requests"]).costs([Some(4_000)]).build()?;
    /// let facts = RequestFacts::new().key(b"user:42");
    /// let mut admitted = 0;
    /// for _ in 0..3 {
    ///     let mut check = guard.start(&RequestLimits::default(), &facts)?;
    ///     check.run_blocking();
    ///     admitted += u32::from(matches!(check.conclude(), Verdict::Admit));
    /// }
    /// assert_eq!(admitted, 2);
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn costs(mut self, units: impl IntoIterator<Item = Option<u64>>) -> Self {
        self.options.costs = units.into_iter().collect();
        self
    }

    /// Limits only requests of this method, in any case; may be called several times. By default all methods are limited.
    /// `GET` includes `HEAD`: see [`separate_head`](Self::separate_head).
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.options.methods.add(method.into());
        self
    }

    /// Whether `HEAD` is separate from `GET`: then a limit on `GET` does not cover it, and it has its own budget on each route.
    /// By default it is not, because handlers of `GET` respond to `HEAD`.
    pub fn separate_head(mut self, is_separate: bool) -> Self {
        self.options.methods.is_head_separate = is_separate;
        self
    }

    /// Whether preflights count, the requests by which browsers ask whether a page may send another: see
    /// [`Guard::applies_to`](crate::http::guard::Guard::applies_to). By default they do not.
    pub fn count_preflights(mut self, counts: bool) -> Self {
        self.options.methods.counts_preflights = counts;
        self
    }

    /// The origins whose pages may read denials, such as `https://app.example`, or only `*` for all: see
    /// [`Guard::cors_fields`](crate::http::guard::Guard::cors_fields). None by default: a service that sends these fields
    /// itself, outside of the limit, needs none.
    pub fn cors_origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.cors_origins = origins.into_iter().map(Into::into).collect();
        self
    }

    /// Which fields show clients their limits, in which form and under which names; those of
    /// [`Ietf`](crate::http::headers::HeaderStyle::Ietf) by default.
    pub fn headers(mut self, settings: impl Into<HeaderSettings>) -> Self {
        self.options.headers = settings.into();
        self
    }

    /// The status of a request that is over its limit, 400 to 599; 429 by default. Responses to an outage keep 503.
    pub fn status(mut self, status: u16) -> Self {
        self.options.status = Some(status);
        self
    }

    /// The sentence in the body of a request that is over its limit, in place of the wait.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.options.message = Some(message.into());
        self
    }

    /// Decides, spends and reports without ever denying; off by default.
    pub fn dry_run(mut self, is_dry_run: bool) -> Self {
        self.options.is_dry_run = is_dry_run;
        self
    }

    /// Reserves units under every policy for the duration of the request, not only under those with a quota of concurrency: for
    /// a program that reports the units [spent](crate::http::guard::GuardCheck::end) when the response is done. Off by default.
    /// A leaky bucket and a leased policy cannot be reserved.
    pub fn reserved(mut self, is_reserved: bool) -> Self {
        self.options.is_reserved = is_reserved;
        self
    }

    /// Like [`reserved`](Self::reserved), but for each policy, in their order; that setting applies to policies beyond the end.
    pub fn reserved_each(mut self, are_reserved: impl IntoIterator<Item = bool>) -> Self {
        self.options.reserved = are_reserved.into_iter().collect();
        self
    }

    /// What a request has spent, as its response reports it: a text such as `usage:total`, as [`Meter`] reads it. Every policy is then
    /// [reserved](Self::reserved) at the cost, and what the response reports is charged at the end; the cost, if it reports nothing. The
    /// middleware passes the response to [`GuardCheck::read_head`] and [`GuardCheck::read_body`].
    ///
    /// [`GuardCheck::read_head`]: crate::http::guard::GuardCheck::read_head
    /// [`GuardCheck::read_body`]: crate::http::guard::GuardCheck::read_body
    pub fn spent_by(mut self, meter: impl Into<String>) -> Self {
        self.spent_by = vec![Some(meter.into())];
        self.options.is_metered_for_all = true;
        self
    }

    /// Like [`spent_by`](Self::spent_by), but for each policy, in their order, so that one guard charges requests, tokens and money. `None`
    /// is a policy without a meter; it is reserved as [`reserved_each`](Self::reserved_each) says, or else as it is without meters.
    ///
    /// ```
    /// use polylimit::http::guard::{Guard, RequestFacts, RequestLimits, Verdict};
    /// use polylimit::{Limiter, Policy, Request};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::parse("requests", "60/minute")?)
    ///     .policy(Policy::parse("tokens", "100000/minute")?)
    ///     .policy(Policy::parse("micro_dollars", "5000000/day")?)
    ///     .build()?;
    /// let guard = Guard::builder(limiter.clone())
    ///     .policies(["requests", "tokens", "micro_dollars"])
    ///     .costs([Some(1), Some(4_000), Some(60_000)])
    ///     .spent_by_each([None, Some("usage:total".into()), Some("3*usage:input + 15*usage:output".into())])
    ///     .build()?;
    /// let mut check = guard.start(&RequestLimits::default(), &RequestFacts::new().key(b"team:a"))?;
    /// check.run_blocking();
    /// assert!(matches!(check.conclude(), Verdict::Admit) && check.reads_response());
    ///
    /// check.read_head([("content-type", &b"application/json"[..])]);
    /// check.read_body(br#"{"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 200}}"#);
    /// check.finish(true);
    /// check.end(None)?;
    /// check.run_blocking();
    /// let left = |policy: &str| limiter.blocking().peek(Request::new("team:a").policy(policy)).map(|left| left.remaining());
    /// assert_eq!((left("requests")?, left("tokens")?, left("micro_dollars")?), (59, 98_800, 4_994_000));
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn spent_by_each(mut self, meters: impl IntoIterator<Item = Option<String>>) -> Self {
        self.spent_by = meters.into_iter().collect();
        self.options.is_metered_for_all = false;
        self
    }

    /// How long a reservation lasts after its last renewal, 1 ms to 48 h: its units stay set aside this long after the process
    /// has died. By default [`ReserveOptions::DEFAULT_TTL`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.reserve = self.options.reserve.ttl(ttl);
        self
    }

    /// How long the reservation of one request is renewed in the background; zero never renews it. By default
    /// [`ReserveOptions::DEFAULT_MAX_AGE`]. A response that takes longer loses its reservation when that expires.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.options.reserve = self.options.reserve.max_age(max_age);
        self
    }

    /// Holds a request that would be denied for at most this long, up to 60 s: until the store would admit it, if that is in time, and then
    /// decides again. A request that a leaky bucket admits is held until its turn, and denied if that comes later. Zero, the default, holds
    /// none, and a leaky bucket's requests then proceed at once.
    ///
    /// A denial is sent at once if the time is unknown or too long; in an outage; for a slot of concurrency, which no clock frees; under a
    /// policy with a penalty or with `count_denied`, because each attempt would count; and when
    /// [`max_waiting`](Self::max_waiting) requests wait already. What outer guards have spent stays spent meanwhile. The order in which
    /// waiting requests are admitted is not defined.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use polylimit::Limiter;
    /// use polylimit::http::guard::{Guard, RequestFacts, RequestLimits, Verdict};
    ///
    /// let limiter = Limiter::builder().build()?;
    /// let guard = Guard::builder(limiter).policy("20/s leaky_bucket burst=10").wait(Duration::from_millis(400)).build()?;
    /// for _ in 0..3 {
    ///     let mut check = guard.start(&RequestLimits::default(), &RequestFacts::new().key(b"user:42"))?;
    ///     check.run_blocking(); // the second request is held for 50 ms, and so is the third
    ///     assert!(matches!(check.conclude(), Verdict::Admit));
    /// }
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn wait(mut self, longest: Duration) -> Self {
        self.options.waiting.wait = longest;
        self
    }

    /// How many requests this guard [holds](Self::wait) at the same time: 1 to 1,000,000, and 100 by default. A further one is denied at
    /// once.
    pub fn max_waiting(mut self, most: u32) -> Self {
        self.options.waiting.max_waiting = most;
        self
    }

    /// Validates the options.
    pub(super) fn checked(self) -> Result<Shared, Error> {
        let costs = self.options.costs.iter().flatten().chain([&self.options.cost]);
        costs.into_iter().try_for_each(|cost| Request::new("").cost(*cost).checked().map(drop))?;
        if self.given.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::invalid_argument(
                "policy is an empty list: allowed is a policy's name or quotas, or a list of at least one of them",
            ));
        }
        if let Some(status) = self.options.status
            && !(400..=599).contains(&status)
        {
            return Err(Error::invalid_argument(format!("status is {status}: allowed is 400 to 599")));
        }
        let mut options = self.options;
        options.cors_origins = CorsOrigins::parse(&self.cors_origins)?;
        options.methods = options.methods.checked()?;
        options.reserve.checked()?;
        options.waiting.check()?;
        options.set_meters(&self.spent_by)?;
        if self.is_by_configuration {
            self.limiter.admin().configuration().ok_or_else(Error::no_configuration)?;
            let beside = [
                ("policy", self.given.is_some() || self.is_per_request),
                ("spent", options.meters.is_some()),
                ("reserved", options.is_reserved || !options.reserved.is_empty()),
                ("scope", options.scope.is_some()),
                ("a part of the key", !options.key_parts.is_empty()),
                ("cost", options.cost != GuardOptions::DEFAULT_COST || !options.costs.is_empty()),
            ];
            if let Some((name, _)) = beside.iter().find(|(_, is_given)| *is_given) {
                return Err(Error::invalid_argument(format!(
                    "{name} is given to a guard that decides by the configuration: leave it to the rules of the document"
                )));
            }
        }
        if self.is_per_request
            && let Some(name) = options.own_of_policies()
        {
            return Err(Error::invalid_argument(format!(
                "{name} is given for single policies, and each request brings its policies: give one {name} for all, or a list of \
                 policies"
            )));
        }
        let is_unlimited = (self.is_per_request || self.is_by_configuration) && self.given.is_none();
        let given = self.given.unwrap_or_default();
        let everywhere = if is_unlimited {
            Arc::from([])
        } else {
            let everywhere = resolve(&self.limiter, &given, &options, options.scope.as_deref(), false)?;
            refuse_impossible_costs(&everywhere, &options)?;
            everywhere
        };
        // A policy given by its name has one budget on all routes.
        let is_named = |(policy, text): (&Policy, &String)| policy.name() == text;
        let are_named = given.is_empty() || everywhere.iter().zip(&given).all(is_named);
        let has_quotas = self.is_per_request || !are_named;
        Ok(Shared {
            is_by_configuration: self.is_by_configuration,
            is_per_route: self.is_per_route && options.scope.is_none() && has_quotas,
            limiter: self.limiter,
            given,
            everywhere,
            resolved: RwLock::default(),
            waiting: WaitingCount::default(),
            options,
        })
    }
}

/// Refuses a cost that is the same for all requests and that none could ever spend.
fn refuse_impossible_costs(policies: &[Policy], options: &GuardOptions) -> Result<(), Error> {
    if options.costs.len() > policies.len() {
        return Err(Error::invalid_argument(format!(
            "{} costs are given for {} policies: allowed is at most one for each policy",
            options.costs.len(),
            policies.len()
        )));
    }
    let meters = options.meters.as_ref().filter(|_| !options.is_metered_for_all);
    if let Some(count) = meters.map(|meters| meters.len()).filter(|count| *count > policies.len()) {
        return Err(Error::invalid_argument(format!(
            "spent has {count} texts: allowed is at most {}, one for each policy",
            policies.len()
        )));
    }
    for (at, policy) in policies.iter().enumerate() {
        let cost = options.own_cost(at).unwrap_or(options.cost);
        // A quota of concurrency counts slots, and a limit of 0 is meant to admit nothing.
        let counts_units = |quota: &&Quota| quota.algorithm().is_rate() && quota.limit() > 0;
        let most = policy.quotas().iter().filter(counts_units).map(Quota::capacity).min();
        if let Some(most) = most.filter(|most| cost > *most) {
            return Err(Error::invalid_argument(format!(
                "cost is {cost} for policy {}, which never admits more than {most} at once: lower the cost, raise the quota, or give \
                 the policy a cost of its own",
                excerpt(policy.name())
            )));
        }
    }
    Ok(())
}

/// The policies of a list, or the only policy of the limiter. Those of one request may be forgotten later.
pub(super) fn resolve<T: AsRef<str>>(
    limiter: &Limiter,
    given: &[T],
    options: &GuardOptions,
    scope: Option<&str>,
    of_one_request: bool,
) -> Result<Arc<[Policy]>, Error> {
    let find = |text: Option<&str>, at: usize| {
        let policy = if of_one_request {
            limiter.policy_in_scope(text, scope)?
        } else {
            limiter.policy_for(text, scope)?
        };
        if options.is_reserved_at(at) || policy.is_only_reserved() {
            limiter.refuse_unless_reservable(&policy)?;
        }
        Ok::<_, Error>(policy)
    };
    if given.is_empty() {
        return Ok([find(None, 0)?].into());
    }
    let mut policies: Vec<Policy> = Vec::with_capacity(given.len());
    for text in given {
        // Quotas can be written in several ways; equal ones have equal names.
        let policy = find(Some(text.as_ref()), policies.len())?;
        if policies.iter().any(|other| other.name() == policy.name()) {
            return Err(Error::invalid_argument(format!(
                "policy {} is a duplicate: leave out one of the two",
                excerpt(text.as_ref())
            )));
        }
        policies.push(policy);
    }
    Ok(policies.into())
}
