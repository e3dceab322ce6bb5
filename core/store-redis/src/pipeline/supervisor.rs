//! The connection supervisor of one server: a queue of operations, and the connection task.
//!
//! Callers put operations into the queue and wait for their answers. The task connects when there are operations, sends
//! queued operations together in one write, and answers every operation by its deadline, whatever the server does. It
//! runs on the callers' runtime, so that a lone caller needs no hop to another thread. If the task has its own thread,
//! callers send from their threads while nothing is in flight.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::target::Endpoint;
use crate::pipeline::circuit_breaker::Admission;
use crate::pipeline::connection::{Connection, End};
use crate::pipeline::pending::{Member, PendingOperation};
use crate::pipeline::queue::{run_unless, with_deadlines};
use crate::pipeline::server::{Context, Redirect, ServerState};
use crate::transport::CONNECT_TIMEOUT;
use crate::transport::connect::{Address, OpenStream};
use crate::transport::failure::{Class, Failure, UNREACHABLE};
use crate::transport::stream::Stream;
use polylimit_runtime::{driver, monotonic};

/// A handle; the task ends when all of them are gone.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSupervisor {
    held: Arc<SharedHandle>,
}

#[derive(Debug)]
struct SharedHandle(Arc<Shared>);

/// State that callers and the connection task share.
#[derive(Debug)]
struct Shared {
    server: Arc<ServerState>,
    /// Whether the connection task last ran on a thread that does nothing else.
    has_thread: AtomicBool,
    /// The open connection, if there is one.
    connection: Mutex<Option<Connection>>,
    /// Whether an operation was refused since the last attempt to connect.
    wanted: AtomicBool,
    /// Whether the connection ends at once, whatever is in flight.
    cut: AtomicBool,
    /// Whether a connection is being made that replaces the open one.
    replacing: AtomicBool,
}

/// What is known about the next connection.
#[derive(Default)]
struct Next {
    /// The address of the server, if sentinels reported that it has changed.
    moved_to: Option<Endpoint>,
    /// An open connection.
    successor: Option<OpenStream>,
}

impl ConnectionSupervisor {
    /// Creates a supervisor whose task runs on the current runtime. Callers wait for its first connection until
    /// `first_until`.
    pub(crate) fn spawn(
        address: Address,
        context: Arc<Context>,
        redirect: Option<Arc<dyn Redirect>>,
        first_until: Instant,
    ) -> Self {
        let shared = Arc::new(Shared {
            server: Arc::new(ServerState::new(address, context, redirect, first_until)),
            has_thread: AtomicBool::new(false),
            connection: Mutex::default(),
            wanted: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            replacing: AtomicBool::new(false),
        });
        tokio::spawn(Task(Arc::clone(&shared)).run());
        Self { held: Arc::new(SharedHandle(shared)) }
    }

    /// Queues an operation, or answers it at once when it cannot be sent.
    #[inline]
    pub(crate) fn submit(&self, operation: Arc<PendingOperation>) {
        self.held.0.submit(operation);
    }

    /// Whether the server answers, as far as is known.
    pub(crate) fn is_healthy(&self) -> bool {
        self.held.0.server.breaker.is_closed()
    }

    /// Whether it tries to reach a server that is down, or to replace an old connection.
    pub(crate) fn is_connecting(&self) -> bool {
        !self.is_healthy() || self.held.0.replacing.load(Ordering::Relaxed)
    }

    /// Until when callers wait for its first connection; `None` when that time has ended.
    #[inline]
    pub(crate) fn first_connect_until(&self) -> Option<Instant> {
        self.held.0.server.first_connect.until()
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        let SharedHandle(shared) = &*self.held;
        !shared.server.queue.is_empty()
            || shared.connection.lock().as_ref().is_some_and(Connection::is_waited_for)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.held, &other.held)
    }

    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        let SharedHandle(shared) = &*self.held;
        // Operations move between the connection and the queue only under this lock.
        let connection = shared.connection.lock();
        if let Some(connection) = &*connection {
            connection.end_waiting(member);
        }
        shared.server.queue.end_waiting(member);
    }

    /// Closes the connection now; the task ends when its runtime next runs it.
    pub(crate) fn close(&self) {
        self.held.0.cut();
    }

    /// Whether its task has ended, together with its runtime.
    pub(crate) fn is_dead(&self) -> bool {
        self.held.0.server.is_closed()
    }
}

