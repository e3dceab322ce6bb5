//! An operation that was given to the connections, or was refused at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use super::call::PolicyCall;
use super::context::Context;
use super::failure::Failure;
use super::slot;
use super::ticket::{Pending, Reply, Ticket, Wanted};
use super::topology::Topology;
use crate::decision::Degradation;
use crate::store::Action;

/// How long something may take.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// No longer than this.
    Deadline(Instant),
    /// Longer where the server was never connected to.
    DeadlineOrFirst(Instant),
}

/// What will have its answer by its deadline.
#[derive(Debug)]
pub(super) enum Submitted {
    Pending(Pending),
    Refused(Failure),
}

impl Submitted {
    /// Asks something of a key, as Redis knows it, to be answered by then.
    pub(super) fn new(
        context: &Context,
        topology: &Topology,
        call: &Arc<PolicyCall>,
        key: Vec<u8>,
        (action, cost): (Action, u64),
        until: Until,
    ) -> Self {
        let Some(share) = context.outstanding.share(key.len()) else {
            context.counters.shed.add(1);
            return Self::Refused(Failure::not_applied(Degradation::Shed));
        };
        let slot = if topology.is_cluster() { slot::slot(&key) } else { 0 };
        let (until, is_first) = match until {
            Until::Deadline(until) => (until, false),
            Until::DeadlineOrFirst(deadline) => match topology.first_connect_until(slot) {
                Some(first) => (deadline.max(first + context.deadline), true),
                None => (deadline, false),
            },
        };
        let wanted = Wanted { call: Arc::clone(call), key, slot, action, cost, until, is_first };
        let ticket = Ticket::new(wanted, share);
        topology.submit(Arc::clone(&ticket));
        Self::Pending(Pending(ticket))
    }
}

impl Future for Submitted {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Reply> {
        match self.get_mut() {
            Self::Pending(pending) => Pin::new(pending).poll(cx),
            Self::Refused(failure) => Poll::Ready(Err(*failure)),
        }
    }
}
