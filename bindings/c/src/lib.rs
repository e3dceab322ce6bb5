//! The C interface of polylimit. It converts types and decides nothing: every default, every number and every text comes
//! from the core.
//!
//! Each export is written so: its arguments are checked for NULL, length and size, its work runs behind
//! `failure::guard`, which stops panics, and its outputs are written only when it succeeds. What callers have to
//! know stands in the header, which is made of these sources, and in `README.md`.

#![allow(
    unsafe_code,
    reason = "a C interface takes and gives raw pointers; every one goes through `pointer` or `text`"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "README.md states once what callers owe; it is the same everywhere"
)]
#![allow(
    clippy::doc_markdown,
    reason = "the documentation is read in the header, where backticks mean nothing"
)]
#![allow(non_camel_case_types, reason = "the types have their C names, of which the header is made")]

pub mod answer;
pub mod calls;
pub mod client_address;
pub mod clock;
pub mod completions;
pub mod decision;
pub mod degraded;
mod event;
mod failure;
pub mod headers;
pub mod limiter;
pub mod names;
pub mod options;
mod pointer;
pub mod problem;
pub mod quota;
pub mod report;
pub mod request;
pub mod status;
mod text;
pub mod usage;
pub mod version;
