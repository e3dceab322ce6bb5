//! Property tests: properties of every quota, checked on random quotas, policies and histories.
//!
//! `generators` has the random policies and histories, `session` a key that goes through such a history under a manual clock.
//! The number of histories is proptest's default; `PROPTEST_CASES=10000` checks more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by a panic")]

// An inline module, so that its files are in a folder of the same name.
mod properties {
    mod admission;
    mod changes;
    mod concurrency;
    mod generators;
    mod input;
    mod operations;
    mod reservations;
    mod session;
    mod times;
    mod verdicts;
}
