//! Limits the requests of axum and of other tower services (feature `tower`).
//!
//! A [`RateLimitLayer`] asks a [guard](crate::http::guard), whose rules are the same in every language, about each request before
//! the service gets it. Every request that passes a layer has the extension [`RequestLimits`](crate::http::guard::RequestLimits) with
//! the decisions so far, and every response has the [fields](crate::http::headers::fields) that show clients their limits. A denied
//! request gets a problem document, or its text where the client prefers that: 429 (Too Many Requests), or 503 (Service
//! Unavailable) when the store cannot decide and the outage policy denies. Bodies, including streams, pass through unchanged.
//!
//! ```
//! use polylimit::http::tower::{RateLimitLayer, header};
//! use polylimit::{Limiter, Policy};
//!
//! # fn layered() -> Result<axum::Router, polylimit::Error> {
//! let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute")?).build()?;
//! let key = header(http::HeaderName::from_static("x-api-key"), |_| "anonymous");
//! let limit = RateLimitLayer::builder(limiter, key).build()?;
//! let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" })).layer(limit);
//! # Ok(app)
//! # }
//! # layered().unwrap();
//! ```
//!
//! Several layers may limit one request, each with its own limiter, key and policies: the outermost one decides first,
//! and writes the fields of all. The same policy of the same limiter is charged once for each key, with the highest cost of the
//! layers. When an inner layer denies, the units of the outer layers are refunded; when a layer between them retries, its last
//! attempt decides.
//!
//! A policy with a quota of concurrency, such as `20 concurrent`, is reserved until the body of the response is sent or dropped because the
//! client has gone; see [`RequestHold`] for web sockets, and [`spent`](RateLimitBuilder::spent) for units that are known only then.
//!
//! A call of gRPC, such as of a server made by tonic, is denied as gRPC has it: with a [`GrpcStatus`] in place of a status of HTTP and a
//! problem document.
//!
//! A handler reads the decisions:
//!
//! ```
//! use polylimit::http::guard::RequestLimits;
//!
//! fn remaining(request: &http::Request<()>) -> Option<u64> {
//!     let limits = request.extensions().get::<RequestLimits>()?;
//!     limits.outcomes().iter().map(|(_, decision)| decision.remaining()).min()
//! }
//! # assert_eq!(remaining(&http::Request::new(())), None);
//! ```
//!
//! Quotas without a name, such as `policy("100/minute")`, are one budget for all layers with the same quotas, unless a
//! [`scope`](RateLimitBuilder::scope) names their budget or [`route`](RateLimitBuilder::route) finds the route of a request.

#[cfg(feature = "actix")]
#[doc(hidden)]
pub mod actix;
mod adaptive;
mod body;
mod builder;
mod grpc;
mod hold;
mod key;
mod limit;
mod response;
mod service;

pub use crate::http::headers::GrpcStatus;
pub use adaptive::{Adaptive, AdaptiveBody, AdaptiveLayer};
pub use body::ResponseBody;
pub use builder::RateLimitBuilder;
pub use hold::RequestHold;
pub use key::{User, client_address, header};
pub use limit::{Denial, OnOutage};
pub use service::{RateLimit, RateLimitLayer};
