//! Where the configuration of a limiter comes from: a file, Redis, or both; and the copy from which it starts.
//!
//! - `place`: the option that says where. `snapshot`: a document and entries as texts.
//! - `file`: a file that is looked at. `copy`: the last configuration in a file of this host.
//! - `follower`: applies changes to all limiters of a process that have the same source, on a thread of its own.
//! - `subscription`: one of these limiters, and what it has applied.
//!
//! The limiter gives a [`ConfigurationSink`] and gets a [`FollowedConfiguration`]. What goes wrong here is told by the
//! status and never reaches a decision: the last good configuration stays.

#[cfg(feature = "configuration")]
mod copy;
#[cfg(feature = "configuration")]
mod file;
#[cfg(feature = "configuration")]
pub(crate) mod followed;
#[cfg(feature = "configuration")]
mod follower;
pub(crate) mod place;
pub(crate) mod snapshot;
#[cfg(feature = "configuration")]
mod subscription;
#[cfg(feature = "configuration")]
mod tasks;
#[cfg(all(feature = "configuration", feature = "redis", feature = "testing"))]
pub mod testing;

#[cfg(feature = "configuration")]
pub(crate) use followed::ConfigurationSink;
