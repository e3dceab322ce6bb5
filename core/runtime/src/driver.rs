//! A runtime for callers that have none: blocking callers, and futures that run on other executors.
//!
//! The runtime has no thread of its own. A thread that blocks on it drives it, and with it the connections: a single
//! caller reads and writes the socket itself, and of several callers one does it for all. When there is work and no
//! thread blocks, the driver starts a thread: until a server that was out of reach is found again, or permanently once a
//! future of another executor uses the runtime.
//!
//! The operating system may suspend or not schedule a thread that drives. The other waiting threads meanwhile check their
//! own deadlines. The first thread that finds its deadline missed replaces the runtime by another one, and a thread
//! drives the new one for a while.
//!
//! Closing the driver ends its threads and, once no caller blocks on it any more, the runtime with all its tasks.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::close_signal::{CloseSignal, closed};
use crate::fork::InProgress;
use crate::monotonic;
use crate::park::{self, WaitOutput};
#[cfg(feature = "testing")]
use crate::simulation;
use polylimit_rules::error::{Error, ErrorKind};

#[derive(Debug)]
pub struct Driver {
    /// `None` once the driver is closed.
    running: ArcSwapOption<Running>,
    threads: Arc<Threads>,
    started: Mutex<Vec<JoinHandle<()>>>,
}

/// The runtime, which ends when its last user drops it.
#[derive(Debug)]
pub struct Running {
    /// Always `Some` until the drop, except in a simulation, whose thread drives the runtime.
    runtime: Option<Runtime>,
    handle: Handle,
    seat: Seat,
}

/// The runtime, borrowed by a thread that blocks on it.
#[derive(Debug)]
pub struct InUse<'a> {
    driver: &'a Driver,
    running: Arc<Running>,
}

#[derive(Debug, Default)]
struct Threads {
    closing: CloseSignal,
    for_good: AtomicBool,
    recovering: AtomicBool,
    /// Held while a permanent thread is started or the runtime is replaced.
    changing: Mutex<()>,
}

impl Driver {
    pub fn new() -> Result<Self, Error> {
        let running = ArcSwapOption::from_pointee(Running::new()?);
        Ok(Self { running, threads: Arc::default(), started: Mutex::default() })
    }

    /// The runtime, which stays alive as long as the caller keeps the `Arc`.
    pub fn running(&self) -> Result<Arc<Running>, Error> {
        self.running.load_full().ok_or_else(closed)
    }

    /// The runtime, for a thread that blocks on it. The thread must not belong to a runtime.
    pub fn to_wait_on(&self) -> Result<InUse<'_>, Error> {
        Ok(InUse { driver: self, running: self.running()? })
    }

    /// Waits for a future on this thread, which must not belong to a runtime.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.to_wait_on()?.block_on(future)
    }

    /// Ends the threads that drive and releases the runtime, which drops its tasks. Waits up to `END_TIMEOUT` for the
    /// threads to end, so that their resources are free when this returns.
    pub fn close(&self) {
        self.threads.closing.close();
        drop(self.running.swap(None));
        let started = std::mem::take(&mut *self.started.lock());
        let until = monotonic::now() + END_TIMEOUT;
        for thread in started {
            // A thread cannot wait for its own end.
            while thread.thread().id() != std::thread::current().id() {
                if thread.is_finished() {
                    let _ = thread.join();
                    break;
                }
                if monotonic::now() >= until {
                    break;
                }
                std::thread::sleep(CHECK_INTERVAL);
            }
        }
    }

    /// Spawns a task on the runtime; a closed driver drops the task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(running) = self.running() {
            running.handle.spawn(task);
        }
    }

    /// Starts the thread that drives the runtime permanently, unless it runs already.
    pub fn run_for_good(&self) -> Result<(), Error> {
        if self.threads.for_good.load(Ordering::Acquire) {
            return Ok(());
        }
        let _changing = self.threads.changing.lock();
        if self.threads.for_good.load(Ordering::Acquire) {
            return Ok(());
        }
        let started = self.start_thread("polylimit-io", std::future::pending());
        self.threads.for_good.store(started.is_ok(), Ordering::Release);
        started
    }

    /// Replaces the runtime `late`, whose driving thread has missed a deadline. Operations on the old runtime end by
    /// their deadlines.
    fn replace(&self, late: &Arc<Running>) {
        let _changing = self.threads.changing.lock();
        // A thread of ours drives the runtime already and continues as soon as it is scheduled.
        let Threads { for_good, recovering, .. } = &*self.threads;
        if for_good.load(Ordering::Acquire) || recovering.load(Ordering::Relaxed) {
            return;
        }
        let Ok(running) = Running::new() else { return };
        // Meanwhile the driver may have been closed, or another waiter may have replaced the runtime.
        let before = self.running.compare_and_swap(late, Some(Arc::new(running)));
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, late)) {
            self.run_until(async { tokio::time::sleep(DRIVEN_FOR).await });
        }
    }

    /// Starts a thread that drives the runtime until `over` is ready, unless a thread drives it already.
    pub fn run_until(&self, over: impl Future<Output = ()> + Send + 'static) {
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
            // From here on callers that block drive it.
            recovering.store(false, Ordering::Relaxed);
        }
    }

    fn start_thread(&self, name: &str, over: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        let running = self.running()?;
        #[cfg(feature = "testing")]
        if running.runtime.is_none() {
            running.handle.spawn(over);
            return Ok(());
        }
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
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(drive)
            .map_err(|error| no_resources("thread", &error))?;
        started.push(thread);
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
    }
}

