//! polylimit inside the server: a module of Redis 7 and Valkey 8, and of later versions. It runs the same transition as every other
//! store on the records that the scripts write, so that servers with and without it can serve the same keys.
//!
//! Layers, from the bottom up; each uses only those before it:
//!
//! - `refusal`, `policies`: why a command is refused; the policies that commands name, prepared
//! - `transition`, `logs`: an operation on the value of a key, and on its logs
//! - `keyspace`: what the commands need of a server
//! - `call`, `by_hand`: the commands of polylimit's clients, and those that people type
//! - `server`: the interface of modules; everything unsafe is there
//!
//! docs/module.md is the page for operators, docs/internals/module.md the one for people who change it.

pub mod by_hand;
pub mod call;
pub mod keyspace;
pub mod logs;
pub mod policies;
pub mod refusal;
mod server;
pub mod transition;
