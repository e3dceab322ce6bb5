//! The rules of a decision: quotas, policies, algorithms, transitions and explanations. Pure: no I/O, no clock.

pub(crate) mod algorithm;
pub(crate) mod codec;
pub(crate) mod decision;
pub(crate) mod explanation;
pub(crate) mod general;
pub(crate) mod history;
pub(crate) mod penalty;
pub(crate) mod policy;
pub(crate) mod quota;
pub(crate) mod request;
pub(crate) mod reservation;
pub(crate) mod transition;
pub(crate) mod words;
