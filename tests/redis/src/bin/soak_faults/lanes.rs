//! The topologies, and the faults that happen in each. A fault returns when the world is whole again.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use polylimit_redis_tests::with;
use polylimit_test_servers::{ClientCertificates, Cluster, Dataset, Kind, Sentinels, Server, until};

use crate::worker::Worker;

const HOUR_US: i64 = 3_600_000_000;
/// How long a failover may take.
const BOUND: Duration = Duration::from_secs(30);

/// Servers and what can happen to them.
pub(crate) trait Lane: Send {
    fn name(&self) -> &'static str;
    fn url(&self) -> String;
    fn faults(&self) -> Vec<Fault>;
    /// Lets the fault of this name happen while the workers ask for `key`, and mends it.
    fn happen(&mut self, fault: &str, key: &str, workers: &[Worker], random: &mut Rng);
}

/// A fault.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// How many times it may lose what a key has used: once where a replica is promoted that has not heard of all writes, or where the
    /// data goes.
    pub(crate) losses: u64,
    /// How often the store may fail to make a decision meanwhile.
    pub(crate) outages: Outages,
}

/// In how many phases of a fault decisions may be made without the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outages {
    Always,
    /// In a tenth of them: a process may be frozen while it is sending a call, which is then lost with the connection.
    Rarely,
    Never,
}

impl Outages {
    pub(crate) const fn most(self, phases: usize) -> usize {
        match self {
            Self::Always => phases,
            Self::Rarely => phases.div_ceil(10),
            Self::Never => 0,
        }
    }
}

const fn fault(name: &'static str, losses: u64) -> Fault {
    Fault { name, losses, outages: Outages::Always }
}