impl Drop for SharedHandle {
    fn drop(&mut self) {
        self.0.server.closed.store(true, Ordering::Release);
        self.0.server.task.wake();
    }
}

impl Shared {
    /// Closes the connection and answers its operations at once, without waiting for the task, whose runtime may never
    /// run again.
    fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.server.closed.store(true, Ordering::Release);
        // Dropping the connection answers the operations in flight, which may wake other tasks.
        let connection = self.connection.lock().take();
        drop(connection);
        self.server.queue.answer_all(UNREACHABLE);
        self.server.task.wake();
    }

    fn submit(&self, operation: Arc<PendingOperation>) {
        if let Admission::Refused(reason) = self.server.breaker.admit() {
            if !self.wanted.swap(true, Ordering::Relaxed) {
                self.server.task.wake();
            }
            operation.answer(Err(Failure::not_applied(reason)));
            return;
        }
        let first = operation.is_first.then(|| Arc::clone(&operation));
        if self.server.queue.push(operation) && !self.send_from_caller() {
            self.server.task.wake();
        }
        if let Some(first) = first
            && !self.server.first_connect.lasts()
        {
            // The extra time for the first connection ended while this operation was being queued, after it had ended
            // for the operations in the queue.
            first.bring_forward(self.server.deadline());
            self.server.task.wake();
        }
        // The task may have ended just before; then this caller has to answer the queue.
        if self.server.is_closed() {
            self.server.queue.answer_all(UNREACHABLE);
        }
    }

    /// Sends queued operations on the caller's thread, if the task has its own thread and is idle. Returns whether the
    /// task need not be woken.
    fn send_from_caller(&self) -> bool {
        let is_elsewhere = self.has_thread.load(Ordering::Relaxed) && !driver::is_own_thread();
        let connection = if is_elsewhere { self.connection.try_lock() } else { None };
        connection.is_some_and(|mut connection| connection.as_mut().is_some_and(Connection::send_from_caller))
    }
}

/// The connection task. When it is dropped, even together with its runtime, all of its operations are answered.
struct Task(Arc<Shared>);

impl Task {
    async fn run(self) {
        let shared = Arc::clone(&self.0);
        run_unless(&shared.cut, self.drive()).await;
    }

    async fn drive(self) {
        let shared = &*self.0;
        let context = &*shared.server.context;
        // The number of consecutive failed attempts.
        let mut failed = 0;
        let mut events = context.switches.events();
        let mut next = Next::default();
        loop {
            let connected = match next.successor.take() {
                Some(successor) => Ok(successor),
                None if self.with_deadlines(self.wanted()).await => {
                    events.discard();
                    let longest = shared.server.first_connect.left();
                    self.with_deadlines(self.connect(next.moved_to.take(), longest)).await
                }
                None => return,
            };
            match connected {
                Ok(OpenStream { stream, has_module, primary }) => {
                    context.counters.connections.add(1);
                    shared.server.breaker.reconnected();
                    if !self.hold(stream, has_module) {
                        return;
                    }
                    context.switches.listen(&context.connector, &shared.server.address);
                    let every = context.topology_refresh;
                    let moved = context.connector.moved(&shared.server.address, primary, &mut events, every);
                    let served = self.serve(moved, &mut next).await;
                    shared.replacing.store(false, Ordering::Relaxed);
                    let Some((end, has_decided)) = served else { return };
                    if end == End::Closed {
                        return;
                    }
                    // A connection that worked is replaced at once, but not one on which the server only refused.
                    failed = if end == End::Broken && !has_decided { failed + 1 } else { 0 };
                }
                Err(failure) => {
                    failed += 1;
                    shared.server.failed(failure.reason);
                    if failure.class == Class::Permanent {
                        shared.server.queue.answer_all(failure);
                    }
                }
            }
            if failed > 0 {
                self.with_deadlines(tokio::time::sleep(context.pause_after(failed))).await;
            }
        }
    }

