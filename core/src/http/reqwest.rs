//! Throttles the requests of reqwest (feature `reqwest`), as a middleware of `reqwest-middleware`.
//!
//! The rules are those of [`client`](crate::http::client). A request that would have to wait for too long fails with
//! `reqwest_middleware::Error::Middleware` of a [`Refusal`], and one for which the limiter cannot decide with that of an
//! [`Error`](crate::Error).
//!
//! ```no_run
//! use polylimit::Limiter;
//! use polylimit::http::reqwest::RateLimitMiddleware;
//! use reqwest_middleware::ClientBuilder;
//!
//! # async fn call() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder().build()?;
//! let client = ClientBuilder::new(reqwest::Client::new())
//!     .with(RateLimitMiddleware::new(limiter).policy("10/s token_bucket"))
//!     .build();
//! let response = client.get("https://api.example.com/").send().await?;
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use ::http::Extensions;
use ::reqwest::{Request, Response, Url};
use async_trait::async_trait;
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::http::client::{Attempts, Refusal, Step, Throttle};
use crate::limiter::Limiter;
use polylimit_runtime::backoff::Backoff;

type KeyFunction = Box<dyn Fn(&Request) -> Vec<u8> + Send + Sync>;

/// Keeps a client within its own limit and waits as servers demand.
///
/// All waits of a request end within `max_wait` of the backoff, and within the timeout that
/// `reqwest_middleware::RequestBuilder::timeout` gives it.
pub struct RateLimitMiddleware {
    limiter: Limiter,
    throttle: Throttle,
    policy: Option<Box<str>>,
    cost: u64,
    key: KeyFunction,
}

impl RateLimitMiddleware {
    /// A middleware whose attempts acquire one unit each from the limiter's only policy. Their key is the host, with the port
    /// unless it is the scheme's default.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            throttle: Throttle::new(Backoff::default()),
            policy: None,
            cost: 1,
            key: Box::new(|request| host(request.url()).into_bytes()),
        }
    }

    /// The limiter's policy, or quotas.
    #[must_use]
    pub fn policy(mut self, policy: &str) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// The key of a request.
    #[must_use]
    pub fn key(mut self, key: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.key = Box::new(key);
        self
    }

    /// The units of each attempt, up to 10^12; 1 by default.
    #[must_use]
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }

    /// How often and how long a request may wait; its `max_wait` bounds all waits of a request together.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.throttle = Throttle::new(backoff);
        self
    }

    async fn acquire(&self, key: &[u8], timeout: Duration, attempts: &mut Attempts) -> Result<()> {
        let mut request = crate::Request::new(key).cost(self.cost);
        if let Some(policy) = &self.policy {
            request = request.policy(policy);
        }
        let decision = self.limiter.acquire(request, timeout).await.map_err(Error::middleware)?;
        attempts.acquired(decision.allowed(), decision.retry_after());
        Ok(())
    }
}

#[async_trait]
impl Middleware for RateLimitMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let key = (self.key)(&request);
        let longest = request.timeout().copied();
        // A body that is a stream has no copy, and is then sent once.
        let copy = request.try_clone();
        let started = self.throttle.start(&key, request.method().as_str(), copy.is_some(), longest);
        let mut attempts = started.map_err(Error::middleware)?;
        let mut request = Some(request);
        loop {
            match attempts.step() {
                Step::Wait(wait) => tokio::time::sleep(wait).await,
                Step::Acquire(timeout) => self.acquire(&key, timeout, &mut attempts).await?,
                Step::Refuse(refusal) => return Err(Error::middleware::<Refusal>(refusal)),
                Step::Send => {
                    let again = copy.as_ref().and_then(Request::try_clone);
                    let Some(request) = request.take().or(again) else {
                        return Err(Error::middleware(std::io::Error::other("the body was sent already")));
                    };
                    let response = next.clone().run(request, extensions).await?;
                    if !attempts.responded(response.status().as_u16(), response.headers()) {
                        return Ok(response);
                    }
                }
            }
        }
    }
}

/// The host, with the port unless it is the scheme's default.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
