//! The C interface of polylimit. It converts types and decides nothing: every default, every number and every text comes
//! from the core.
//!
//! Every export checks its arguments for NULL, length and size, runs its work in `error::guard`, which catches panics, and
//! writes its outputs only when it succeeds. The documentation for callers is the header, which cbindgen generates from these
//! sources, and `README.md`.
//!
//! Layers, from the bottom up; each uses only those before it:
//!
//! - `version`, `error`: statuses, messages, panics
//! - `arguments`, `names`: pointers and texts of callers, names of numbers
//! - `decision`, `quota`, `clock`, `options`, `credentials`, `client_address`: values
//! - `request`, `reservation_options`, `attributes`, `request_facts`: one operation as a value
//! - `limiter`: its life and its policies
//! - `operations`, `reservation`, `completions`, `reservation_handle`, `configuration`, `change`, `matching`, `request_decision`,
//!   `guard`, `headers`, `diagnostics`, `report`, `query`, `metrics`: everything that uses a limiter

#![allow(
    unsafe_code,
    reason = "a C interface takes and returns raw pointers; every one goes through `arguments`"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "README.md states once what callers must guarantee; it is the same for every export"
)]
#![allow(
    clippy::doc_markdown,
    reason = "the documentation is read in the header, where backticks have no meaning"
)]
#![allow(
    non_camel_case_types,
    reason = "the types have the names of the header, which is generated from them"
)]

mod arguments;
pub mod attributes;
pub mod backoff;
pub mod change;
mod check_state;
pub mod client_address;
pub mod clock;
pub mod completions;
pub mod configuration;
pub mod credentials;
pub mod decision;
pub mod diagnostics;
pub mod error;
pub mod guard;
pub mod guard_check;
pub mod guard_response;
pub mod headers;
pub mod limiter;
pub mod matching;
pub mod metrics;
pub mod names;
pub mod operations;
pub mod options;
pub mod query;
pub mod quota;
pub mod report;
pub mod request;
pub mod request_decision;
pub mod request_facts;
pub mod reservation;
pub mod reservation_handle;
pub mod reservation_options;
pub mod throttle;
pub mod version;
