//! Exact rate limiting.

mod algorithm;
mod backoff;
pub mod blocking;
mod client_address;
mod clock;
mod decision;
mod error;
mod explanation;
pub mod headers;
mod limiter;
mod policy;
mod quota;
mod request;
mod store;
mod transition;

pub use backoff::{Backoff, BackoffBuilder, server_wait};
pub use client_address::{ClientAddress, ClientAddressRules, ClientAddressRulesBuilder, ForwardingHeader};
pub use clock::{Clock, ManualClock};
pub use decision::{Decision, Degradation, QuotaUsage, Source, Usage};
pub use error::{Error, ErrorKind};
pub use limiter::{Limiter, LimiterBuilder};
pub use policy::Policy;
pub use quota::{Algorithm, Quota, QuotaBuilder};
pub use request::Request;
