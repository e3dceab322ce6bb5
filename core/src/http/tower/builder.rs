//! The options of a layer, with the same names as in every other language.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Response, response};

use crate::http::guard::{Guard, GuardBuilder, KeyPart, MissingKey, OutageReport};
use crate::http::headers::HeaderSettings;
use crate::http::tower::limit::{Denial, Functions, Limit, OnOutage};
use crate::http::tower::service::RateLimitLayer;
use crate::limiter::Limiter;
use polylimit_rules::error::Error;

/// The options of a [`RateLimitLayer`] before they are checked. `B` is the body of the service's responses.
#[must_use = "a builder makes a layer only when `build` is called"]
pub struct RateLimitBuilder<B> {
    guard: GuardBuilder,
    functions: Functions<B>,
}

impl<B> RateLimitLayer<B> {
    /// Starts a layer that counts requests by the result of `address`: usually
    /// [`client_address`](crate::http::tower::client_address), but any function that returns text or bytes for every request.
    /// The layer itself knows no address, since each server stores it in its own place. With [`key`](RateLimitBuilder::key) or
    /// [`key_part`](RateLimitBuilder::key_part), the result counts where these need the client's address.
    pub fn builder<K: AsRef<[u8]>>(
        limiter: Limiter,
        address: impl Fn(&Parts) -> K + Send + Sync + 'static,
    ) -> RateLimitBuilder<B> {
        RateLimitBuilder {
            guard: Guard::builder(limiter),
            functions: Functions {
                address: Box::new(move |request| address(request).as_ref().to_vec()),
                key: None,
                path_parameter: None,
                peer: None,
                route: None,
                path: None,
                attributes: None,
                policies: None,
                cost: None,
                count: None,
                spent: None,
                skip: None,
                on_denied: None,
                on_outage: None,
            },
        }
    }
}

impl<B> RateLimitLayer<B> {
    /// Starts a layer that decides by the limiter's configuration: its rules determine the policies, keys and costs of a request by
    /// method, path, client, headers, the extension [`User`](crate::http::tower::User) as `user`, and
    /// [`attributes`](RateLimitBuilder::attributes). `peer` returns the other end of the socket, as for
    /// [`client_address`](crate::http::tower::client_address).
    ///
    /// ```
    /// use axum::Router;
    /// use axum::routing::get;
    /// use polylimit::Limiter;
    /// use polylimit::http::tower::RateLimitLayer;
    ///
    /// # fn layered() -> Result<Router, polylimit::Error> {
    /// let document = r#"
    ///     polylimit = 1
    ///     [policies.api]
    ///     quotas = "100/minute"
    ///     [[rules]]
    ///     match = { path = "/v1/{*rest}" }
    ///     apply = [{ policy = "api", key = "{client}" }]
    /// "#;
    /// let limiter = Limiter::builder().document(document).build()?;
    /// let limit = RateLimitLayer::by_configuration(limiter, |_| None).build()?;
    /// let app = Router::new().route("/v1/hello", get(|| async { "hello" })).layer(limit);
    /// # Ok(app)
    /// # }
    /// # layered().unwrap();
    /// ```
    pub fn by_configuration(
        limiter: Limiter,
        peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> RateLimitBuilder<B> {
        let mut builder = Self::builder(limiter, |_| "");
        builder.guard = builder.guard.by_configuration();
        builder.functions.peer = Some(Box::new(peer));
        builder
    }
}

impl<B> RateLimitBuilder<B> {
    /// Further attributes that the program provides, such as `plan` or `country`, for a layer that decides [by the
    /// configuration](RateLimitLayer::by_configuration): names of lower-case letters, digits and `_`, with their values.
    pub fn attributes(
        mut self,
        attributes: impl Fn(&Parts) -> Vec<(String, String)> + Send + Sync + 'static,
    ) -> Self {
        self.functions.attributes = Some(Box::new(attributes));
        self
    }

