//! `polylimit serve` on a Redis server, under load over HTTP/1.1, gRPC and RESP: its end by SIGTERM, its death by SIGKILL, and whether it
//! grows.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an operation that fails has to fail the test"
)]

mod grpc;
mod http;
mod killed;
mod load;
#[path = "../../../server/src/rls/messages.rs"]
#[allow(dead_code, reason = "the tests read a part of each message")]
mod messages;
mod program;
mod resp;
mod soak;
mod terminated;
mod together;
