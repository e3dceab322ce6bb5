//! A primary and a replica under three sentinels with short timeouts.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use redis::RedisResult;

use crate::server::{Dataset, Kind, Server, ServerOptions};
use crate::wait::until;

const SERVICE: &str = "main";
const BOUND: Duration = Duration::from_secs(20);

/// How often sentinels announce themselves: often while they discover each other, later less often. A sentinel demotes an
/// unexpected primary after four such periods, and within that time it has to learn of a failover.
const GREETING: &str = "PUBLISH-PERIOD";

/// Shorter periods than the defaults of the sentinels, in milliseconds.
const PERIODS: [(&str, &str); 6] = [
    (GREETING, "200"),
    ("INFO-PERIOD", "1000"),
    // Three in the time after which a server counts as down, so that a late reply does not make it so. And from five of
    // them follows how old the news of a replica may be that is promoted, which comes once a second.
    ("PING-PERIOD", "400"),
    ("ASK-PERIOD", "100"),
    // For this long a sentinel is inactive after a delay of the machine.
    ("TILT-PERIOD", "1000"),
    ("ELECTION-TIMEOUT", "2000"),
];

/// Two servers and three sentinels that watch them, under the name `main`.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    watchers: Vec<Server>,
    login: String,
    parameter: String,
}

impl Sentinels {
    /// Starts all five and returns when the sentinels know the replica and each other.
    pub fn start(kind: Kind) -> Self {
        Self::start_with_passwords(kind, None, None)
    }

    /// As [`start`](Self::start), where the servers or the sentinels ask for a password.
    pub fn start_with_passwords(kind: Kind, servers: Option<&str>, sentinels: Option<&str>) -> Self {
        let server_options = || with_password(Server::options(kind), servers, "masterauth");
        let primary = server_options().start();
        let replicaof = format!("replicaof 127.0.0.1 {}", primary.port());
        let replica = server_options().lines(&[&replicaof]).start();
        let mut lines = vec![
            format!("sentinel monitor {SERVICE} 127.0.0.1 {} 2", primary.port()),
            format!("sentinel failover-timeout {SERVICE} 3000"),
        ];
        lines.extend(servers.map(|password| format!("sentinel auth-pass {SERVICE} {password}")));
        until("the replica has its data", BOUND, || replica.has_its_data().then_some(()));
        // The last is slow to find a server down, so it is free to vote for another when those vote for themselves.
        let watchers: Vec<Server> = [1200, 1200, 3000]
            .into_iter()
            .map(|ms| {
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                let down_after = format!("sentinel down-after-milliseconds {SERVICE} {ms}");
                let options = Server::options(kind).sentinel().lines(&lines).lines(&[&down_after]);
                let sentinel = with_password(options, sentinels, "sentinel sentinel-pass").reserve();
                sentinel.launch(Dataset::Empty);
                sentinel
            })
            .collect();
        let all = Self {
            servers: vec![primary, replica],
            watchers,
            login: servers.map_or_else(String::new, |password| format!(":{password}@")),
            parameter: sentinels
                .map_or_else(String::new, |password| format!("?sentinel_password={password}")),
        };
        all.form();
        all
    }

    fn form(&self) {
        for sentinel in &self.watchers {
            sentinel.wait_until_ready();
            for (period, ms) in PERIODS {
                sentinel.command(&["SENTINEL", "DEBUG", period, ms]);
            }
        }
        until("the sentinels know each other and the replica", BOUND, || {
            let knows = |sentinel: &Server| {
                sentinel.info("master0").ends_with("slaves=1,sentinels=3")
                    && Self::replica_is_usable(sentinel).unwrap_or(false)
            };
            self.watchers.iter().all(knows).then_some(())
        });
        for sentinel in &self.watchers {
            sentinel.command(&["SENTINEL", "DEBUG", GREETING, "1000"]);
        }
    }