    /// Counts requests by this key, such as a user who has logged in. A request for which it returns `None` is counted as
    /// [`missing_key`](Self::missing_key) says. When this is called several times, the last function is tried first. A key that
    /// needs an asynchronous lookup comes from an outer layer, which puts it into the request's extensions.
    ///
    /// ```
    /// use std::net::SocketAddr;
    ///
    /// use axum::extract::ConnectInfo;
    /// use http::request::Parts;
    /// use polylimit::http::tower::{RateLimitLayer, client_address};
    /// use polylimit::http::ClientAddressRules;
    /// use polylimit::{Limiter, Policy};
    ///
    /// #[derive(Clone)]
    /// struct Account(u64);
    ///
    /// # fn layered() -> Result<axum::Router, polylimit::Error> {
    /// let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute")?).build()?;
    /// let rules = ClientAddressRules::builder().build()?;
    /// let peer = |request: &Parts| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip());
    /// let limit = RateLimitLayer::builder(limiter, client_address(rules, peer))
    ///     .key(|request| Some(format!("account:{}", request.extensions.get::<Account>()?.0)))
    ///     .build()?;
    /// let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" })).layer(limit);
    /// # Ok(app)
    /// # }
    /// # layered().unwrap();
    /// ```
    pub fn key<K: AsRef<[u8]>>(mut self, key: impl Fn(&Parts) -> Option<K> + Send + Sync + 'static) -> Self {
        let otherwise = self.functions.key.take();
        self.functions.key = Some(Box::new(move |request| match key(request) {
            Some(key) => Some(key.as_ref().to_vec()),
            None => otherwise.as_ref().and_then(|otherwise| otherwise(request)),
        }));
        self
    }

    /// Adds a part of the key, in place of a function: `address`, `user`, `header:NAME`, `cookie:NAME` or `path:NAME`. The user
    /// is the extension [`User`](crate::http::tower::User), and path parameters need
    /// [`path_parameter`](Self::path_parameter). A request without one of the parts is counted as
    /// [`missing_key`](Self::missing_key) says.
    pub fn key_part(mut self, part: KeyPart) -> Self {
        self.guard = self.guard.key_part(part);
        self
    }

    /// Returns a path parameter by its name, for [`KeyPart::Path`]. Each router stores them in its own place; axum's are private,
    /// so a layer on one route reads the path itself:
    ///
    /// ```
    /// use axum::Router;
    /// use axum::routing::get;
    /// use polylimit::http::tower::RateLimitLayer;
    ///
    /// # fn layered(limiter: polylimit::Limiter) -> Result<Router, polylimit::Error> {
    /// let limit = RateLimitLayer::builder(limiter, |_| "all")
    ///     .key_part("path:tenant".parse()?)
    ///     .path_parameter(|request, _| request.uri.path().split('/').nth(2).map(str::to_owned))
    ///     .build()?;
    /// let app = Router::new().route("/tenants/{tenant}", get(|| async { "hello" }).layer(limit));
    /// # Ok(app)
    /// # }
    /// # layered(polylimit::Limiter::builder().policy(polylimit::Policy::parse("api", "1/s").unwrap()).build().unwrap()).unwrap();
    /// ```
    pub fn path_parameter(
        mut self,
        find: impl Fn(&Parts, &str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.functions.path_parameter = Some(Box::new(find));
        self
    }

    /// How a request is counted for which the key's function returns none, or that lacks a part of its key;
    /// [`Address`](MissingKey::Address) by default.
    pub fn missing_key(mut self, missing: MissingKey) -> Self {
        self.guard = self.guard.missing_key(missing);
        self
    }

    /// Adds a policy by its name, or by its quotas such as `100/minute`. It may be omitted if the limiter has only one.
    ///
    /// Several policies are decided in one round trip. When one of them denies, nothing is spent under the others.
    pub fn policy(mut self, name_or_quotas: impl Into<String>) -> Self {
        self.guard = self.guard.policy(name_or_quotas);
        self
    }

    /// Replaces the layer's policies, in the form of [`policy`](Self::policy); an empty list is refused when the layer is built.
    pub fn policies(mut self, policies: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.guard = self.guard.policies(policies);
        self
    }

    /// A function that returns the policies of a request, such as those of its client's plan: names, or quotas as text. For
    /// `None` the policies of the layer apply, if it has any; with an empty list the request is not limited. The texts must come
    /// from the program and never from its users, who would choose their own limits.
    ///
    /// ```
    /// use polylimit::Limiter;
    /// use polylimit::http::tower::RateLimitLayer;
    ///
    /// # fn layer(limiter: Limiter) -> Result<RateLimitLayer<axum::body::Body>, polylimit::Error> {
    /// let limit = RateLimitLayer::builder(limiter, |_| "all").policy("100/minute").policies_of(|request| {
    ///     let is_large = request.headers.get("x-plan")? == "large";
    ///     is_large.then(|| vec!["1000/minute", "20000/hour"])
    /// });
    /// # limit.build()
    /// # }
    /// # layer(Limiter::builder().build().unwrap()).unwrap();
    /// ```
    pub fn policies_of<I: IntoIterator<Item: Into<String>>>(
        mut self,
        policies: impl Fn(&Parts) -> Option<I> + Send + Sync + 'static,
    ) -> Self {
        self.guard = self.guard.per_request(true);
        self.functions.policies =
            Some(Box::new(move |request| Some(policies(request)?.into_iter().map(Into::into).collect())));
        self
    }

    /// The scope of quotas without a name: 1 to 256 bytes, such as `/login` or `GET /users/{id}`. All layers with the
    /// same quotas and scope share one budget per key, in every process that shares the store.
    ///
    /// A layer is built before it is added to a route, so it does not know its route unless [`route`](Self::route) finds it.
    /// Without both, layers with the same quotas share one budget, on any number of routes. A policy with a name is shared
    /// regardless of the scope.
    ///
    /// ```
    /// use axum::Router;
    /// use axum::routing::{get, post};
    /// use polylimit::Limiter;
    /// use polylimit::http::tower::RateLimitLayer;
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
        self.guard = self.guard.scope(scope);
        self
    }

