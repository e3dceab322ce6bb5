//! What a store is: where the states live and the transition is applied to them in one piece.
//!
//! A store is told the policies by their ids and answers with a decision or a usage, as of its own clock.

pub(crate) mod memory;
pub(crate) mod redis;

/// A policy of a limiter, by the order in which it was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PolicyId(pub(crate) u32);
