//! A limit of concurrent calls that follows latency and errors, for a service that protects itself.
//!
//! The right N of `N concurrent` depends on the machine, the release and the databases behind it, and changes with them. An
//! [`AdaptiveLimit`] finds N between two bounds: it grows while calls are as fast as usual, and shrinks when they become slower or
//! fail. It counts the calls of this process only, without a store:
//!
//! ```
//! use polylimit::adaptive::AdaptiveLimit;
//!
//! # fn work() -> Result<(), ()> { Ok(()) }
//! let limit = AdaptiveLimit::builder(4..=400).build()?;
//! match limit.try_begin() {
//!     Some(call) => match work() {
//!         Ok(()) => call.succeeded(),
//!         Err(()) => call.failed(), // a sign of overload, such as a timeout; drop the call after any other error
//!     },
//!     None => println!("overloaded: answer 503"),
//! }
//! assert_eq!((limit.limit(), limit.in_flight()), (4, 0));
//! # Ok::<(), polylimit::Error>(())
//! ```
//!
//! # Algorithms
//!
//! Both are those of Netflix's [concurrency-limits](https://github.com/Netflix/concurrency-limits), which took them from the
//! congestion control of TCP; this is an implementation of its own, in integers. The calls that end in a window, by default 100 ms and at
//! least 10 calls, are one measurement. More than the tolerated failures (5 %), and N becomes 9/10 of what it was. If never more
//! than half of N were in flight, N does not grow, because nothing shows that a larger N would do.
//!
//! - [`gradient`](AdaptiveLimitBuilder::gradient), the default, compares the mean latency of the window with the mean of about the
//!   last 6,000 windows, as `Gradient2Limit` does: a higher latency means that a queue has formed. It needs no number.
//! - [`aimd`](AdaptiveLimitBuilder::aimd) knows the latency that is too long, as `AIMDLimit` does: additive increase by 1 for each
//!   window, multiplicative decrease when calls took longer or failed.
//!
//! `docs/adaptive.md` has simulations of both.

mod aimd;
mod algorithm;
mod builder;
mod call;
mod gradient;
mod limit;
mod notification;
mod shared;
mod thousandths;
mod time;
mod window;

pub use builder::AdaptiveLimitBuilder;
pub use call::Call;
pub use limit::AdaptiveLimit;
