//! A runtime of our own, for callers that have none: those of the blocking face, and futures of other executors.
//!
//! It has no thread. Whoever blocks on it drives it, and with it the connections: a lone caller reads and writes the
//! socket itself, and of many callers one does it for all. When there is something to do and nobody who blocks, a
//! thread is started that drives it: for as long as a server is out of reach, so that it is found again, or for good
//! once a future is waited for elsewhere.
//!
//! Closing it ends its threads and, once no caller blocks on it any more, the runtime with all its tasks.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::closing::{Closing, closed};
use crate::error::{Error, ErrorKind};

#[derive(Debug)]
pub(crate) struct Driver {
    /// Not there any more once it is closed.
    running: ArcSwapOption<Running>,
    threads: Arc<Threads>,
    started: Mutex<Vec<JoinHandle<()>>>,
}

/// The runtime, for as long as it is used.
#[derive(Debug)]
pub(crate) struct Running {
    /// Always there; taken when it ends.
    runtime: Option<Runtime>,
    handle: Handle,
}

#[derive(Debug, Default)]
struct Threads {
    closing: Closing,
    for_good: AtomicBool,
    recovering: AtomicBool,
}

impl Driver {
    pub(crate) fn new() -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            Error::new(ErrorKind::Internal, format!("the system gives no event queue or timer: {error}"))
        })?;
        let running = Running { handle: runtime.handle().clone(), runtime: Some(runtime) };
        let running = ArcSwapOption::from_pointee(running);
        Ok(Self { running, threads: Arc::default(), started: Mutex::default() })
    }

    /// The runtime, for who uses it until then.
    pub(crate) fn running(&self) -> Result<Arc<Running>, Error> {
        self.running.load_full().ok_or_else(closed)
    }

    /// Waits for a future on this thread, which must not belong to a runtime.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.running()?.block_on(future)
    }

    /// Has no thread drive it any longer, and lets go of the runtime: what runs there is dropped. Waits a little until its
    /// threads have ended, so that what they hold is given back when this returns.
    pub(crate) fn close(&self) {
        self.threads.closing.close();
        drop(self.running.swap(None));
        let started = std::mem::take(&mut *self.started.lock());
        let until = Instant::now() + LONGEST_END;
        for thread in started {
            // A thread cannot wait for itself.
            while thread.thread().id() != std::thread::current().id() {
                if thread.is_finished() {
                    let _ = thread.join();
                    break;
                }
                if Instant::now() >= until {
                    break;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// Has the thread that drives it for good do something, unless it is closed: then that is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(running) = self.running() {
            running.handle.spawn(task);
        }
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
        let running = self.running()?;
        let threads = Arc::clone(&self.threads);
        let drive = move || {
            OWN_THREAD.set(true);
            let ended = running.block_on(async {
                tokio::select! {
                    () = threads.closing.closed() => {}
                    () = over => {}
                }
            });
            drop(ended);
        };
        let mut started = self.started.lock();
        started.retain(|thread| !thread.is_finished());
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(drive).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("the system gives no thread: {error}"))
        })?;
        started.push(thread);
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
    }
}

impl Running {
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for a future on this thread, which must not belong to a runtime.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.runtime.as_ref().map(|runtime| runtime.block_on(future)).ok_or_else(closed)
    }
}

impl Drop for Running {
    /// Ends the runtime without waiting for anything: that would not be allowed on a thread of another runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
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

/// Threads end within microseconds, unless the machine is very busy; nothing depends on having waited for them.
const LONGEST_END: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_micros(50);