    async fn connect(&self, to: Option<Endpoint>, longest: Duration) -> Result<OpenStream, Failure> {
        let server = &self.0.server;
        server.context.connector.connect(&server.address, to, &server.time, longest).await
    }

    /// Connects again, however often that fails: the connection that is to be replaced stays in use meanwhile.
    async fn successor(&self) -> OpenStream {
        loop {
            self.0.replacing.store(true, Ordering::Relaxed);
            let started = monotonic::now();
            let connected = self.connect(None, Duration::ZERO).await;
            self.0.replacing.store(false, Ordering::Relaxed);
            if let Ok(successor) = connected {
                return successor;
            }
            // An attempt that took longer than it may was suspended, with its runtime: it says nothing about the server.
            if monotonic::now() - started < 2 * CONNECT_TIMEOUT {
                tokio::time::sleep(Context::pause_before_replacing()).await;
            }
        }
    }

    /// Stores a new connection, unless the supervisor was closed meanwhile.
    fn hold(&self, stream: Stream, has_module: bool) -> bool {
        let mut connection = self.0.connection.lock();
        let is_open = !self.0.cut.load(Ordering::Acquire);
        if is_open {
            *connection = Some(Connection::new(&self.0.server, stream, has_module));
        }
        is_open
    }

    /// Uses the connection until it ends, until another one replaces it, or until the server has moved to another
    /// address. Returns why it ended, and whether the server decided anything over it.
    async fn serve(&self, moved: impl Future<Output = Endpoint>, next: &mut Next) -> Option<(End, bool)> {
        let shared = &*self.0;
        let (mut moved, mut succeeding) = (pin!(moved), pin!(self.successor()));
        poll_fn(|cx| {
            shared.has_thread.store(driver::is_own_thread(), Ordering::Relaxed);
            loop {
                let mut held = shared.connection.lock();
                let Some(connection) = held.as_mut() else { return Poll::Ready(None) };
                if connection.leaving.is_none()
                    && let Poll::Ready(to) = moved.as_mut().poll(cx)
                {
                    next.moved_to = Some(to);
                    connection.retire();
                }
                if let Poll::Ready(end) = connection.poll(cx) {
                    // From here on no caller sends over it.
                    let served = held.take();
                    drop(held);
                    return Poll::Ready(served.map(|connection| (end, connection.has_decided)));
                }
                if !connection.is_old() {
                    return Poll::Pending;
                }
                // Callers may send meanwhile.
                drop(held);
                next.successor = Some(ready!(succeeding.as_mut().poll(cx)));
                if let Some(connection) = &mut *shared.connection.lock() {
                    connection.retire();
                }
            }
        })
        .await
    }

    /// Awaits a future while nothing can be sent. Operations whose deadline passes meanwhile are answered with the last
    /// failure.
    async fn with_deadlines<F: Future>(&self, future: F) -> F::Output {
        let late = Failure::not_applied(self.0.server.breaker.reason());
        with_deadlines(&self.0.server.queue, &self.0.server.task, late, future).await
    }

    /// Waits until there is a reason to connect; false when the supervisor is no longer used.
    async fn wanted(&self) -> bool {
        let shared = &*self.0;
        poll_fn(|_| {
            // Submitting an operation wakes the task.
            if shared.server.is_closed() {
                Poll::Ready(false)
            } else if shared.wanted.swap(false, Ordering::Relaxed) || !shared.server.queue.is_empty() {
                Poll::Ready(true)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.cut();
    }
}
