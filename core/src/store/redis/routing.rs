//! Chooses the connection of an operation: on the caller's runtime, to the server or the node that owns the key's slot.

pub(crate) mod access;
pub(crate) mod cluster;
pub(crate) mod hub;
pub(crate) mod invalidation_channel;
pub(crate) mod runtimes;
pub(crate) mod submission;
pub(crate) mod topology;
