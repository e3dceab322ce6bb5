//! The Node-API addon of polylimit: converts types between JavaScript and the core, and nothing else.
//!
//! Programs use it through the files of `ts/`, which check the arguments; nothing here is public by itself. Requests and
//! answers pass through arrays that both sides share, because creating an object with Node-API takes longer than a decision:
//! see `request_layout.rs`.
//!
//! Layers, from the bottom up; each uses only those before it:
//!
//! - `error`, `number`, `text`, `field_text`, `function`: conversions between the languages
//! - `values`, `tables`, `client`, `credentials`, `client_address`, `event`, `request_layout`: what is converted
//! - `owned_request`, `request_attributes`, `shared_arrays`, `policy_interner`, `active_check`: requests and answers in shared memory
//! - `exchange`: the way of answers and events to JavaScript
//! - `limiter_handle`, `limiter`, `reservation`, `outcomes`, `configuration`, `report`, `guard_settings`, `guard_check`, `guard`: the operations

#![allow(
    unsafe_code,
    reason = "napi's macros expand to it; this crate's own places are in `client_address`, `exchange`, `function`, `guard`, `limiter_handle`, `reservation`, `shared_arrays` and `text`"
)]
#![cfg_attr(test, allow(dead_code, reason = "a build for tests leaves out the exports to JavaScript"))]
#![allow(
    unreachable_pub,
    reason = "napi's macros export items to JavaScript, which the compiler does not see"
)]
#![allow(clippy::needless_pass_by_value, reason = "arguments from JavaScript are owned values")]

mod active_check;
mod client;
mod client_address;
mod configuration;
mod credentials;
mod error;
mod event;
mod exchange;
mod field_text;
mod function;
mod guard;
mod guard_check;
mod guard_settings;
mod limiter;
mod limiter_handle;
mod number;
mod outcomes;
mod owned_request;
mod policy_interner;
mod report;
mod request_attributes;
mod request_layout;
mod reservation;
mod shared_arrays;
mod tables;
mod text;
mod values;
