//! What the limiter asks of a store and what a store answers: charges, options, findings and counters; and the trait of a store outside
//! this project.

#[doc(hidden)]
pub mod charge;
pub mod credentials;
#[doc(hidden)]
pub mod duration;
pub mod families;
pub mod finding;
pub mod interface;
pub mod lease_size;
pub mod option;
pub mod outage;
#[doc(hidden)]
pub mod policy_table;
pub mod scan;
#[doc(hidden)]
pub mod share;
pub mod stats;
#[doc(hidden)]
pub mod stored_policy;
