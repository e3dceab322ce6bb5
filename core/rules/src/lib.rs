//! The rules of a decision: quotas, policies, algorithms, transitions and explanations. Pure: no I/O, no clock.

#[doc(hidden)]
pub mod algorithm;
#[doc(hidden)]
pub mod codec;
pub mod decision;
pub mod error;
#[doc(hidden)]
pub mod explanation;
#[doc(hidden)]
pub mod general;
#[doc(hidden)]
pub mod groups;
#[doc(hidden)]
pub mod history;
#[doc(hidden)]
pub mod names;
#[doc(hidden)]
pub mod penalty;
pub mod policy;
pub mod quota;
pub mod report;
pub mod request;
pub mod reservation;
pub mod suggestion;
pub mod time;
#[doc(hidden)]
pub mod transition;
#[doc(hidden)]
pub mod units;
#[doc(hidden)]
pub mod wire;
#[doc(hidden)]
pub mod words;
#[doc(hidden)]
pub mod zone;

pub use decision::Decision;
pub use error::{Error, ErrorKind};
pub use policy::Policy;
pub use quota::Quota;
pub use request::Request;
