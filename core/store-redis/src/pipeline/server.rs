//! The state of one server, shared by the connection task, its connection and the callers; and the state that all
//! connections of a store share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atomic_waker::AtomicWaker;

use crate::config::Settings;
use crate::pipeline::circuit_breaker::CircuitBreaker;
use crate::pipeline::pending::PendingOperation;
use crate::pipeline::queue::{FirstConnectWindow, Queue};
use crate::transport::connect::{Address, Connector};
use crate::transport::failure::Failure;
use crate::transport::sentinel::Switches;
use crate::transport::server_time::ServerTime;
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::Error;
use polylimit_runtime::backoff::{self, Backoff};
use polylimit_runtime::clock::ManualClock;
use polylimit_runtime::monotonic;
use polylimit_store::stats::Counters;

/// The pause before the next attempt to replace an old connection that works.
const REPLACE_AGAIN: Duration = Duration::from_secs(5);

/// Routes operations to the nodes that a cluster's replies name.
pub(crate) trait Redirect: std::fmt::Debug + Send + Sync {
    /// The slot is owned by the node at `address` from now on, according to the node at `told_by`.
    fn moved(&self, slot: u16, address: &str, told_by: &Address);

    /// Sends an operation to the node at `address`; with `asking` while the slot is still moving there.
    fn send(&self, operation: &Arc<PendingOperation>, address: &str, told_by: &Address, asking: bool);
}

/// One server: its queue of operations, its circuit breaker and its clock.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) address: Address,
    pub(crate) context: Arc<Context>,
    /// Routes operations to other nodes of a cluster; `None` for a single server.
    pub(crate) redirect: Option<Arc<dyn Redirect>>,
    pub(crate) queue: Queue,
    pub(crate) breaker: CircuitBreaker,
    pub(crate) first_connect: FirstConnectWindow,
    pub(crate) time: ServerTime,
    /// The connection task.
    pub(crate) task: AtomicWaker,
    pub(crate) closed: AtomicBool,
}

