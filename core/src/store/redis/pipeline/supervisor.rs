//! A supervised connection to one server: what waits for it, and the task that drives it.
//!
//! Callers put operations into its queue and wait for their answers. The task connects when there is something to ask,
//! sends what waits together in one write, and answers every operation by its deadline, whatever the server does. It runs
//! on the runtime of whoever uses it, so that a lone caller needs no hop to another thread; where it has a thread of its
//! own, callers send from theirs while nothing is under way.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use std::time::Instant;

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

use crate::rules::decision::Degradation;
use crate::runtime::driver;
use crate::store::redis::config::target::Endpoint;
use crate::store::redis::pipeline::circuit_breaker::{Admission, CircuitBreaker};
use crate::store::redis::pipeline::connection::{Connection, End};
use crate::store::redis::pipeline::context::Context;
pub(crate) use crate::store::redis::pipeline::deadlines::expiring;
pub(crate) use crate::store::redis::pipeline::first_connection::Beginning;
use crate::store::redis::pipeline::limits::Member;
use crate::store::redis::pipeline::pending::PendingOperation;
pub(crate) use crate::store::redis::pipeline::queue::Queue;
use crate::store::redis::routing::cluster::Redirect;
use crate::store::redis::transport::connect::{Address, Connected};
use crate::store::redis::transport::failure::{Class, Failure};
use crate::store::redis::transport::server_time::ServerTime;
use crate::store::redis::transport::stream::Stream;

/// A handle; the task ends when all of them are gone.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSupervisor {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held(Arc<Shared>);

/// What callers and the task permit.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) context: Arc<Context>,
    /// Where to go when a cluster sends us elsewhere.
    pub(crate) redirect: Option<Redirect>,
    pub(crate) queue: Queue,
    pub(crate) breaker: CircuitBreaker,
    pub(crate) beginning: Beginning,
    pub(crate) time: ServerTime,
    /// The task that drives the connection.
    pub(crate) task: AtomicWaker,
    /// Whether it last ran on a thread that does nothing else.
    pub(crate) has_thread: AtomicBool,
    /// The connection that stands, if one does.
    pub(crate) serving: Mutex<Option<Connection>>,
    /// Whether somebody has asked in vain since the last attempt to connect.
    pub(crate) wanted: AtomicBool,
    pub(crate) closed: AtomicBool,
    /// Whether it is closed whatever is under way.
    pub(crate) cut: AtomicBool,
}

impl ConnectionSupervisor {
    /// A link whose task runs on the current runtime.
    /// Callers wait for its first connection until `first_until`.
    pub(crate) fn spawn(
        address: Address,
        context: Arc<Context>,
        redirect: Option<Redirect>,
        first_until: Instant,
    ) -> Self {
        let shared = Arc::new(Shared {
            address,
            redirect,
            queue: Queue::default(),
            breaker: CircuitBreaker::new(context.breaker_failures),
            beginning: Beginning::new(first_until),
            context,
            time: ServerTime::default(),
            task: AtomicWaker::new(),
            has_thread: AtomicBool::new(false),
            serving: Mutex::default(),
            wanted: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        });
        tokio::spawn(Task(Arc::clone(&shared)).run());
        Self { held: Arc::new(Held(shared)) }
    }

    /// Puts a operation into the queue, or answers it at once when that is of no use.
    #[inline]
    pub(crate) fn submit(&self, operation: Arc<PendingOperation>) {
        self.held.0.submit(operation);
    }

    /// Whether the server answers, as far as is known.
    pub(crate) fn is_healthy(&self) -> bool {
        self.held.0.breaker.is_closed()
    }

    /// Until when its first connection is waited for; `None` when that is over.
    #[inline]
    pub(crate) fn first_connect_until(&self) -> Option<Instant> {
        self.held.0.beginning.until()
    }

    /// Whether somebody waits for an answer.
    pub(crate) fn is_waited_for(&self) -> bool {
        let Held(shared) = &*self.held;
        !shared.queue.is_empty() || shared.serving.lock().as_ref().is_some_and(Connection::is_waited_for)
    }

    /// Whether both lead over the same connection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.held, &other.held)
    }

    /// Tells those that wait for an answer to a limiter that is closed.
    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        let Held(shared) = &*self.held;
        // What moves between the connection and the queue does so under this lock.
        let serving = shared.serving.lock();
        if let Some(serving) = &*serving {
            serving.end_waiting(member);
        }
        shared.queue.end_waiting(member);
    }

    /// Ends the connection now; its task finds that out when its runtime has it run.
    pub(crate) fn close(&self) {
        self.held.0.cut();
    }

    /// Whether its task has ended, along with the runtime that it ran on.
    pub(crate) fn is_dead(&self) -> bool {
        self.held.0.is_closed()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.task.wake();
    }
}

