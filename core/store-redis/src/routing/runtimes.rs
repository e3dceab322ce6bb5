//! The connections of a store on each runtime.
//!
//! A connection task runs on the runtime of its callers, so that they need no hop to another thread. When a runtime
//! ends, its connections end with it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::time::{sleep, timeout};

use crate::config::target::Endpoints;
use crate::pipeline::pending::{Member, PendingOperation};
use crate::pipeline::server::Context;
use crate::pipeline::supervisor::ConnectionSupervisor;
use crate::routing::cluster::Cluster;
use crate::transport::connect::Address;
use polylimit_rules::error::Error;
use polylimit_runtime::close_signal::{CloseSignal, closed};
use polylimit_runtime::driver::{Driver, InUse};

/// How long the store keeps trying to reach a server after an operation, and how often it checks for success.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Runtimes {
    endpoints: Endpoints,
    context: Arc<Context>,
    topologies: ArcSwap<Vec<(Id, Arc<Topology>)>>,
    /// Locked while the connections of the runtimes change.
    changing: Mutex<()>,
    /// Closed when no more connections may be made.
    closing: CloseSignal,
    driver: OnceLock<Arc<Driver>>,
}

impl Runtimes {
    pub(crate) fn new(endpoints: Endpoints, context: Arc<Context>) -> Self {
        Self {
            endpoints,
            context,
            topologies: ArcSwap::default(),
            changing: Mutex::default(),
            closing: CloseSignal::default(),
            driver: OnceLock::new(),
        }
    }

    /// The connections of the current runtime; without one, those of the store's own runtime, which a thread drives.
    pub(crate) fn here(&self) -> Result<Arc<Topology>, Error> {
        match Handle::try_current() {
            Ok(current) => self.of(&current),
            Err(_) => self.of_own(),
        }
    }

    /// Runs a future on the thread of the store's own runtime.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        let driver = self.driver()?;
        driver.run_for_good()?;
        driver.spawn(future);
        Ok(())
    }

    /// The connections of the store's own runtime, which a thread drives.
    pub(crate) fn of_own(&self) -> Result<Arc<Topology>, Error> {
        let driver = self.driver()?;
        driver.run_for_good()?;
        self.of(driver.running()?.handle())
    }

    /// Blocks this thread until the future that uses the given connections is ready.
    pub(crate) fn block_on<F: Future>(
        &self,
        ask: impl FnOnce(Arc<Topology>) -> F,
    ) -> Result<F::Output, Error> {
        if Handle::try_current().is_ok() {
            // A thread of a runtime must not drive another one, and may be the only one to drive its own.
            return Ok(polylimit_runtime::park::block_on(ask(self.of_own()?)));
        }
        let (running, topology) = self.to_wait_on()?;
        running.block_on(ask(topology))
    }

    /// The store's own runtime and its connections, for a thread that blocks on it. A background thread keeps trying to
    /// reach an unreachable server, or to replace an old connection, after the blocking thread has returned.
    pub(crate) fn to_wait_on(&self) -> Result<(InUse<'_>, Arc<Topology>), Error> {
        let driver = self.driver()?;
        let running = driver.to_wait_on()?;
        let topology = self.of(running.handle())?;
        if topology.is_connecting() {
            let topology = Arc::clone(&topology);
            let recovered = async move {
                while topology.is_connecting() && !topology.is_dead() {
                    sleep(LOOK_EVERY).await;
                }
            };
            driver.run_until(async { drop(timeout(RECOVERY_TIMEOUT, recovered).await) });
        }
        Ok((running, topology))
    }

    /// The store's own runtime, created on first use.
    pub(crate) fn driver(&self) -> Result<&Arc<Driver>, Error> {
        let driver = if let Some(driver) = self.driver.get() {
            driver
        } else {
            let driver = Arc::new(Driver::new()?);
            self.driver.get_or_init(|| driver)
        };
        if self.closing.is_closed() {
            // Another thread may have created it meanwhile.
            driver.close();
            return Err(closed());
        }
        Ok(driver)
    }

    /// Closes all connections and answers all pending operations.
    pub(crate) fn close(&self) {
        let topologies = {
            let _changing = self.changing.lock();
            self.closing.close();
            self.topologies.swap(Arc::default())
        };
        for (_, topology) in topologies.iter() {
            topology.close();
        }
        if let Some(driver) = self.driver.get() {
            driver.close();
        }
    }

    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        for (_, topology) in self.topologies.load().iter() {
            topology.end_waiting(member);
        }
    }

    fn of(&self, runtime: &Handle) -> Result<Arc<Topology>, Error> {
        let id = runtime.id();
        if let Some(topology) = find(&self.topologies.load(), id) {
            return Ok(topology);
        }
        let _changing = self.changing.lock();
        if self.closing.is_closed() {
            return Err(closed());
        }
        let mut topologies = Vec::clone(&self.topologies.load());
        if let Some(topology) = find(&topologies, id) {
            return Ok(topology);
        }
        let _entered = runtime.enter();
        check_drivers()?;
        let topology = Arc::new(Topology::spawn(&self.endpoints, &self.context));
        topologies.retain(|(_, topology)| !topology.is_dead());
        topologies.push((id, Arc::clone(&topology)));
        self.topologies.store(Arc::new(topologies));
        Ok(topology)
    }
}

