//! A cluster: the table of slots, and one supervisor for each node.
//!
//! Every operation goes to the owner of its key's slot. A node that no longer owns a slot names the new owner, and the
//! operation is sent there. The table is read from any node when it is first needed, when a node redirects or does not
//! answer, and from time to time. The nodes' supervisors share nothing, so that a failing node does not affect the
//! others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use atomic_waker::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config::target::Endpoint;
use crate::pipeline::pending::{Member, PendingOperation};
use crate::pipeline::queue::{FirstConnectWindow, Queue, run_unless, with_deadlines};
use crate::pipeline::server::{Context, Redirect};
use crate::pipeline::supervisor::ConnectionSupervisor;
use crate::transport::cluster_slots::{self, Slots};
use crate::transport::connect::{Address, happy_eyeballs};
use crate::transport::failure::Failure;
use polylimit_rules::decision::Degradation;
use polylimit_runtime::monotonic;

/// The minimum pause between two reads of the table.
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// The pause grows up to this while the table stays the same, since a failing node causes many requests to read it.
const MAX_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Cluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    seeds: Box<[Endpoint]>,
    context: Arc<Context>,
    table: ArcSwap<Table>,
    /// The supervisors, including those of nodes that currently own no slot.
    supervisors: Mutex<BTreeMap<Endpoint, ConnectionSupervisor>>,
    runtime: tokio::runtime::Handle,
    /// Operations whose slot has no known owner.
    unrouted: Queue,
    first_connect: FirstConnectWindow,
    task: AtomicWaker,
    outdated: Notify,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    slots: Slots,
    supervisors: Vec<ConnectionSupervisor>,
}

/// Routes the operations that a node does not serve.
#[derive(Clone, Debug)]
struct ToNamedNode(Weak<Shared>);

impl Cluster {
    /// Creates a cluster whose tasks run on the current runtime.
    pub(crate) fn spawn(seeds: Box<[Endpoint]>, context: Arc<Context>, first_until: Instant) -> Self {
        let shared = Arc::new(Shared {
            seeds,
            context,
            table: ArcSwap::default(),
            supervisors: Mutex::default(),
            runtime: tokio::runtime::Handle::current(),
            unrouted: Queue::default(),
            first_connect: FirstConnectWindow::new(first_until),
            task: AtomicWaker::new(),
            outdated: Notify::new(),
            closed: AtomicBool::new(false),
        });
        tokio::spawn(RefreshTask(Arc::clone(&shared)).run());
        Self { shared }
    }

    #[inline]
    pub(crate) fn submit(&self, operation: Arc<PendingOperation>) {
        self.shared.submit(operation);
    }

    /// Until when callers wait for the first connection to the slot's server; `None` after the first connection.
    pub(crate) fn first_connect_until(&self, slot: u16) -> Option<Instant> {
        let table = self.shared.table.load();
        let owner = table.slots.owner(slot).and_then(|at| table.supervisors.get(at));
        owner.map_or_else(|| self.shared.first_connect.until(), ConnectionSupervisor::first_connect_until)
    }

    /// Whether it tries to reach a known node that is down, or to replace an old connection.
    pub(crate) fn is_connecting(&self) -> bool {
        self.shared.table.load().supervisors.iter().any(ConnectionSupervisor::is_connecting)
    }

    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        let supervisors: Vec<_> = self.shared.supervisors.lock().values().cloned().collect();
        for supervisor in supervisors {
            supervisor.end_waiting(member);
        }
        self.shared.unrouted.end_waiting(member);
    }

    /// Closes everything now; the tasks end when their runtime next runs them.
    pub(crate) fn close(&self) {
        let shared = &self.shared;
        shared.closed.store(true, Ordering::Release);
        let supervisors = std::mem::take(&mut *shared.supervisors.lock());
        for supervisor in supervisors.values() {
            supervisor.close();
        }
        shared.table.store(Arc::default());
        shared.unrouted.answer_all(UNKNOWN_OWNER);
        shared.outdated.notify_one();
        shared.task.wake();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.outdated.notify_one();
    }
}

impl Shared {
    fn submit(&self, operation: Arc<PendingOperation>) {
        let table = self.table.load();
        if let Some(supervisor) = table.slots.owner(operation.slot).and_then(|at| table.supervisors.get(at)) {
            if !supervisor.is_healthy() {
                self.outdated.notify_one();
            }
            supervisor.submit(operation);
            return;
        }
        let first = operation.is_first.then(|| Arc::clone(&operation));
        if self.unrouted.push(operation) {
            self.task.wake();
        }
        if let Some(first) = first
            && !self.first_connect.lasts()
        {
            first.bring_forward(monotonic::now() + self.context.deadline);
            self.task.wake();
        }
        self.outdated.notify_one();
        // The table may have been replaced just before; then the queue would wait for the next read.
        if !Arc::ptr_eq(&table, &self.table.load()) {
            self.submit_again();
        }
        // The task may have ended just before; then this caller has to answer the queue.
        if self.closed.load(Ordering::Acquire) {
            self.unrouted.answer_all(UNKNOWN_OWNER);
        }
    }

    fn submit_again(&self) {
        for operation in self.unrouted.take_all() {
            self.submit(Arc::clone(&operation));
            operation.end_if_closed();
        }
    }

