//! Real servers for tests: Redis and Valkey alone, as a cluster and under sentinels, and a TCP proxy that injects faults.
//!
//! All servers listen on 127.0.0.1 and a Unix socket, on ports that no two test processes share, with their files in a
//! temporary folder. A server ends when its value is dropped, when the test panics and when the test process is killed.
//! Functions that wait poll with a time limit, and panic with a description of the condition.
//!
//! ```no_run
//! use polylimit_test_servers::{Direction, Fault, FaultProxy, Kind, Server};
//!
//! let server = Server::start(Kind::Redis, &["maxmemory 64mb"]);
//! let proxy = FaultProxy::start(server.address());
//! proxy.after(Direction::Replies, 5, Fault::Cut);
//! println!("redis://127.0.0.1:{} closes inside its next reply", proxy.port());
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "this crate is part of tests: an operation that fails here has to fail the test"
)]

mod certificates;
mod cluster;
mod control;
mod fake_clock;
mod module;
mod other_server;
mod port;
mod process;
mod proxy;
mod row;
mod sentinels;
mod server;
mod service;
mod wait;

pub use certificates::Certificates;
pub use cluster::{Cluster, MigrationStage, SLOTS};
pub use fake_clock::FakeClock;
pub use module::module;
pub use other_server::other_server;
pub use proxy::{Direction, Fault, FaultProxy};
pub use row::Row;
pub use sentinels::Sentinels;
pub use server::{ClientCertificates, Dataset, Kind, Server, ServerOptions};
pub use service::{Arguments, Service};
pub use wait::until;

/// The client that [`Server::command`] speaks through, for its [`Value`](redis::Value).
pub use redis;
