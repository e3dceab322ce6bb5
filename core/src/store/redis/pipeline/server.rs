//! The state of one server, shared by the connection task, its connection and the callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use atomic_waker::AtomicWaker;

use crate::rules::decision::Degradation;
use crate::runtime::monotonic;
use crate::store::redis::pipeline::circuit_breaker::CircuitBreaker;
use crate::store::redis::pipeline::context::Context;
use crate::store::redis::pipeline::deadlines::FirstConnectWindow;
use crate::store::redis::pipeline::pending::PendingOperation;
use crate::store::redis::pipeline::queue::Queue;
use crate::store::redis::transport::connect::Address;
use crate::store::redis::transport::failure::Failure;
use crate::store::redis::transport::server_time::ServerTime;

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

    /// Records a failure of the server; if the breaker is open, all queued operations are answered at once.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rules::policy::Policy;
    use crate::rules::transition::Operation;
    use crate::store::redis::RedisOptions;
    use crate::store::redis::pipeline::limits::Member;
    use crate::store::redis::pipeline::pending::ScriptRequest;
    use crate::store::redis::script::call::PolicyCall;
    use crate::store::request::Action;

    #[test]
    fn operations_that_waited_for_the_connection_are_not_overtaken_after_the_first_decision() {
        let settings = RedisOptions::parse("redis://h").unwrap().settings().unwrap();
        let context = Arc::new(Context::new(&settings, None).unwrap());
        let first_until = context.first_connect_until();
        let server = ServerState::new(Address::Unix("/socket".into()), context, None, first_until);
        let call = Arc::new(PolicyCall::new(&Policy::one_off("1/second", None).unwrap(), &[]));
        let operation = |until, is_first| {
            let wanted = ScriptRequest {
                call: Arc::clone(&call),
                key: Vec::new(),
                slot: 0,
                action: Action::Apply(Operation::Check),
                cost: 1,
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