    /// The supervisor of a node; a new one if there is none.
    fn supervisor(self: &Arc<Self>, node: &Endpoint) -> ConnectionSupervisor {
        let mut supervisors = self.supervisors.lock();
        let made = || {
            let _entered = self.runtime.enter();
            let redirect: Arc<dyn Redirect> = Arc::new(ToNamedNode(Arc::downgrade(self)));
            ConnectionSupervisor::spawn(
                Address::Tcp(node.clone()),
                Arc::clone(&self.context),
                Some(redirect),
                self.first_connect.until,
            )
        };
        let supervisor = supervisors.entry(node.clone()).or_insert_with(made).clone();
        if self.closed.load(Ordering::Acquire) {
            supervisor.close();
        }
        supervisor
    }

    /// Reads the table from the first node that answers, and returns whether it has changed. Healthy nodes are tried
    /// first.
    async fn read_table(self: &Arc<Self>) -> Result<bool, Failure> {
        let mut known: Vec<(bool, Endpoint)> = {
            let supervisors = self.supervisors.lock();
            supervisors.iter().map(|(node, supervisor)| (!supervisor.is_healthy(), node.clone())).collect()
        };
        known.sort_by_key(|(is_in_trouble, _)| *is_in_trouble);
        let known: Vec<Endpoint> = known.into_iter().map(|(_, node)| node).collect();
        let asked = known.iter().chain(&self.seeds);
        let (slots, nodes) =
            happy_eyeballs(asked.map(|node| cluster_slots::read(&self.context.connector, node)).collect())
                .await?;
        let changed = self.table.load().slots != slots || nodes.iter().any(|node| !known.contains(node));
        let supervisors = nodes.iter().map(|node| self.supervisor(node)).collect();
        self.table.store(Arc::new(Table { slots, supervisors }));
        self.forget_others(&nodes);
        Ok(changed)
    }

    /// Drops the supervisors of nodes that have left, once no caller waits for them: a new node may get operations
    /// before it is in every node's table.
    fn forget_others(&self, nodes: &[Endpoint]) {
        let mut others = self.supervisors.lock().clone();
        others.retain(|node, supervisor| !nodes.contains(node) && !supervisor.is_waited_for());
        self.supervisors.lock().retain(|node, _| !others.contains_key(node));
    }
}

const UNKNOWN_OWNER: Failure = Failure::not_applied(Degradation::ClusterDown);

impl Redirect for ToNamedNode {
    fn moved(&self, slot: u16, address: &str, told_by: &Address) {
        let (Some(shared), Some(node)) = (self.0.upgrade(), node(address, told_by)) else { return };
        let supervisor = shared.supervisor(&node);
        shared.table.rcu(|table| {
            let mut supervisors = table.supervisors.clone();
            let at = supervisors.iter().position(|known| known.is_same(&supervisor)).unwrap_or_else(|| {
                supervisors.push(supervisor.clone());
                supervisors.len() - 1
            });
            Table { slots: table.slots.with_owner(slot, at), supervisors }
        });
        shared.outdated.notify_one();
    }

    fn send(&self, operation: &Arc<PendingOperation>, address: &str, told_by: &Address, asking: bool) {
        let (Some(shared), Some(node)) = (self.0.upgrade(), node(address, told_by)) else {
            operation.answer(Err(UNKNOWN_OWNER));
            return;
        };
        operation.set_asking(asking);
        shared.supervisor(&node).submit(Arc::clone(operation));
        operation.end_if_closed();
    }
}

/// Parses `host:port` as nodes write it: an IPv6 address has no brackets, and the host may not be
/// [known](cluster_slots::known_host).
fn node(address: &str, told_by: &Address) -> Option<Endpoint> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let Address::Tcp(asked) = told_by else { return None };
    let host = cluster_slots::known_host(host, asked);
    Some(Endpoint { host, port: port.parse().ok()? })
}

/// The task that refreshes the table.
struct RefreshTask(Arc<Shared>);

impl RefreshTask {
    async fn run(self) {
        let shared = Arc::clone(&self.0);
        // Boxed, since the future contains a whole handshake.
        run_unless(&shared.closed, Box::pin(self.refresh())).await;
    }

    async fn refresh(self) {
        let Self(shared) = &self;
        let mut failed = 0;
        let (mut pause, mut in_demand) = (MIN_PAUSE, false);
        while !shared.closed.load(Ordering::Acquire) {
            match self.with_deadlines(shared.read_table()).await {
                Ok(changed) => {
                    failed = 0;
                    shared.first_connect.end();
                    pause = if changed || !in_demand { MIN_PAUSE } else { MAX_PAUSE.min(pause * 2) };
                    shared.submit_again();
                }
                Err(failure) => {
                    failed += 1;
                    shared.context.set_failing(true);
                    if shared.first_connect.end() {
                        shared.unrouted.bring_forward(monotonic::now() + shared.context.deadline);
                    }
                    if failed >= shared.context.breaker_failures {
                        shared.unrouted.answer_all(failure);
                    }
                }
            }
            if failed > 0 {
                self.with_deadlines(sleep(shared.context.pause_after(failed))).await;
                continue;
            }
            self.with_deadlines(sleep(pause)).await;
            let paused = monotonic::now();
            let outdated = async {
                tokio::select! {
                    () = shared.outdated.notified() => {}
                    () = sleep(shared.context.topology_refresh) => {}
                }
            };
            self.with_deadlines(outdated).await;
            in_demand = monotonic::now().saturating_duration_since(paused) < MAX_PAUSE;
        }
    }

    async fn with_deadlines<F: Future>(&self, future: F) -> F::Output {
        with_deadlines(&self.0.unrouted, &self.0.task, UNKNOWN_OWNER, future).await
    }
}

impl Drop for RefreshTask {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.unrouted.answer_all(UNKNOWN_OWNER);
    }
}