    /// The route that the router has matched, or `None`, for a layer that is behind routing. Quotas without a name and without
    /// a [`scope`](Self::scope) have a budget for each route, and a layer that decides [by the
    /// configuration](RateLimitLayer::by_configuration) has it as the attribute `route`. Parameters are read as `:id` and
    /// `{id}`, and catch-alls as `*rest` and `{*rest}`; rules have them as `{id}` and `{*rest}`. It must never return a value
    /// that a client chooses, such as the path of the request: each path would have its own budget.
    ///
    /// axum puts the route into the request's extensions, with the prefixes of nested routers. It is available to layers that
    /// are added by `Router::layer`, `Router::route_layer` or the `layer` of a handler:
    ///
    /// ```
    /// use axum::Router;
    /// use axum::extract::MatchedPath;
    /// use axum::routing::get;
    /// use polylimit::http::tower::RateLimitLayer;
    ///
    /// # fn layered(limiter: polylimit::Limiter) -> Result<Router, polylimit::Error> {
    /// let limit = RateLimitLayer::builder(limiter, |_| "all")
    ///     .policy("5/minute")
    ///     .route(|request| Some(request.extensions.get::<MatchedPath>()?.as_str().to_owned()))
    ///     .build()?;
    /// let users = Router::new().route("/{id}", get(|| async { "hello" }));
    /// let app = Router::new().nest("/v1/users", users.clone()).nest("/v2/users", users).layer(limit);
    /// # Ok(app)
    /// # }
    /// # layered(polylimit::Limiter::builder().build().unwrap()).unwrap();
    /// ```
    pub fn route(mut self, route: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.functions.route = Some(Box::new(route));
        self
    }

    /// The whole path of a request, for the rules of a layer that decides [by the configuration](RateLimitLayer::by_configuration): a
    /// router nested in another one sees only what follows its prefix. `None`, and without this function, it is that of the request.
    ///
    /// With axum it is the extension `OriginalUri` (axum's feature `original-uri`):
    ///
    /// ```
    /// use axum::extract::OriginalUri;
    /// use polylimit::http::tower::RateLimitLayer;
    ///
    /// # fn layer(limiter: polylimit::Limiter) -> Result<RateLimitLayer<axum::body::Body>, polylimit::Error> {
    /// let limit = RateLimitLayer::by_configuration(limiter, |_| None)
    ///     .path(|request| Some(request.extensions.get::<OriginalUri>()?.path().to_owned()));
    /// # limit.build()
    /// # }
    /// # layer(polylimit::Limiter::builder().document("polylimit = 1").build().unwrap()).unwrap();
    /// ```
    pub fn path(mut self, path: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.functions.path = Some(Box::new(path));
        self
    }

    /// The units that each request spends; 1 by default, and at most [`MAX_COST`](crate::Request::MAX_COST).
    pub fn cost(mut self, units: u64) -> Self {
        self.guard = self.guard.cost(units);
        self
    }

    /// A function that returns the units that a request spends. If they are above [`MAX_COST`](crate::Request::MAX_COST),
    /// the response has status 500.
    pub fn cost_of(mut self, units: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.functions.cost = Some(Box::new(units));
        self
    }

