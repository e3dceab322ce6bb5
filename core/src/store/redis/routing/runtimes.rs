//! The connections of a store on each runtime.
//!
//! A connection task runs on the runtime of its callers, so that they need no hop to another thread. When a runtime
//! ends, its connections end with it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};

use crate::error::Error;
use crate::runtime::close_signal::{CloseSignal, closed};
use crate::runtime::driver::{Driver, InUse};
use crate::runtime::monotonic;
use crate::store::redis::config::target::Endpoints;
use crate::store::redis::pipeline::context::Context;
use crate::store::redis::pipeline::limits::Member;
use crate::store::redis::routing::topology::Topology;

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
            return Ok(crate::runtime::park::block_on(ask(self.of_own()?)));
        }
        let (running, topology) = self.to_wait_on()?;
        running.block_on(ask(topology))
    }

    /// The store's own runtime and its connections, for a thread that blocks on it. A background thread keeps trying to
    /// reach an unreachable server after the blocking thread has returned.
    pub(crate) fn to_wait_on(&self) -> Result<(InUse<'_>, Arc<Topology>), Error> {
        let driver = self.driver()?;
        let running = driver.to_wait_on()?;
        let topology = self.of(running.handle())?;
        if !topology.is_healthy() {
            let topology = Arc::clone(&topology);
            driver.run_until(async move {
                let started = monotonic::now();
                while !topology.is_healthy()
                    && !topology.is_dead()
                    && monotonic::now().saturating_duration_since(started) < RECOVERY_TIMEOUT
                {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            });
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

    /// Answers the pending operations of a limiter that is closed; other limiters keep using the connections.
    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        for (_, topology) in self.topologies.load().iter() {
            topology.end_waiting(member);
        }
    }

    /// Fails when the connections are closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closing.is_closed() { Err(closed()) } else { Ok(()) }
    }

    fn of(&self, runtime: &Handle) -> Result<Arc<Topology>, Error> {
        let id = runtime.id();
        if let Some(topology) = find(&self.topologies.load(), id) {
            return Ok(topology);
        }
        let _changing = self.changing.lock();
        self.check_open()?;
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
    let has_timers = has(|| drop(tokio::time::sleep(Duration::ZERO)));
    // Opened and closed at once; whether the system provides a socket does not matter here.
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
