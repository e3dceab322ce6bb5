//! The servers whose answers are compared.

use std::time::Duration;

use polylimit_test_servers::{Cluster, Kind, Server};

pub(crate) struct Servers {
    redis: Server,
    valkey: Server,
    cluster: Cluster,
}

impl Servers {
    /// Redis, Valkey and three primaries of a cluster.
    pub(crate) fn start() -> Self {
        let (redis, valkey) = (Server::start(Kind::Redis, &[]), Server::start(Kind::Valkey, &[]));
        Self { redis, valkey, cluster: Cluster::start(Kind::Redis, 3, 0) }
    }

    /// The URL of each store, with a deadline that a busy machine does not miss.
    pub(crate) fn urls(&self) -> [String; 3] {
        [self.redis.url(), self.valkey.url(), self.cluster.url()].map(|url| generous(&url))
    }

    /// Removes all keys.
    pub(crate) fn flush(&self) {
        for server in [&self.redis, &self.valkey].into_iter().chain((0..3).map(|i| self.cluster.node(i))) {
            server.command(&["FLUSHALL"]);
        }
    }
}

/// The URL with a long deadline and without the denial cache.
pub(crate) fn generous(url: &str) -> String {
    format!("{url}?denial_cache_max=0&deadline={}s", Duration::from_secs(30).as_secs())
}