    /// A sentinel promotes a replica only after it has heard from it.
    fn replica_is_usable(sentinel: &Server) -> RedisResult<bool> {
        let reply = sentinel.try_command(&["SENTINEL", "REPLICAS", SERVICE])?;
        let replicas: Vec<HashMap<String, String>> = redis::from_redis_value(reply)?;
        let is = |key: &str, value: &str| {
            replicas.iter().any(|replica| replica.get(key).is_some_and(|found| found == value))
        };
        Ok(is("flags", "slave") && is("master-link-status", "ok"))
    }

    /// The name under which the sentinels watch the servers.
    pub const fn service(&self) -> &'static str {
        SERVICE
    }

    /// The sentinels' addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.watchers.iter().map(Server::address).collect()
    }

    /// One URL for all: `redis-sentinel://127.0.0.1:...,.../main/0`, with the servers' password for its user info and the
    /// sentinels' as a parameter.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.addresses().iter().map(SocketAddr::to_string).collect();
        format!("redis-sentinel://{}{}/{SERVICE}/0{}", self.login, addresses.join(","), self.parameter)
    }

    /// Sentinel number `i` of three.
    pub fn sentinel(&self, i: usize) -> &Server {
        &self.watchers[i]
    }

    /// Server number `i`: 0 is the first primary, 1 the first replica.
    pub fn server(&self, i: usize) -> &Server {
        &self.servers[i]
    }

    /// The number of the server that all running sentinels hold for the primary and that reports itself as one.
    pub fn current_primary(&self) -> usize {
        until("the sentinels agree on a primary", BOUND, || self.agreed_primary())
    }

    fn agreed_primary(&self) -> Option<usize> {
        let alive = self.watchers.iter().filter(|sentinel| sentinel.is_running());
        let ports: Vec<u16> = alive.map(told_port).collect::<Option<_>>()?;
        let port = *ports.first()?;
        let i = self.servers.iter().position(|server| server.port() == port)?;
        let agreed = ports.iter().all(|other| *other == port);
        (agreed && self.servers[i].answers() && self.servers[i].info("role") == "master").then_some(i)
    }

    /// Kills the primary and returns the number of the new one when all sentinels know it.
    pub fn failover(&self) -> usize {
        let old = self.current_primary();
        self.servers[old].kill();
        self.wait_for_another(old)
    }

    /// Makes the replica the primary while both live: the old primary stays, refuses writes, and keeps its sockets until
    /// it follows. Returns the new primary's number.
    pub fn planned_failover(&self) -> usize {
        let old = self.current_primary();
        self.watchers[0].command(&["SENTINEL", "FAILOVER", SERVICE]);
        self.wait_for_another(old)
    }

    /// Waits until every sentinel has a replica that it would promote.
    pub fn wait_for_replica(&self) {
        until("the sentinels know a usable replica", BOUND, || {
            self.watchers
                .iter()
                .all(|sentinel| Self::replica_is_usable(sentinel).unwrap_or(false))
                .then_some(())
        });
    }

    /// Starts the sentinels again, each with what it knew, and waits until they are as after [`start`](Self::start).
    pub fn restart_sentinels(&self) {
        for sentinel in &self.watchers {
            sentinel.launch(Dataset::Kept);
        }
        self.form();
    }

    fn wait_for_another(&self, old: usize) -> usize {
        until("another primary", BOUND, || self.agreed_primary().filter(|&new| new != old))
    }
}

impl Drop for Sentinels {
    /// Kills all servers at once: otherwise the remaining ones would fail over.
    fn drop(&mut self) {
        thread::scope(|scope| {
            for server in self.watchers.iter().chain(&self.servers) {
                scope.spawn(|| server.kill());
            }
        });
    }
}

fn told_port(sentinel: &Server) -> Option<u16> {
    let reply = sentinel.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok()?;
    let (_, port): (String, u16) = redis::from_redis_value(reply).ok()?;
    Some(port)
}

fn with_password(options: ServerOptions, password: Option<&str>, for_peers: &str) -> ServerOptions {
    match password {
        Some(password) => options.password(password).lines(&[&format!("{for_peers} {password}")]),
        None => options,
    }
}
