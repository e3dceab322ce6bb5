//! Limits the requests of axum, and of everything else that is made of tower's services (feature `tower`).
//!
//! A [`RateLimitLayer`] asks a [`Limiter`](crate::Limiter) about each request before the service sees it. What it lets
//! through carries [`Decided`], every response carries the [fields](crate::http::headers::fields) that tell clients their limits,
//! and a denied request is answered with a problem document, or its text where the client prefers that: 429 (Too Many
//! Requests), or 503 (Service Unavailable) when the store cannot be asked and the policy denies then. Bodies, streams among
//! them, pass through as they are.
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
//! Several layers may limit one request, each with its own limiter, key and policies: the outermost one decides first, and
//! writes the fields of all. The same policy of the same limiter is charged once for each key, at the cost of the outer
//! layer, whose decision the inner ones take over. What the outer ones have spent is given back when an inner one answers in
//! place of the service.
//!
//! Quotas without a name, such as `policy("100/minute")`, are one budget for all layers with the same quotas; on a route, give
//! them a [`scope`](RateLimitBuilder::scope).

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
