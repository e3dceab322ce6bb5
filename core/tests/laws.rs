//! The laws that every quota keeps, tried on random quotas, policies and histories.
//!
//! Each file is one law or one family of them. `quotas`, `steps` and `session` make the random worlds in which they
//! are tried: a policy, a history of operations under a manual clock, and a key that lives through it. How many
//! histories are tried is proptest's default; `PROPTEST_CASES=10000` tries more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by a panic")]

// An inline module, so that its files stand in a folder of the same name.
mod laws {
    mod admission;
    mod all_or_nothing;
    mod any_input;
    mod changed_numbers;
    mod clock_back;
    mod concurrency;
    mod expiry;
    mod peeking;
    mod quotas;
    mod session;
    mod spending;
    mod steps;
    mod text;
    mod waiting;
}
