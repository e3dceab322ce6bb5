//! The path of an operation to a server and back: pending, queued, sent in a batch, in flight, answered by its
//! deadline.

pub(crate) mod batch;
pub(crate) mod call_span;
pub(crate) mod circuit_breaker;
pub(crate) mod connection;
pub(crate) mod pending;
pub(crate) mod queue;
pub(crate) mod server;
pub(crate) mod supervisor;