impl Shared {
    /// Ends it at once. The connection and what waits for it do not wait for the task, whose runtime may never run again.
    fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.closed.store(true, Ordering::Release);
        // Those under way are answered as it is dropped, which may call others.
        let serving = self.serving.lock().take();
        drop(serving);
        self.queue.answer_all(UNREACHABLE);
        self.task.wake();
    }

    fn submit(&self, operation: Arc<PendingOperation>) {
        if let Admission::Refused(reason) = self.breaker.admit() {
            if !self.wanted.swap(true, Ordering::Relaxed) {
                self.task.wake();
            }
            operation.answer(Err(Failure::not_applied(reason)));
            return;
        }
        let first = operation.is_first.then(|| Arc::clone(&operation));
        if self.queue.push(operation) && !self.send_from_caller() {
            self.task.wake();
        }
        if let Some(first) = first
            && !self.beginning.lasts()
        {
            // It came too late to be told along with the others.
            first.bring_forward(self.deadline());
            self.task.wake();
        }
        // The task may have ended just before, and then nobody else answers.
        if self.is_closed() {
            self.queue.answer_all(UNREACHABLE);
        }
    }

    /// Sends what waits on this thread, if the task has one of its own and is not at work. Says whether the task need not be
    /// woken.
    fn send_from_caller(&self) -> bool {
        let is_elsewhere = self.has_thread.load(Ordering::Relaxed) && !driver::is_own_thread();
        let serving = if is_elsewhere { self.serving.try_lock() } else { None };
        serving.is_some_and(|mut serving| serving.as_mut().is_some_and(Connection::send_from_caller))
    }

    /// When something has to be answered that is asked now.
    fn deadline(&self) -> Instant {
        Instant::now() + self.context.deadline
    }

    /// Notes that the server has decided something.
    pub(crate) fn succeeded(&self) {
        self.breaker.succeeded();
        self.beginning.end();
        self.context.set_failing(false);
    }

    /// Notes a failure of the server; while the breaker is open nobody waits.
    pub(crate) fn failed(&self, reason: Degradation) {
        self.context.set_failing(true);
        if self.beginning.end() {
            self.queue.bring_forward(self.deadline());
        }
        if self.breaker.failed(reason) {
            self.context.counters.breaker_opened.add(1);
        }
        if !self.breaker.is_closed() {
            self.queue.answer_all(Failure::not_applied(reason));
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

const UNREACHABLE: Failure = Failure::not_applied(Degradation::Unreachable);

/// How serving over a connection has ended.
struct Served {
    end: End,
    /// Whether anything was decided over it.
    has_decided: bool,
    /// Where the server is now, if that was why.
    moved: Option<Endpoint>,
}

/// The task of a link. However it ends, also with its runtime, nobody is left waiting.
struct Task(Arc<Shared>);

impl Task {
    async fn run(self) {
        let shared = Arc::clone(&self.0);
        let mut driving = pin!(self.drive());
        // It is polled whenever something is to be seen to.
        poll_fn(
            |cx| if shared.cut.load(Ordering::Acquire) { Poll::Ready(()) } else { driving.as_mut().poll(cx) },
        )
        .await;
    }

    async fn drive(self) {
        let shared = &*self.0;
        let context = &*shared.context;
        // How many attempts have failed in a row.
        let mut failed = 0;
        let mut told = context.switches.told();
        let mut moved_to = None;
        loop {
            if !self.expiring(self.wanted()).await {
                return;
            }
            told.forget();
            let longest = shared.beginning.left();
            let connecting =
                context.connector.connect(&shared.address, moved_to.take(), &shared.time, longest);
            match self.expiring(connecting).await {
                Ok(Connected { stream, primary }) => {
                    context.counters.connections.add(1);
                    shared.breaker.reconnected();
                    if !self.hold(stream) {
                        return;
                    }
                    context.switches.listen(&shared.context, &shared.address);
                    let every = context.topology_refresh;
                    let moved = context.connector.moved(&shared.address, primary, &mut told, every);
                    let Some(Served { end, has_decided, moved: to }) = self.serve(moved).await else {
                        return;
                    };
                    moved_to = to;
                    if end == End::Closed {
                        return;
                    }
                    // A connection that worked is replaced at once; not one over which a server only refused.
                    failed = if end == End::Broken && !has_decided { failed + 1 } else { 0 };
                }
                Err(failure) => {
                    failed += 1;
                    shared.failed(failure.reason);
                    if failure.class == Class::Permanent {
                        shared.queue.answer_all(failure);
                    }
                }
            }
            if failed > 0 {
                self.expiring(tokio::time::sleep(context.pause_after(failed))).await;
            }
        }
    }

    /// Keeps a new connection, unless the link was cut meanwhile.
    fn hold(&self, stream: Stream) -> bool {
        let mut serving = self.0.serving.lock();
        let is_open = !self.0.cut.load(Ordering::Acquire);
        if is_open {
            *serving = Some(Connection::new(&self.0, stream));
        }
        is_open
    }

    /// Serves until the connection ends, or has to because the server has moved.
    async fn serve(&self, moved: impl Future<Output = Endpoint>) -> Option<Served> {
        let shared = &*self.0;
        let mut moved = pin!(moved);
        let mut moved_to = None;
        poll_fn(|cx| {
            shared.has_thread.store(driver::is_own_thread(), Ordering::Relaxed);
            let mut held = shared.serving.lock();
            let Some(serving) = held.as_mut() else { return Poll::Ready(None) };
            if !serving.is_leaving()
                && let Poll::Ready(to) = moved.as_mut().poll(cx)
            {
                moved_to = Some(to);
                serving.retire();
            }
            let end = ready!(serving.poll(cx));
            // From here on nobody sends over it.
            let served = held.take();
            drop(held);
            let has_decided = served.as_ref().is_some_and(Connection::has_decided);
            Poll::Ready(served.map(|_| Served { end, has_decided, moved: moved_to.take() }))
        })
        .await
    }

    /// Waits while nothing can be sent. Whose time is over meanwhile is told what was wrong.
    async fn expiring<F: Future>(&self, future: F) -> F::Output {
        let late = Failure::not_applied(self.0.breaker.reason());
        expiring(&self.0.queue, &self.0.task, late, future).await
    }

    /// Waits until there is a reason to connect; says no when nobody needs the link any more.
    async fn wanted(&self) -> bool {
        let shared = &*self.0;
        poll_fn(|_| {
            // It is polled whenever somebody asks.
            if shared.is_closed() {
                Poll::Ready(false)
            } else if shared.wanted.swap(false, Ordering::Relaxed) || !shared.queue.is_empty() {
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
