//! Chooses the connection of an operation: on the caller's runtime, to the server or the node that owns the key's slot.

pub(crate) mod cluster;
pub(crate) mod hub;
pub(crate) mod invalidation;
pub(crate) mod listener;
pub(crate) mod runtimes;
