//! A runtime of our own, for callers that have none: those of the blocking face, and futures of other executors.
//!
//! It has no thread. Whoever blocks on it drives it, and with it the connections: a lone caller reads and writes the
//! socket itself, and of many callers one does it for all. When there is something to do and nobody who blocks, a
//! thread is started that drives it: for as long as a server is out of reach, so that it is found again, or for good
//! once a future is waited for elsewhere.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;

use crate::error::{Error, ErrorKind};

#[derive(Debug)]
pub(crate) struct Driver {
    /// Always there; taken when the driver is dropped.
    runtime: Option<Arc<Runtime>>,
    handle: Handle,
    threads: Arc<Threads>,
}

#[derive(Debug)]
struct Threads {
    /// Has no permits; closed along with the driver.
    open: Semaphore,
    for_good: AtomicBool,
    recovering: AtomicBool,
    /// Whether a thread has come to its end after it was closed.
    ended: Mutex<bool>,
}

impl Driver {
    pub(crate) fn new() -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            Error::new(ErrorKind::Internal, format!("the system gives no event queue or timer: {error}"))
        })?;
        let (for_good, recovering, ended) = Default::default();
        let threads = Threads { open: Semaphore::new(0), for_good, recovering, ended };
        let handle = runtime.handle().clone();
        Ok(Self { runtime: Some(Arc::new(runtime)), handle, threads: Arc::new(threads) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for a future on this thread, which must not belong to a runtime.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let closed = || Error::new(ErrorKind::Closed, "the limiter is closed");
        self.runtime.as_ref().map(|runtime| runtime.block_on(future)).ok_or_else(closed)
    }

    /// Has no thread drive it any longer.
    pub(crate) fn close(&self) {
        self.threads.open.close();
    }

    /// Waits until no thread drives it any longer.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let threads = Arc::clone(&self.threads);
        // There are no permits: it answers when it is closed.
        async move { drop(threads.open.acquire().await) }
    }

    /// Has the thread that drives it for good do something, unless that has come to its end: then it is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.threads.ended.lock();
        if !*ended {
            self.handle.spawn(task);
        }
        // Dropping it may take other locks.
        drop(ended);
    }

    /// Has a thread drive it for good.
    pub(crate) fn run_for_good(&self) -> Result<(), Error> {
        if self.threads.for_good.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let started = self.start_thread("polylimit-io", std::future::pending());
        self.threads.for_good.store(started.is_ok(), Ordering::Relaxed);
        started
    }

    /// Has a thread drive it until something is over, if none does already.
    pub(crate) fn run_until(&self, over: impl Future<Output = ()> + Send + 'static) {
        let Threads { for_good, recovering, .. } = &*self.threads;
        if for_good.load(Ordering::Relaxed) || recovering.swap(true, Ordering::Relaxed) {
            return;
        }
        let threads = Arc::clone(&self.threads);
        let recovered = async move {
            over.await;
            threads.recovering.store(false, Ordering::Relaxed);
        };
        if self.start_thread("polylimit-recovery", recovered).is_err() {
            // Then it is driven a little further by each caller that blocks.
            recovering.store(false, Ordering::Relaxed);
        }
    }

    fn start_thread(&self, name: &str, over: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        let Some(runtime) = self.runtime.clone() else { return Ok(()) };
        let threads = Arc::clone(&self.threads);
        let drive = move || {
            OWN_THREAD.set(true);
            runtime.block_on(async {
                tokio::select! {
                    _ = threads.open.acquire() => wind_down(&threads.ended).await,
                    () = over => {}
                }
            });
            shut_down(runtime);
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(drive)
            .map(drop)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("the system gives no thread: {error}")))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
        if let Some(runtime) = self.runtime.take() {
            shut_down(runtime);
        }
    }
}

thread_local! {
    static OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread only drives a runtime of ours.
pub(crate) fn is_own_thread() -> bool {
    OWN_THREAD.get()
}

/// Lets what still runs come to its end: whoever waits for it is answered, within a deadline.
async fn wind_down(ended: &Mutex<bool>) {
    let metrics = Handle::current().metrics();
    let started = Instant::now();
    loop {
        {
            // Under the lock, so that nothing is spawned that would never run.
            let mut ended = ended.lock();
            if metrics.num_alive_tasks() == 0 || started.elapsed() >= LONGEST_END {
                *ended = true;
                return;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A deadline is at most a minute.
const LONGEST_END: Duration = Duration::from_secs(61);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Ends a runtime without waiting for anything, if this is its last owner: dropping it would not be allowed on a thread
/// of another runtime.
fn shut_down(runtime: Arc<Runtime>) {
    if let Ok(runtime) = Arc::try_unwrap(runtime) {
        runtime.shutdown_background();
    }
}
