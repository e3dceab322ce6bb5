//! A cluster: up to six servers, the 16384 slots spread over the primaries.

mod migration;
mod view;

use std::thread;
use std::time::Duration;

use crate::server::{Kind, Server};
use crate::wait::until;

pub use migration::MigrationStage;
use view::{View, views};

/// How many slots a cluster has.
pub const SLOTS: u16 = 16384;

/// How long a cluster may take to come up, or to heal after a failure.
const BOUND: Duration = Duration::from_secs(20);

/// The servers of a cluster. Nodes are numbered: first the primaries, then their replicas in the same order.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster and returns when every node finds it complete, and every replica has its data.
    pub fn start(kind: Kind, primaries: usize, replicas_each: usize) -> Self {
        Self::start_with(kind, primaries, replicas_each, &[])
    }

    /// As [`start`](Self::start), with lines added to every node's configuration.
    ///
    /// By default a node counts as failed after one second, and the slots of living nodes are served while
    /// others have no owner (`cluster-require-full-coverage no`).
    pub fn start_with(kind: Kind, primaries: usize, replicas_each: usize, lines: &[&str]) -> Self {
        let count = primaries * (1 + replicas_each);
        assert!(primaries > 0 && count <= 6, "a cluster has one to six nodes, not {count}");
        let nodes: Vec<Server> = (0..count)
            .map(|_| {
                let options = Server::options(kind).lines(&[
                    "cluster-enabled yes",
                    "cluster-node-timeout 1000",
                    "cluster-require-full-coverage no",
                    "cluster-replica-validity-factor 0",
                ]);
                let node = options.lines(lines).reserve();
                node.launch(crate::Dataset::Empty);
                node
            })
            .collect();
        let cluster = Self { nodes };
        cluster.form(primaries);
        cluster
    }

    fn form(&self, primaries: usize) {
        for node in &self.nodes {
            node.wait_until_ready();
        }
        for (i, node) in self.nodes.iter().enumerate() {
            // Different epochs from the start avoid conflicts. They have to be set before nodes meet.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]);
            if i < primaries {
                let bound = |i: usize| i * usize::from(SLOTS) / primaries;
                let (first, last) = (bound(i).to_string(), (bound(i + 1) - 1).to_string());
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
        for (i, node) in self.nodes.iter().enumerate() {
            for other in self.nodes.iter().skip(i + 1) {
                let (port, bus) = (other.port().to_string(), other.bus_port().to_string());
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        until("every node knows every other", BOUND, || {
            views(&self.nodes).iter().all(|view| view.knows(self.nodes.len())).then_some(())
        });
        for (i, node) in self.nodes.iter().enumerate().skip(primaries) {
            node.command(&["CLUSTER", "REPLICATE", &self.id(i % primaries)]);
        }
        self.wait_until_ok();
    }

    /// Every node's URL, dead ones included.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// One URL for all of them: `redis-cluster://127.0.0.1:...,...`.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        format!("redis-cluster://{}", addresses.join(","))
    }

    /// Node number `i`.
    pub fn node(&self, i: usize) -> &Server {
        &self.nodes[i]
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node, which is never so.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The slot of a key, as the servers see it.
    pub fn slot_of(&self, key: impl AsRef<[u8]>) -> u16 {
        let node = self.nodes.iter().find(|node| node.answers()).expect("a node that lives");
        node.query(&[b"CLUSTER".as_slice(), b"KEYSLOT", key.as_ref()])
    }

    /// The living node that says it owns this slot; waits for one if there is none at the moment.
    pub fn owner_of(&self, slot: u16) -> usize {
        until("a node owns the slot", BOUND, || {
            let owns = |view: &View| view.myself().is_some_and(|line| line.is_primary() && line.has(slot));
            self.nodes.iter().position(|node| View::of(node).is_some_and(|view| owns(&view)))
        })
    }

    /// The living nodes that are primaries with slots, by their own word.
    pub fn primaries(&self) -> Vec<usize> {
        let serves = |view: &View| view.myself().is_some_and(|line| line.is_primary() && line.slots() > 0);
        (0..self.len()).filter(|&i| View::of(&self.nodes[i]).is_some_and(|view| serves(&view))).collect()
    }

    /// Kills node `i`, which has to be a primary, and returns at once. [`wait_until_ok`](Self::wait_until_ok) awaits the
    /// failover.
    pub fn kill_primary(&self, i: usize) {
        assert!(self.primaries().contains(&i), "node {i} is no primary");
        self.nodes[i].kill();
    }

    /// Waits until every living node says that the cluster is ok, living primaries have all slots, all living nodes agree
    /// about that, and every replica has its data.
    pub fn wait_until_ok(&self) {
        until("the cluster is ok", BOUND, || {
            let alive: Vec<&Server> = self.nodes.iter().filter(|node| node.is_running()).collect();
            let views: Vec<View> = alive.iter().map(|node| View::of(node)).collect::<Option<_>>()?;
            let owned: usize = views.iter().filter_map(View::myself).map(view::Line::slots).sum();
            let agreed = views.iter().all(|view| view.owners() == views[0].owners());
            let settled = views.iter().all(|view| view.living() == alive.len());
            let ok = alive.iter().all(|node| {
                node.query::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok") && node.has_its_data()
            });
            (owned == usize::from(SLOTS) && agreed && settled && ok).then_some(())
        });
    }

    pub(crate) fn id(&self, i: usize) -> String {
        self.nodes[i].query(&["CLUSTER", "MYID"])
    }
}

impl Drop for Cluster {
    /// Kills all nodes at once: otherwise the remaining ones would fail over.
    fn drop(&mut self) {
        thread::scope(|scope| {
            for node in &self.nodes {
                scope.spawn(|| node.kill());
            }
        });
    }
}
