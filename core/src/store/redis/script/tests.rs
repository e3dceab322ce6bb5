//! The scripts on a real server, beside the memory store.
//!
//! Each test starts and ends a server of its own: `redis-server`, or the program in `POLYLIMIT_TEST_REDIS_SERVER`.

mod differential;
mod faults;
mod policies;
mod random;
mod server;
mod session;