const fn unnoticed(name: &'static str) -> Fault {
    Fault { name, losses: 0, outages: Outages::Never }
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

fn between(random: &mut Rng, low_ms: u64, high_ms: u64) -> Duration {
    Duration::from_millis(random.u64(low_ms..=high_ms))
}

/// Stops one worker, and all of them in one of four cases. The system drops no connection of it meanwhile.
fn freeze(workers: &[Worker], random: &mut Rng) {
    let stopped = if random.u8(..4) == 0 { workers } else { &workers[..1] };
    freeze_all(stopped, random, || {});
}

/// Stops these workers, and does something meanwhile.
fn freeze_all(workers: &[Worker], random: &mut Rng, meanwhile: impl FnOnce()) {
    let send = |to_send| workers.iter().map(Worker::pid).for_each(|pid| signal(pid, to_send));
    send(Signal::SIGSTOP);
    sleep(between(random, 200, 2_500));
    meanwhile();
    send(Signal::SIGCONT);
}

/// One server with TLS, and with a user whose password changes.
pub(crate) struct Single {
    server: Server,
    /// The file with the password of the user.
    password: PathBuf,
    changes: u32,
    renewals: u32,
}

impl Single {
    pub(crate) fn start() -> Self {
        let options = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).fake_clock();
        let options =
            options.lines(&["appendonly yes", "appendfsync always", "user app on >password-0 ~* &* +@all"]);
        let server = options.start();
        let password = server.dir().join("password");
        fs::write(&password, "password-0\n").unwrap();
        Self { server, password, changes: 0, renewals: 0 }
    }

    /// The new password is known everywhere before the old one is refused.
    fn change_password(&mut self) {
        let old = format!("<password-{}", self.changes);
        self.changes += 1;
        let new = format!("password-{}", self.changes);
        self.server.command(&["ACL", "SETUSER", "app", &format!(">{new}")]);
        // Nothing reads half a file.
        let draft = self.password.with_extension("draft");
        fs::write(&draft, new).unwrap();
        fs::rename(&draft, &self.password).unwrap();
        self.server.command(&["ACL", "SETUSER", "app", &old]);
        // For restarts.
        self.server.command(&["CONFIG", "REWRITE"]);
        self.kill_connections();
    }

    fn renew_certificate(&mut self) {
        let files = self.server.certificates().unwrap();
        self.renewals += 1;
        let (certificate, key) = match self.renewals % 2 {
            0 => (&files.server, &files.server_key),
            _ => (&files.renewed, &files.renewed_key),
        };
        let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
        self.server.command(&["CONFIG", "SET", "tls-cert-file", certificate, "tls-key-file", key]);
        self.kill_connections();
    }

    fn kill_connections(&self) {
        self.server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
}

impl Lane for Single {
    fn name(&self) -> &'static str {
        "one server"
    }

    fn url(&self) -> String {
        let (ca, password) = (self.server.certificates().unwrap().ca.display(), self.password.display());
        with(&self.server.url(), &format!("username=app&password_file={password}&tls_ca={ca}"))
    }

    fn faults(&self) -> Vec<Fault> {
        vec![
            fault("connections killed", 0),
            fault("password changed", 0),
            fault("certificate renewed", 0),
            unnoticed("worker frozen"),
            Fault { outages: Outages::Rarely, ..unnoticed("workers frozen, connections killed") },
            fault("server frozen", 0),
            fault("server killed and restarted", 0),
            fault("server restarted without data", 1),
            unnoticed("server's clock an hour ahead, then right"),
            unnoticed("server's clock an hour behind, then right"),
            unnoticed("caller's clock an hour ahead, then right"),
            unnoticed("caller's clock an hour behind, then right"),
        ]
    }

    fn happen(&mut self, fault: &str, _key: &str, workers: &[Worker], random: &mut Rng) {
        match fault {
            "password changed" => return self.change_password(),
            "certificate renewed" => return self.renew_certificate(),
            _ => {}
        }
        let server = &self.server;
        let step = |offset: i64| {
            if fault.starts_with("server") {
                server.set_clock_offset_us(offset);
            } else {
                for worker in workers {
                    worker.set_clock_offset_us(offset);
                }
            }
        };
        match fault {
            "connections killed" => (0..5).for_each(|_| {
                self.kill_connections();
                sleep(Duration::from_millis(100));
            }),
            "worker frozen" => freeze(workers, random),
            // Calls of a worker that runs could be lost with their connection.
            "workers frozen, connections killed" => {
                freeze_all(workers, random, || self.kill_connections());
            }
            "server frozen" => {
                server.stop();
                sleep(between(random, 100, 3_000));
                server.cont();
            }
            "server killed and restarted" => {
                server.kill();
                sleep(between(random, 0, 1_500));
                server.restart(Dataset::Kept);
            }
            "server restarted without data" => server.restart(Dataset::Empty),
            _ => {
                step(if fault.contains("ahead") { HOUR_US } else { -HOUR_US });
                sleep(Duration::from_secs(1));
                step(0);
            }
        }
    }
}

/// Two servers under three sentinels.
pub(crate) struct Watched(Sentinels);

impl Watched {
    pub(crate) fn start() -> Self {
        Self(Sentinels::start(Kind::Redis))
    }

    /// Makes the server that was the primary a replica of the new one, with its data.
    fn join_again(&self, old: usize) {
        let new = self.0.current_primary();
        let port = self.0.server(new).port().to_string();
        until("the old primary is a replica with its data", BOUND, || {
            let server = self.0.server(old);
            if server.info("role") == "master" {
                server.command(&["REPLICAOF", "127.0.0.1", &port]);
            }
            (server.info("role") == "slave" && server.info("master_link_status") == "up").then_some(())
        });
        self.0.wait_for_replica();
    }
}

