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
//! The limiter passes a [`ConfigurationSink`] and gets a `FollowedConfiguration`. Errors of a source appear in its status and
//! never affect a decision: the last good configuration stays.

pub mod changes;
mod copy;
pub mod custom;
mod file;
pub mod followed;
pub(crate) mod follower;
pub mod looking;
pub mod origin;
pub mod place;
mod problems;
pub mod publication;
pub mod snapshot;
mod subscription;
mod tasks;

pub use followed::ConfigurationSink;
