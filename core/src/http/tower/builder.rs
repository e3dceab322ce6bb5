//! The options of a layer, with the same names as in every other language.

use std::sync::Arc;

use http::request::Parts;
use http::{Response, response};

use crate::error::{Error, excerpt};
use crate::http::headers::{HeaderSettings, HeaderStyle, ResetForm};
use crate::http::tower::denial::{Denial, InPlace, StoreOutage};
use crate::http::tower::rules::Rules;
use crate::http::tower::service::RateLimitLayer;
use crate::limiter::Limiter;
use crate::rules::request::Request;

/// The options of a [`RateLimitLayer`] before they are checked. `B` is the body of the service's responses.
#[must_use = "a builder makes a layer only when `build` is called"]
pub struct RateLimitBuilder<B> {
    rules: Rules<B>,
    scope: Option<String>,
    /// The cost, if it is the same for every request.
    units: u64,
}

impl<B> RateLimitLayer<B> {
    /// Starts a layer that counts requests by the result of `key`: any text or bytes, or a ready-made function such as
    /// [`client_address`](crate::http::tower::client_address) or [`header`](crate::http::tower::header()). `key` must
    /// return a key for every request; for requests that may have none see [`RateLimitBuilder::key`]. A key that needs an
    /// asynchronous lookup comes from an outer layer, which puts it into the request's extensions.
    pub fn builder<K: AsRef<[u8]>>(
        limiter: Limiter,
        key: impl Fn(&Parts) -> K + Send + Sync + 'static,
    ) -> RateLimitBuilder<B> {
        RateLimitBuilder::new(limiter, key)
    }
}

impl<B> RateLimitBuilder<B> {
    pub(crate) fn new<K: AsRef<[u8]>>(
        limiter: Limiter,
        key: impl Fn(&Parts) -> K + Send + Sync + 'static,
    ) -> Self {
        Self {
            rules: Rules {
                limiter,
                policies: Vec::new(),
                key: Box::new(move |request| key(request).as_ref().to_vec()),
                cost: Box::new(|_| 1),
                count: None,
                skip: None,
                on_denied: None,
                on_outage: None,
                headers: HeaderSettings::default(),
            },
            scope: None,
            units: 1,
        }
    }

    /// Counts requests by this key where they have one, such as a user who has logged in. A request for which it returns
    /// `None` is counted by the key of the builder.
    ///
    /// With [`client_address`](crate::http::tower::client_address) as the builder's key, the rule is that of the
    /// middleware in other languages: a request without a key is counted by its client's address. The layer itself knows
    /// no address, since each server stores it in its own place. When this is called several times, the last function is
    /// tried first.
    ///
    /// ```
    /// use std::net::SocketAddr;
    ///
    /// use axum::extract::ConnectInfo;
    /// use http::request::Parts;
    /// use polylimit::tower::{RateLimitLayer, client_address};
    /// use polylimit::{ClientAddressRules, Limiter, Policy};
    ///
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// # fn layered() -> Result<axum::Router, polylimit::Error> {
    /// let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute")?).build()?;
    /// let rules = ClientAddressRules::builder().build()?;
    /// let peer = |request: &Parts| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip());
    /// let limit = RateLimitLayer::builder(limiter, client_address(rules, peer))
    ///     .key(|request| Some(format!("user:{}", request.extensions.get::<User>()?.0)))
    ///     .build()?;
    /// let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" })).layer(limit);
    /// # Ok(app)
    /// # }
    /// # layered().unwrap();
    /// ```
    pub fn key<K: AsRef<[u8]>>(mut self, key: impl Fn(&Parts) -> Option<K> + Send + Sync + 'static) -> Self {
        let otherwise = self.rules.key;
        self.rules.key = Box::new(move |request| match key(request) {
            Some(key) => key.as_ref().to_vec(),
            None => otherwise(request),
        });
        self
    }

    /// Adds a policy by its name, or by its quotas such as `100/minute`. It may be left out where the limiter has only
    /// one.
    ///
    /// Several policies are decided in one round trip. When one of them denies, the units of the others are refunded.
    pub fn policy(mut self, name_or_quotas: impl Into<String>) -> Self {
        self.rules.policies.push(name_or_quotas.into());
        self
    }