impl Lane for Watched {
    fn name(&self) -> &'static str {
        "sentinels"
    }

    fn url(&self) -> String {
        // Connections age during the run, so that they are replaced while sentinels are away, too.
        with(&self.0.url(), "max_connection_age=3s")
    }

    fn faults(&self) -> Vec<Fault> {
        vec![
            fault("primary killed, replica promoted", 1),
            fault("primary frozen, replica promoted", 1),
            fault("planned failover", 1),
            unnoticed("all sentinels frozen"),
            unnoticed("all sentinels killed"),
            unnoticed("worker frozen"),
        ]
    }

    fn happen(&mut self, fault: &str, _key: &str, workers: &[Worker], random: &mut Rng) {
        let sentinels = || (0..3).map(|i| self.0.sentinel(i));
        let old = self.0.current_primary();
        match fault {
            "primary killed, replica promoted" => {
                self.0.failover();
                self.0.server(old).restart(Dataset::Empty);
                self.join_again(old);
            }
            "primary frozen, replica promoted" => {
                self.0.server(old).stop();
                until("another primary", BOUND, || (self.0.current_primary() != old).then_some(()));
                self.0.server(old).cont();
                self.join_again(old);
            }
            "planned failover" => {
                self.0.planned_failover();
                self.join_again(old);
            }
            "all sentinels frozen" => {
                sentinels().for_each(Server::stop);
                sleep(between(random, 3_000, 5_000));
                sentinels().for_each(Server::cont);
                self.0.current_primary();
            }
            "all sentinels killed" => {
                sentinels().for_each(Server::kill);
                sleep(between(random, 4_000, 6_000));
                self.0.restart_sentinels();
            }
            _ => freeze(workers, random),
        }
    }
}

/// Three primaries with a replica each.
pub(crate) struct Clustered(Cluster);

impl Clustered {
    pub(crate) fn start() -> Self {
        Self(Cluster::start(Kind::Redis, 3, 1))
    }

    /// The node that replicates the node `primary`.
    fn replica_of(&self, primary: usize) -> usize {
        let port = self.0.node(primary).port().to_string();
        let replicates = |node: &Server| {
            node.answers() && node.info("role") == "slave" && node.info("master_port") == port
        };
        (0..self.0.len()).find(|&i| replicates(self.0.node(i))).unwrap()
    }
}

impl Lane for Clustered {
    fn name(&self) -> &'static str {
        "cluster"
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn faults(&self) -> Vec<Fault> {
        vec![
            fault("primary of the key killed, replica promoted", 1),
            fault("primary of the key frozen, replica promoted", 1),
            fault("planned failover of the key's primary", 1),
            unnoticed("slot of the key migrated"),
            unnoticed("another primary killed"),
            unnoticed("worker frozen"),
        ]
    }

    fn happen(&mut self, fault: &str, key: &str, workers: &[Worker], random: &mut Rng) {
        let cluster = &self.0;
        let slot = cluster.slot_of(key);
        let owner = cluster.owner_of(slot);
        let other = *random
            .choice(&cluster.primaries().into_iter().filter(|&i| i != owner).collect::<Vec<_>>())
            .unwrap();
        let kill = |node: usize| {
            cluster.kill_primary(node);
            cluster.wait_until_ok();
            cluster.node(node).restart(Dataset::Empty);
            cluster.wait_until_ok();
        };
        match fault {
            "primary of the key killed, replica promoted" => kill(owner),
            "another primary killed" => kill(other),
            "primary of the key frozen, replica promoted" => {
                let replica = self.replica_of(owner);
                cluster.node(owner).stop();
                until("the replica is a primary", BOUND, || {
                    (cluster.node(replica).info("role") == "master").then_some(())
                });
                cluster.node(owner).cont();
                cluster.wait_until_ok();
            }
            "planned failover of the key's primary" => {
                let replica = self.replica_of(owner);
                cluster.node(replica).command(&["CLUSTER", "FAILOVER"]);
                until("the replica is a primary", BOUND, || {
                    (cluster.node(replica).info("role") == "master").then_some(())
                });
                cluster.wait_until_ok();
            }
            "slot of the key migrated" => {
                cluster.migrate_slot(slot, owner, other, |_| sleep(Duration::from_millis(200)));
                cluster.wait_until_ok();
            }
            _ => freeze(workers, random),
        }
    }
}
