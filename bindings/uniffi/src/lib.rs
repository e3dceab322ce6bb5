//! polylimit for Kotlin, Java, Ruby and Swift: one interface, exported.
//!
//! Nothing is decided here: every type and function converts what the core takes and gives. Numbers are signed, because
//! Java has no others; what is below 0 is refused as the core refuses what is too large.

#![allow(
    unsafe_code,
    unreachable_pub,
    clippy::needless_pass_by_value,
    reason = "exported functions have C's calling convention, are called from outside, and own what they are given"
)]
#![allow(
    clippy::missing_errors_doc,
    reason = "the errors are those of the core, whose documentation says them"
)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod client_address;
mod clock;
mod decision;
mod error;
mod event;
mod face;
mod headers;
mod limiter;
mod number;
mod policy;
mod request;
mod settings;
mod span;
mod waiting;

pub use client_address::ClientAddressRules;
pub use clock::ManualClock;
pub use decision::{CheckResult, Decision, Finding, QuotaUsage, Usage, refunded};
pub use error::{ErrorRow, PolylimitError, error_table};
pub use event::{DegradedEvent, take_events, wait_for_events};
pub use headers::{HeaderField, Outcome, Problem, Response, respond};
pub use limiter::{AsyncLimiter, Limiter};
pub use policy::{Policy, QuotaNumbers, quota};
pub use request::Request;
pub use settings::{Settings, StoreOption, store_options, suggestion};
pub use span::Span;
pub use waiting::Waiting;

uniffi::setup_scaffolding!("polylimit_native");