    /// Counts only requests whose response satisfies this function, such as failed log-ins; every request by default.
    ///
    /// The cost is spent before the service gets the request. If the response does not count, it is refunded before the
    /// response is passed on, and the fields show what is left after that. A service that fails counts like one that
    /// answers 500. Units that cannot be refunded stay spent, as do those of a request that is cancelled before there is
    /// a response.
    pub fn count(mut self, counts: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.functions.count = Some(Box::new(counts));
        self
    }

    /// A function of the response that returns the units that its request has spent: from 0 to
    /// [`MAX_COST`](crate::Request::MAX_COST), and less or more than the cost. Every policy is then reserved at the cost until
    /// the response is done, as a policy with concurrency always is, and the returned units are charged. It is called when the
    /// last byte of the body is sent or the body is dropped because the client has gone. For `None`, for units beyond the
    /// bounds, and for a service that fails, the cost is charged; nothing is charged where the response does not
    /// [count](Self::count).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use polylimit::Limiter;
    /// use polylimit::http::tower::RateLimitLayer;
    ///
    /// /// The tokens that a response has sent so far: its body counts them.
    /// #[derive(Clone, Default)]
    /// struct Tokens(Arc<AtomicU64>);
    ///
    /// # fn layer(limiter: Limiter) -> Result<RateLimitLayer<axum::body::Body>, polylimit::Error> {
    /// let limit = RateLimitLayer::builder(limiter, |_| "all")
    ///     .policy("20 concurrent; 100000/minute token_bucket")
    ///     .cost(4_000)
    ///     .spent(|response| Some(response.extensions.get::<Tokens>()?.0.load(Ordering::Relaxed)));
    /// # limit.build()
    /// # }
    /// # layer(Limiter::builder().build().unwrap()).unwrap();
    /// ```
    pub fn spent(mut self, spent: impl Fn(&response::Parts) -> Option<u64> + Send + Sync + 'static) -> Self {
        self.guard = self.guard.reserved(true);
        self.functions.spent = Some(Arc::new(spent));
        self
    }

    /// Like [`spent`](Self::spent), but as the response reports it: a text such as `usage:total`, `header:x-tokens` or
    /// `json:usage.total_tokens`; see [`GuardBuilder::spent_by`]. The body is read as it passes, and is not kept.
    pub fn spent_by(mut self, meter: impl Into<String>) -> Self {
        self.guard = self.guard.spent_by(meter);
        self
    }

    /// Like [`spent_by`](Self::spent_by), but for each policy, in their order; see [`GuardBuilder::spent_by_each`].
    pub fn spent_by_each(mut self, meters: impl IntoIterator<Item = Option<String>>) -> Self {
        self.guard = self.guard.spent_by_each(meters);
        self
    }

    /// The units that each request spends under each policy, in their order; see [`GuardBuilder::costs`].
    pub fn costs(mut self, units: impl IntoIterator<Item = Option<u64>>) -> Self {
        self.guard = self.guard.costs(units);
        self
    }

    /// How long reserved units stay set aside after this process has died: 1 ms to 48 h; 30 seconds by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.guard = self.guard.ttl(ttl);
        self
    }

