//! Limits the requests of axum and of other tower services (feature `tower`).
//!
//! A [`RateLimitLayer`] asks a [`Limiter`](crate::Limiter) about each request before the service gets it. A request that
//! passes carries [`Decided`], and every response carries the [fields](crate::http::headers::fields) that tell clients
//! their limits. A denied request is answered with a problem document, or with its text where the client prefers that:
//! 429 (Too Many Requests), or 503 (Service Unavailable) when the store cannot decide and the outage policy denies.
//! Bodies, including streams, pass through unchanged.
//!
//! ```
//! use polylimit::tower::{RateLimitLayer, header};
//! use polylimit::{Limiter, Policy};
//!
//! # fn layered() -> Result<axum::Router, polylimit::Error> {
//! let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute")?).build()?;
//! let key = header(http::HeaderName::from_static("x-api-key"), |_| "nobody");
//! let limit = RateLimitLayer::builder(limiter, key).build()?;
//! let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" })).layer(limit);
//! # Ok(app)
//! # }
//! # layered().unwrap();
//! ```
//!
//! Several layers may limit one request, each with its own limiter, key and policies: the outermost one decides first,
//! and writes the fields of all. The same policy of the same limiter is charged once for each key, at the cost of the
//! outer layer, whose decision the inner layers reuse. When an inner layer answers in place of the service, the outer
//! layers refund what they have spent.
//!
//! Quotas without a name, such as `policy("100/minute")`, are one budget for all layers with the same quotas; a layer on
//! a route can give them a [`scope`](RateLimitBuilder::scope).

mod body;
mod builder;
mod decided;
mod denial;
mod key;
mod rules;
mod service;

pub use body::ResponseBody;
pub use builder::RateLimitBuilder;
pub use decided::Decided;
pub use denial::{Denial, InPlace, StoreOutage};
pub use key::{client_address, header};
pub use service::{RateLimit, RateLimitLayer};
