//! Reservations: units of one key that are set aside until they are committed, cancelled, or their time has passed.
//!
//! A key's reservations concern all quotas of its policy at once. `list.rs` is the list of one key. The
//! [general transition](crate::general) decides operations on a key that has reservations, for every store: it adds what is
//! set aside to the cost about which it asks the algorithms, which know nothing of reservations.

pub mod id;
pub mod list;