    /// How long the reservation of a request is renewed; one hour by default. A response that takes longer loses it after the
    /// [ttl](Self::ttl).
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.guard = self.guard.max_age(max_age);
        self
    }

    /// Holds a request that would be denied for at most this long, up to 60 s, until it would be admitted; see [`GuardBuilder::wait`]. Zero,
    /// the default, holds none. A request whose future is dropped meanwhile, because its client has left, has spent nothing.
    pub fn wait(mut self, longest: Duration) -> Self {
        self.guard = self.guard.wait(longest);
        self
    }

    /// How many requests may be [held](Self::wait) at the same time: 1 to 1,000,000, and 100 by default. A further one is denied at once.
    pub fn max_waiting(mut self, most: u32) -> Self {
        self.guard = self.guard.max_waiting(most);
        self
    }

    /// Passes requests that satisfy this function to the service without a decision.
    pub fn skip(mut self, is_skipped: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.functions.skip = Some(Box::new(is_skipped));
        self
    }

    /// Limits only requests of this method, such as `POST`, in any case; may be called several times. By default all methods
    /// are limited. `GET` includes `HEAD`.
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.guard = self.guard.method(method);
        self
    }

    /// Whether `HEAD` is separate from `GET`, so that a limit on `GET` does not cover it. By default it is not, because
    /// handlers of `GET` respond to `HEAD`.
    pub fn separate_head(mut self, is_separate: bool) -> Self {
        self.guard = self.guard.separate_head(is_separate);
        self
    }

    /// Whether preflights count, the requests by which browsers ask whether a page may send another. By default a layer that
    /// does not know the [`route`](Self::route) of a request does not count them, because it is in front of routing. A layer on
    /// a handler that responds to `OPTIONS` itself, such as one of `axum::routing::any`, needs one of the two.
    pub fn count_preflights(mut self, counts: bool) -> Self {
        self.guard = self.guard.count_preflights(counts);
        self
    }

    /// The origins whose pages may read denials, such as `https://app.example`, or only `*` for all. A service whose CORS layer is
    /// outside of this one needs none: add that layer after this one.
    pub fn cors_origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.guard = self.guard.cors_origins(origins);
        self
    }

    /// Decides, spends and reports without ever denying; off by default.
    pub fn dry_run(mut self, is_dry_run: bool) -> Self {
        self.guard = self.guard.dry_run(is_dry_run);
        self
    }

    /// The status of a request that is over its limit, 400 to 599; 429 by default. Responses because of an outage keep 503.
    pub fn status(mut self, status: u16) -> Self {
        self.guard = self.guard.status(status);
        self
    }

    /// The sentence in the body of a request that is over its limit, in place of the wait.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.guard = self.guard.message(message);
        self
    }

    /// Builds the response to each request that the layer does not pass on, in place of the problem document. The fields are
    /// added to the response.
    pub fn on_denied(
        mut self,
        respond: impl Fn(&Denial<'_>, &Parts) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        self.functions.on_denied = Some(Box::new(respond));
        self
    }

    /// Is called for each request that the store did not decide, and returns its outcome.
    pub fn on_outage(
        mut self,
        decide: impl Fn(&OutageReport<'_>, &Parts) -> OnOutage + Send + Sync + 'static,
    ) -> Self {
        self.functions.on_outage = Some(Box::new(decide));
        self
    }

    /// Which fields show clients their limits, in which form and under which names; those of
    /// [`Ietf`](crate::http::headers::HeaderStyle::Ietf) by default.
    pub fn headers(mut self, settings: impl Into<HeaderSettings>) -> Self {
        self.guard = self.guard.headers(settings);
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// As [`GuardBuilder::build`], and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the key has a function and
    /// parts, or a path parameter without [`path_parameter`](Self::path_parameter); when a layer that decides by the configuration has
    /// a key or a cost, or another one has [`attributes`](Self::attributes) or a [`path`](Self::path).
    pub fn build(self) -> Result<RateLimitLayer<B>, Error> {
        let Self { guard, functions } = self;
        let guard = guard.per_route(functions.route.is_some()).build()?;
        if functions.spent.is_some() && guard.has_meters() {
            return Err(Error::invalid_argument(
                "spent is a function, and spent_by is given: allowed is one of the two",
            ));
        }
        if functions.key.is_some() && !guard.key_parts().is_empty() {
            return Err(Error::invalid_argument("the key is a function and has parts: use one of them"));
        }
        if guard.is_by_configuration() {
            let beside = [("key", functions.key.is_some()), ("cost_of", functions.cost.is_some())];
            if let Some((name, _)) = beside.iter().find(|(_, is_given)| *is_given) {
                return Err(Error::invalid_argument(format!(
                    "{name} is given to a layer that decides by the configuration: leave it to the rules of the document"
                )));
            }
        } else {
            let beside = [("attributes", functions.attributes.is_some()), ("path", functions.path.is_some())];
            if let Some((name, _)) = beside.iter().find(|(_, is_given)| *is_given) {
                return Err(Error::invalid_argument(format!(
                    "{name} is given to a layer with policies of its own: it is for RateLimitLayer::by_configuration"
                )));
            }
        }
        let path = guard.key_parts().iter().find(|part| matches!(part, KeyPart::Path(_)));
        if let Some(part) = path.filter(|_| functions.path_parameter.is_none()) {
            return Err(Error::invalid_argument(format!(
                "key part {part} needs a function that finds path parameters: set path_parameter"
            )));
        }
        Ok(RateLimitLayer { limit: Arc::new(Limit { guard, functions }) })
    }
}
