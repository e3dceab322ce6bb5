//! The store that is shared by all processes: Redis, alone, behind Sentinel, or a cluster.

#[cfg_attr(not(test), expect(dead_code))]
mod key;
mod options;
mod secret;
#[cfg_attr(not(test), expect(dead_code))]
mod slot;
mod target;
#[cfg_attr(not(test), expect(dead_code))]
mod tls;
mod url;

pub use options::{RedisOption, RedisOptions};