impl InUse<'_> {
    pub fn handle(&self) -> &Handle {
        &self.running.handle
    }

    /// Waits for a future on this thread, and replaces the runtime if its driving thread was late.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let WaitOutput { output, is_late } = self.running.block_on(future)?;
        if is_late {
            self.driver.replace(&self.running);
        }
        Ok(output)
    }
}

impl Running {
    fn new() -> Result<Self, Error> {
        #[cfg(feature = "testing")]
        if simulation::is_active()
            && let Ok(handle) = Handle::try_current()
        {
            return Ok(Self { handle, runtime: None, seat: Seat::default() });
        }
        let runtime = new_runtime().map_err(|error| no_resources("event queue or timer", &error))?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime), seat: Seat::default() })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    fn block_on<F: Future>(&self, future: F) -> Result<WaitOutput<F::Output>, Error> {
        self.runtime.as_ref().map(|runtime| self.seat.block_on(runtime, future)).ok_or_else(closed)
    }
}

/// A runtime of one thread. With the first one tokio initialises what it has for the whole process, such as signals.
pub fn new_runtime() -> std::io::Result<Runtime> {
    let _in_progress = InProgress::begin();
    Builder::new_current_thread().enable_all().build()
}

impl Drop for Running {
    /// Ends the runtime without waiting for its tasks: tokio forbids that wait on a thread of another runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Which of the waiting threads drives the runtime.
///
/// Tokio's `block_on` can share a runtime among threads, but a thread that does not drive then sleeps until it is woken:
/// if the driving thread is suspended, all others sleep as long. Here the other threads check their deadlines themselves.
#[derive(Debug, Default)]
struct Seat {
    is_taken: AtomicBool,
    /// Wakes a thread that waits for the seat.
    left: Notify,
}

struct TakenSeat<'a>(&'a Seat);

impl Seat {
    /// Waits for a future on this thread, and drives the runtime meanwhile if no other thread does.
    fn block_on<F: Future>(&self, runtime: &Runtime, future: F) -> WaitOutput<F::Output> {
        let mut future = pin!(future);
        loop {
            if let Some(_taken) = self.take() {
                return WaitOutput { output: runtime.block_on(future), is_late: false };
            }
            if let WaitOutput { output: Some(output), is_late } = self.wait(runtime, future.as_mut()) {
                return WaitOutput { output, is_late };
            }
        }
    }

    fn take(&self) -> Option<TakenSeat<'_>> {
        // A plain read first: under load the seat is mostly taken.
        let is_free = !self.is_taken.load(Ordering::SeqCst) && !self.is_taken.swap(true, Ordering::SeqCst);
        is_free.then(|| TakenSeat(self))
    }

    /// Waits while another thread drives. The output is `None` when the seat is free.
    fn wait<F: Future>(&self, runtime: &Runtime, mut future: Pin<&mut F>) -> WaitOutput<Option<F::Output>> {
        let _entered = runtime.enter();
        let mut left = pin!(self.left.notified());
        park::wait(|cx| {
            // The waiter is registered before it checks the seat, so that it does not miss its release.
            if left.as_mut().poll(cx).is_ready() || !self.is_taken.load(Ordering::SeqCst) {
                return Poll::Ready(None);
            }
            future.as_mut().poll(cx).map(Some)
        })
    }
}

impl Drop for TakenSeat<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::SeqCst);
        self.0.left.notify_one();
    }
}

/// How long a thread drives a runtime that has replaced another.
const DRIVEN_FOR: Duration = Duration::from_secs(60);

thread_local! {
    static OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The error for a resource that the operating system refuses at the moment. A later try may succeed; decisions that need
/// no such resource go on.
pub fn no_resources(what: &str, error: &std::io::Error) -> Error {
    let message =
        format!("the system gives no {what} ({error}): see its limits of descriptors, memory and threads");
    Error::new(ErrorKind::StoreUnavailable, message).caused_by_io(error)
}

/// Whether this is a thread that only drives a runtime of ours.
pub fn is_own_thread() -> bool {
    OWN_THREAD.get()
}

/// How long `close` waits for the threads. They end within microseconds unless the machine is very busy, and nothing
/// depends on the wait.
const END_TIMEOUT: Duration = Duration::from_millis(100);
const CHECK_INTERVAL: Duration = Duration::from_micros(50);
