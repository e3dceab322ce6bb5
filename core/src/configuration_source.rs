//! Where the configuration of a limiter comes from: a file, Redis, or both; and the copy from which it starts.
//!
//! - `place`: the option that says where. `snapshot`: a document and entries as texts. `origin`: a store that has them.
//! - `custom`: a store outside this crate as an origin.
//! - `file`: a file that is looked at. `copy`: the last configuration in a file of this host.
//! - `follower`: applies changes to all limiters of a process with the same source, on its own thread.
//! - `changes`: which changes are allowed.
//! - `problems`: what keeps a configuration from being the newest.
//! - `subscription`: one of these limiters, and what it has applied.
//!
//! The limiter passes a [`ConfigurationSink`] and gets a [`FollowedConfiguration`]. Errors of a source appear in its status and
//! never affect a decision: the last good configuration stays.

pub(crate) mod changes;
mod copy;
pub(crate) mod custom;
mod file;
pub(crate) mod followed;
pub(crate) mod follower;
pub(crate) mod looking;
pub(crate) mod origin;
pub(crate) mod place;
mod problems;
pub(crate) mod publication;
pub(crate) mod snapshot;
mod subscription;
mod tasks;
#[cfg(all(feature = "redis", feature = "testing"))]
pub mod testing;

pub(crate) use followed::ConfigurationSink;
