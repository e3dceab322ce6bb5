//! Reservations: units of one key that are set aside until they are committed, cancelled, or their time has passed.
//!
//! A key's reservations concern all quotas of its policy at once. `list.rs` is the list of one key. `decide.rs` and `explain.rs`
//! decide operations on a key that has reservations, for every store: they add what is set aside to the cost about which they ask
//! the algorithms, which know nothing of reservations.

mod decide;
mod explain;
pub(crate) mod id;
pub(crate) mod list;
