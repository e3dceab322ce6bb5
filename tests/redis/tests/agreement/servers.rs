//! The servers that have to agree, for as long as a test runs.

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

    /// The URL of each store. How fast this machine is, is not the question.
    pub(crate) fn urls(&self) -> [String; 3] {
        [self.redis.url(), self.valkey.url(), self.cluster.url()].map(|url| patient(&url))
    }

    /// Forgets everything.
    pub(crate) fn flush(&self) {
        for server in [&self.redis, &self.valkey].into_iter().chain((0..3).map(|i| self.cluster.node(i))) {
            server.command(&["FLUSHALL"]);
        }
    }
}

/// The URL of a store that has all the time it needs.
pub(crate) fn patient(url: &str) -> String {
    format!("{url}?denial_cache_max=0&deadline={}s", Duration::from_secs(30).as_secs())
}
