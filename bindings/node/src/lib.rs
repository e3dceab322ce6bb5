//! The Node-API addon of polylimit: converts types between JavaScript and the core, and nothing else.
//!
//! JavaScript calls it through the files of `ts/`, which check what people pass; nothing here is public by itself.
//! Answers go through an array of numbers that both sides see, because making an object through Node-API takes longer
//! than deciding; see `exchange.rs`.

#![allow(
    unsafe_code,
    reason = "napi's macros expand to it; this crate's own places are in `answer`, `callback`, `client_address`, `exchange`, `limiter`, `operation`, `respond`, `text` and `wake`"
)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "what is exported to JavaScript is left out of a build for tests")
)]
#![allow(unreachable_pub, reason = "napi's macros export it to JavaScript, which the compiler does not see")]
#![allow(clippy::needless_pass_by_value, reason = "what comes from JavaScript is owned")]

mod answer;
mod asked;
mod callback;
mod client_address;
mod clock;
mod event;
mod exchange;
mod failure;
mod headers;
mod limiter;
mod number;
mod operation;
mod policy_places;
mod quota;
mod respond;
mod tables;
mod text;
mod wake;
