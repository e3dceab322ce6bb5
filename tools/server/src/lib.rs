//! The server of polylimit: one limiter for all programs that ask it, over HTTP, gRPC and RESP.
//!
//! [`Server::bind`] opens the listeners, and [`Server::run`] serves them until it is stopped. The program `polylimit serve`
//! does both. docs/server.md describes the interfaces, docs/internals/server.md how the parts fit together.

mod access;
mod app;
mod body;
mod caller;
mod connection;
mod counters;
mod endpoint;
mod error;
mod grpc;
mod health;
mod life;
mod limits;
mod lingering;
mod local_socket;
mod log;
mod one_off;
mod options;
mod probe;
mod process;
mod resp;
mod rls;
mod server;
mod signals;
#[doc(hidden)]
pub mod testing;
mod tls;
mod traffic;
mod turn;
mod web;

pub use access::Role;
pub use endpoint::{Endpoint, Protocol};
pub use error::ServeError;
pub use limits::Limits;
pub use log::{Level, LogRecord};
pub use options::{ReadLogin, RlsOptions, ServerOptions, ShownKeys, StoreLogin};
pub use probe::{Probe, probe};
pub use server::{Server, ServerHandle};
pub use signals::Signals;
pub use tls::TlsFiles;
pub use web::openapi::openapi;
