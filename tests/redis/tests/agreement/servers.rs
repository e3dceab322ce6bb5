//! The servers whose answers are compared.

use std::time::Duration;

use polylimit_test_servers::{Cluster, Kind, Server};

pub(crate) struct Servers {
    redis: Server,
    valkey: Server,
    cluster: Cluster,
    with_module: Server,
}

impl Servers {
    /// Redis, Valkey, three primaries of a cluster, and Redis with polylimit's module.
    pub(crate) fn start() -> Self {
        let (redis, valkey) = (Server::start(Kind::Redis, &[]), Server::start(Kind::Valkey, &[]));
        let with_module = Server::options(Kind::Redis).module().start();
        Self { redis, valkey, cluster: Cluster::start(Kind::Redis, 3, 0), with_module }
    }

    /// The URL of each store, with a deadline that a busy machine does not miss.
    pub(crate) fn urls(&self) -> [String; 4] {
        [self.redis.url(), self.valkey.url(), self.cluster.url(), self.with_module.url()]
            .map(|url| generous(&url))
    }

    /// The servers with scripts alone and with the module, whose keys must have the same values.
    pub(crate) fn pair(&self) -> [&Server; 2] {
        [&self.redis, &self.with_module]
    }

    /// Removes all keys.
    pub(crate) fn flush(&self) {
        for server in [&self.redis, &self.valkey, &self.with_module]
            .into_iter()
            .chain((0..3).map(|i| self.cluster.node(i)))
        {
            server.command(&["FLUSHALL"]);
        }
    }
}

/// The URL with a long deadline and without the denial cache.
pub(crate) fn generous(url: &str) -> String {
    format!("{url}?denial_cache_max=0&deadline={}s", Duration::from_secs(30).as_secs())
}