/// Refuses a runtime without timers or sockets. Tokio reports that only by panicking.
fn check_drivers() -> Result<(), Error> {
    let has = |use_driver: fn()| std::panic::catch_unwind(use_driver).is_ok();
    let has_timers = has(|| drop(sleep(Duration::ZERO)));
    // Opened and closed at once; it does not matter here whether the system provides a socket.
    #[cfg(unix)]
    let has_sockets = has(|| drop(tokio::net::UnixDatagram::unbound()));
    #[cfg(not(unix))]
    let has_sockets = true;
    if has_timers && has_sockets {
        return Ok(());
    }
    Err(Error::invalid_argument(
        "this tokio runtime has no timers or no I/O, which the Redis store needs: build it with enable_all, or use \
         polylimit::blocking::Limiter outside of it",
    ))
}

fn find(topologies: &[(Id, Arc<Topology>)], id: Id) -> Option<Arc<Topology>> {
    let (_, topology) = topologies.iter().find(|(of, _)| *of == id)?;
    (!topology.is_dead()).then(|| Arc::clone(topology))
}

/// The connections of one runtime: to one server, wherever it is at the moment, or to the nodes of a cluster.
#[derive(Debug)]
pub(crate) enum Topology {
    One(ConnectionSupervisor),
    Cluster(Cluster),
}

impl Topology {
    /// Creates the connections; their tasks run on the current runtime.
    pub(crate) fn spawn(endpoints: &Endpoints, context: &Arc<Context>) -> Self {
        let (context, first_until) = (Arc::clone(context), context.first_connect_until());
        match Address::of(endpoints) {
            Ok(address) => Self::One(ConnectionSupervisor::spawn(address, context, None, first_until)),
            Err(seeds) => Self::Cluster(Cluster::spawn(seeds.into(), context, first_until)),
        }
    }

    /// Until when callers wait for the first connection to the slot's server; `None` after the first connection.
    #[inline]
    pub(crate) fn first_connect_until(&self, slot: u16) -> Option<Instant> {
        match self {
            Self::One(supervisor) => supervisor.first_connect_until(),
            Self::Cluster(cluster) => cluster.first_connect_until(slot),
        }
    }

    #[inline]
    pub(crate) fn submit(&self, operation: Arc<PendingOperation>) {
        match self {
            Self::One(supervisor) => supervisor.submit(operation),
            Self::Cluster(cluster) => cluster.submit(operation),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether it tries to reach a server that is down, or to replace an old connection.
    pub(crate) fn is_connecting(&self) -> bool {
        match self {
            Self::One(supervisor) => supervisor.is_connecting(),
            Self::Cluster(cluster) => cluster.is_connecting(),
        }
    }

    /// Closes all connections now, whatever their runtime is doing. Pending operations are answered with a failure.
    pub(crate) fn close(&self) {
        match self {
            Self::One(supervisor) => supervisor.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }

    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        match self {
            Self::One(supervisor) => supervisor.end_waiting(member),
            Self::Cluster(cluster) => cluster.end_waiting(member),
        }
    }

    /// Whether its tasks have ended, together with their runtime.
    pub(crate) fn is_dead(&self) -> bool {
        match self {
            Self::One(supervisor) => supervisor.is_dead(),
            Self::Cluster(cluster) => cluster.is_dead(),
        }
    }
}
