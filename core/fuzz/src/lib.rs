//! The fuzz targets as plain functions: `tests/fuzz_corpus.rs` replays the corpus through the same functions.
//!
//! `cargo +nightly fuzz run <target>` in the folder above; the corpus of a target is in `corpus/<target>`.

pub mod client_address;
pub mod document;
pub mod local_file;
pub mod module_by_hand;
pub mod module_call;
pub mod operations;
pub mod quota_text;
pub mod request_attributes;
pub mod script_reply;
pub mod store_url;
