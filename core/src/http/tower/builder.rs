//! The options of a layer, by the names that they have in every language.

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
    /// The cost where it is the same for every request.
    units: u64,
}

impl<B> RateLimitLayer<B> {
    /// Starts a layer whose requests count for what `key` gives: any text or bytes, or a ready-made function such as
    /// [`client_address`](crate::http::tower::client_address) or [`header`](crate::http::tower::header()). `key` has to give
    /// one for every request; for requests that may have no key see [`RateLimitBuilder::key`]. What has to be looked up
    /// asynchronously is looked up by a layer outside of this one, which puts it into the request's extensions.
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

    /// Counts requests by this key where they have one, such as a user who has logged in. A request for which it gives `None`
    /// counts for the key that the builder was made with.
    ///
    /// With [`client_address`](crate::http::tower::client_address) as that key, the rule is the one of the middleware in other languages: a
    /// request without a key counts for its client's address. The layer itself knows no address, since each server keeps it in a
    /// place of its own. When this is called several times, the last function is asked first.
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

    /// Adds a policy by its name, or by its quotas such as `100/minute`. It may be left out where the limiter has one.
    ///
    /// Several are decided in one round trip. When one of them denies, what the others took is given back to them.
    pub fn policy(mut self, name_or_quotas: impl Into<String>) -> Self {
        self.rules.policies.push(name_or_quotas.into());
        self
    }

    /// Where quotas without a name count: 1 to 256 bytes, such as `/login` or `GET /users/{id}`. All layers that name the same
    /// scope share one budget per key, in every process that shares the store.
    ///
    /// A layer is made before it has a route, and sees none. Without a scope, layers with the same quotas share one budget, on
    /// however many routes they are: a layer on a route is given the route as its scope. A policy with a name is shared whatever
    /// the scope.
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

    /// The units that each request spends; 1 unless told otherwise, and at most
    /// [`MAX_COST`](crate::Request::MAX_COST).
    pub fn cost(mut self, units: u64) -> Self {
        self.units = units;
        self.rules.cost = Box::new(move |_| units);
        self
    }

    /// The units that a request spends. Above [`MAX_COST`](crate::Request::MAX_COST) it is answered with 500.
    pub fn cost_of(mut self, units: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.units = 1;
        self.rules.cost = Box::new(units);
        self
    }

    /// Counts only requests whose response is of this kind, such as failed log-ins; every one unless told otherwise.
    ///
    /// The cost is spent before the service sees the request, and given back before the response that does not count is
    /// handed on, whose fields tell what is left then. A service that fails counts as one that answers 500. What cannot be given back stays spent, as it does for
    /// a request that is given up before there is a response.
    pub fn count(mut self, counts: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.rules.count = Some(Box::new(counts));
        self
    }

    /// Lets requests of this kind through without a decision.
    pub fn skip(mut self, is_skipped: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.rules.skip = Some(Box::new(is_skipped));
        self
    }

    /// Answers denied requests in place of the problem document. The fields are added to that response.
    pub fn on_denied(
        mut self,
        answer: impl Fn(&Denial<'_>, &Parts) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        self.rules.on_denied = Some(Box::new(answer));
        self
    }

    /// Hears of each request that the store did not decide, and says what becomes of it.
    pub fn on_outage(
        mut self,
        answer: impl Fn(&StoreOutage<'_>, &Parts) -> InPlace<B> + Send + Sync + 'static,
    ) -> Self {
        self.rules.on_outage = Some(Box::new(answer));
        self
    }

    /// Which fields tell clients their limits; [`Ietf`](HeaderStyle::Ietf) unless told otherwise.
    pub fn headers(mut self, style: HeaderStyle) -> Self {
        self.rules.headers = self.rules.headers.style(style);
        self
    }

    /// How `x-ratelimit-reset` tells a time; [`Seconds`](ResetForm::Seconds) unless told otherwise.
    pub fn reset_form(mut self, form: ResetForm) -> Self {
        self.rules.headers = self.rules.headers.reset_form(form);
        self
    }

    /// Makes the layer.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when a policy is not known or its quotas cannot be read, when one is
    /// given twice, when none is given and the limiter has not exactly one, when the cost is above
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
            // Quotas may be written in several ways: equal ones have equal names.
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