    /// The scope of quotas without a name: 1 to 256 bytes, such as `/login` or `GET /users/{id}`. All layers with the
    /// same quotas and scope share one budget per key, in every process that shares the store.
    ///
    /// A layer is made before it is added to a route, so it does not know its route. Without a scope, layers with the
    /// same quotas share one budget, on any number of routes; so a layer on a route should get the route as its scope. A
    /// policy with a name is shared regardless of the scope.
    ///
    /// ```
    /// use axum::Router;
    /// use axum::routing::{get, post};
    /// use polylimit::Limiter;
    /// use polylimit::tower::RateLimitLayer;
    ///
    /// # fn routes(limiter: Limiter) -> Result<Router, polylimit::Error> {
    /// let limit =
    ///     |route| RateLimitLayer::builder(limiter.clone(), |_| "all").policy("5/minute").scope(route).build();
    /// let app = Router::new()
    ///     .route("/login", post(|| async {}).layer(limit("/login")?))
    ///     .route("/search", get(|| async {}).layer(limit("/search")?));
    /// # Ok(app)
    /// # }
    /// # routes(Limiter::builder().policy(polylimit::Policy::parse("api", "1/s").unwrap()).build().unwrap()).unwrap();
    /// ```
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// The units that each request spends; 1 by default, and at most [`MAX_COST`](crate::Request::MAX_COST).
    pub fn cost(mut self, units: u64) -> Self {
        self.units = units;
        self.rules.cost = Box::new(move |_| units);
        self
    }

    /// A function that returns the units that a request spends. If they are above [`MAX_COST`](crate::Request::MAX_COST),
    /// the answer is 500.
    pub fn cost_of(mut self, units: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.units = 1;
        self.rules.cost = Box::new(units);
        self
    }

    /// Counts only requests whose response satisfies this function, such as failed log-ins; every request by default.
    ///
    /// The cost is spent before the service gets the request. If the response does not count, it is refunded before the
    /// response is passed on, and the fields show what is left after that. A service that fails counts like one that
    /// answers 500. Units that cannot be refunded stay spent, as do those of a request that is cancelled before there is
    /// a response.
    pub fn count(mut self, counts: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.rules.count = Some(Box::new(counts));
        self
    }

    /// Passes requests that satisfy this function to the service without a decision.
    pub fn skip(mut self, is_skipped: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.rules.skip = Some(Box::new(is_skipped));
        self
    }

    /// Answers denied requests in place of the problem document. The fields are added to the response.
    pub fn on_denied(
        mut self,
        answer: impl Fn(&Denial<'_>, &Parts) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        self.rules.on_denied = Some(Box::new(answer));
        self
    }

    /// Is called for each request that the store did not decide, and returns what the layer does with it.
    pub fn on_outage(
        mut self,
        answer: impl Fn(&StoreOutage<'_>, &Parts) -> InPlace<B> + Send + Sync + 'static,
    ) -> Self {
        self.rules.on_outage = Some(Box::new(answer));
        self
    }

    /// Which fields tell clients their limits; [`Ietf`](HeaderStyle::Ietf) by default.
    pub fn headers(mut self, style: HeaderStyle) -> Self {
        self.rules.headers = self.rules.headers.style(style);
        self
    }

    /// How `x-ratelimit-reset` expresses a time; [`Seconds`](ResetForm::Seconds) by default.
    pub fn reset_form(mut self, form: ResetForm) -> Self {
        self.rules.headers = self.rules.headers.reset_form(form);
        self
    }

    /// Makes the layer.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when a policy is not known or its quotas cannot be read,
    /// when one is given twice, when none is given and the limiter has not exactly one, when the cost is above
    /// [`MAX_COST`](crate::Request::MAX_COST), and when the scope of quotas is not 1 to 256 bytes;
    /// [`Closed`](crate::ErrorKind::Closed) when the limiter is closed.
    pub fn build(mut self) -> Result<RateLimitLayer<B>, Error> {
        Request::new("").cost(self.units).checked()?;
        let (rules, scope) = (&mut self.rules, self.scope.as_deref());
        let given = std::mem::take(&mut rules.policies);
        if given.is_empty() {
            rules.policies.push(rules.limiter.policy_for(None, scope)?.name().to_owned());
        }
        for policy in &given {
            // Quotas can be written in several ways; equal ones have equal names.
            let name = rules.limiter.policy_for(Some(policy), scope)?.name().to_owned();
            if rules.policies.contains(&name) {
                return Err(Error::invalid_argument(format!(
                    "policy {} is given twice: once is enough",
                    excerpt(policy)
                )));
            }
            rules.policies.push(name);
        }
        Ok(RateLimitLayer { rules: Arc::new(self.rules) })
    }
}