impl ServerState {
    pub(crate) fn new(
        address: Address,
        context: Arc<Context>,
        redirect: Option<Arc<dyn Redirect>>,
        first_until: Instant,
    ) -> Self {
        Self {
            address,
            redirect,
            queue: Queue::default(),
            breaker: CircuitBreaker::new(context.breaker_failures),
            first_connect: FirstConnectWindow::new(first_until),
            context,
            time: ServerTime::default(),
            task: AtomicWaker::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// The deadline of an operation submitted now.
    pub(crate) fn deadline(&self) -> Instant {
        monotonic::now() + self.context.deadline
    }

    /// Records that the server has decided an operation.
    pub(crate) fn succeeded(&self) {
        self.breaker.succeeded();
        if self.first_connect.end() {
            // Later operations have shorter deadlines and would overtake those that have waited for the connection.
            self.queue.bring_forward(self.deadline());
        }
        self.context.set_failing(false);
    }

    /// Records a failure of the server. If the breaker is then open, all queued operations are answered at once.
    pub(crate) fn failed(&self, reason: Degradation) {
        self.context.set_failing(true);
        if self.first_connect.end() {
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

/// What all connections of a store share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) connector: Arc<Connector>,
    /// The clock that decides, if it is not the server's.
    pub(crate) manual: Option<ManualClock>,
    pub(crate) deadline: Duration,
    first_connect_max: Duration,
    failing: AtomicBool,
    /// Whether one of the limiters examines the servers, or has done so.
    pub(crate) examined: AtomicBool,
    pub(crate) breaker_failures: u32,
    pub(crate) topology_refresh: Duration,
    /// Counts that belong to no single limiter.
    pub(crate) counters: Counters,
    pub(crate) switches: Arc<Switches>,
    reconnect: Backoff,
    max_connection_age: Option<Duration>,
}

impl Context {
    pub(crate) fn new(settings: &Settings, manual: Option<ManualClock>) -> Result<Self, Error> {
        let reconnect = Backoff::builder()
            .base(settings.reconnect_min)
            .cap(settings.reconnect_max)
            .max_wait(settings.reconnect_max)
            .max_retries(u32::MAX)
            .build()?;
        Ok(Self {
            connector: Arc::new(Connector::new(settings)?),
            manual,
            deadline: settings.deadline,
            first_connect_max: settings.first_connect_max,
            failing: AtomicBool::new(false),
            examined: AtomicBool::new(false),
            breaker_failures: settings.breaker_failures,
            topology_refresh: settings.topology_refresh,
            counters: Counters::default(),
            switches: Arc::default(),
            reconnect,
            max_connection_age: Some(settings.max_connection_age).filter(|age| !age.is_zero()),
        })
    }

    pub(crate) fn after_fork(&self) -> Self {
        Self {
            connector: Arc::new(self.connector.after_fork()),
            manual: self.manual.clone(),
            failing: AtomicBool::new(false),
            examined: AtomicBool::new(false),
            counters: Counters::default(),
            switches: Arc::default(),
            reconnect: self.reconnect.clone(),
            ..*self
        }
    }

    /// Until when callers on a newly used runtime wait for its first connection: no extra time if the server is known
    /// to fail.
    pub(crate) fn first_connect_until(&self) -> Instant {
        monotonic::now() + if self.is_failing() { Duration::ZERO } else { self.first_connect_max }
    }

    /// Whether a server has failed since one has last decided.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_failing(&self, failing: bool) {
        // It rarely changes, and the cache line is shared.
        if self.failing.load(Ordering::Relaxed) != failing {
            self.failing.store(failing, Ordering::Relaxed);
        }
    }

    /// The pause after this many consecutive failed attempts to connect.
    pub(crate) fn pause_after(&self, failed: u32) -> Duration {
        self.reconnect.wait(failed.saturating_sub(1), None).unwrap_or_default()
    }

    /// The pause after a failed attempt to replace a connection that works: half of it is random.
    pub(crate) fn pause_before_replacing() -> Duration {
        REPLACE_AGAIN / 2 + backoff::part_of(REPLACE_AGAIN / 2)
    }

    /// When a connection made now is replaced: at a random time in the last quarter of its maximum age, so that
    /// connections of many processes are not replaced at the same time.
    pub(crate) fn retires_at(&self, now: Instant) -> Option<Instant> {
        self.max_connection_age.map(|age| now + age / 4 * 3 + backoff::part_of(age / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisOptions;
    use crate::pipeline::pending::{Member, ScriptRequest};
    use crate::script::call::PolicyCall;
    use polylimit_rules::policy::Policy;
    use polylimit_rules::transition::Operation;
    use polylimit_store::charge::Action;

    #[test]
    fn operations_that_waited_for_the_connection_are_not_overtaken_after_the_first_decision() {
        let settings = RedisOptions::parse("redis://h").unwrap().settings().unwrap();
        let context = Arc::new(Context::new(&settings, None).unwrap());
        let first_until = context.first_connect_until();
        let server = ServerState::new(Address::Unix("/socket".into()), context, None, first_until);
        let call = Arc::new(PolicyCall::new(
            &Policy::one_off("1/second", None).unwrap(),
            polylimit_rules::history::Change::NONE,
        ));
        let operation = |until, is_first| {
            let wanted = ScriptRequest {
                call: Arc::clone(&call),
                key: Vec::new(),
                slot: 0,
                action: Action::Apply(Operation::Check),
                cost: 1,
                headroom: 0,
                hold: None,
                decides: true,
                others: Box::default(),
                until,
                is_first,
                in_background: false,
            };
            PendingOperation::new(wanted, Member::new(1, 1_000).permit(0).unwrap())
        };
        let first = operation(first_until, true);
        server.queue.push(Arc::clone(&first));
        server.succeeded();
        let second = operation(server.deadline() + Duration::from_millis(1), false);
        server.queue.push(Arc::clone(&second));
        let mut taken = Vec::new();
        server.queue.take(2, &mut taken);
        assert!(Arc::ptr_eq(&taken[0], &first) && Arc::ptr_eq(&taken[1], &second));
    }
}
