//! The connections of each runtime that a store is used from.
//!
//! A connection's task runs on the runtime of its callers, so that they need no hop to another thread. A runtime that
//! ends takes its connections along.

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

/// For so long a server is looked for after somebody has asked for it, and so often it is seen whether it is found.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Runtimes {
    endpoints: Endpoints,
    context: Arc<Context>,
    topologies: ArcSwap<Vec<(Id, Arc<Topology>)>>,
    /// Held while they change.
    changing: Mutex<()>,
    /// Closed when none may be made any more.
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

    /// The connections of the current runtime, or where there is none those of our own, driven by a thread.
    pub(crate) fn here(&self) -> Result<Arc<Topology>, Error> {
        match Handle::try_current() {
            Ok(current) => self.of(&current),
            Err(_) => self.of_own(),
        }
    }

    /// Has a thread of our own work on something.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        let driver = self.driver()?;
        driver.run_for_good()?;
        driver.spawn(future);
        Ok(())
    }

    /// Our own connections, driven by a thread.
    pub(crate) fn of_own(&self) -> Result<Arc<Topology>, Error> {
        let driver = self.driver()?;
        driver.run_for_good()?;
        self.of(driver.running()?.handle())
    }

    /// Waits on this thread for what is asked of the connections given to it.
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

    /// Our own runtime and its connections, for a thread that waits on them. A server that is out of reach is looked for
    /// after it has gone, too.
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

    /// Our own runtime, made when it is first needed.
    pub(crate) fn driver(&self) -> Result<&Arc<Driver>, Error> {
        let driver = if let Some(driver) = self.driver.get() {
            driver
        } else {
            let driver = Arc::new(Driver::new()?);
            self.driver.get_or_init(|| driver)
        };
        if self.closing.is_closed() {
            // It may have been made since.
            driver.close();
            return Err(closed());
        }
        Ok(driver)
    }

    /// Lets go of all connections. Whoever waits is answered.
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

    /// Has those told that wait for an answer to a limiter that is closed; others use the connections on.
    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        for (_, topology) in self.topologies.load().iter() {
            topology.end_waiting(member);
        }
    }

    /// Fails when there are no connections any more.
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

/// Refuses a runtime that has no timers or no sockets. Tokio tells that only by panicking.
fn check_drivers() -> Result<(), Error> {
    let has = |use_driver: fn()| std::panic::catch_unwind(use_driver).is_ok();
    let has_timers = has(|| drop(tokio::time::sleep(Duration::ZERO)));
    // It is opened and closed; whether the system gives one does not matter here.
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
