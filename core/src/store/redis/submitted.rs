//! An operation that was given to the connections, or was refused at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use super::access::Access;
use super::call::PolicyCall;
use super::failure::Failure;
use super::slot;
use super::ticket::{Pending, Reply, Ticket, Wanted};
use super::topology::Topology;
use crate::decision::Degradation;
use crate::store::Action;

/// How long something may take.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// No longer than this: what is seen to in the background, also while the limiter is being closed.
    Deadline(Instant),
    /// What a caller waits for: longer where the server was never connected to.
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
        access: &Access,
        topology: &Topology,
        call: &Arc<PolicyCall>,
        key: Vec<u8>,
        (action, cost): (Action, u64),
        until: Until,
    ) -> Self {
        let Some(share) = access.member.share(key.len()) else {
            access.member.counters.shed.add(1);
            return Self::Refused(Failure::not_applied(Degradation::Shed));
        };
        let slot = if topology.is_cluster() { slot::slot(&key) } else { 0 };
        let (until, is_first, in_background) = match until {
            Until::Deadline(until) => (until, false, true),
            Until::DeadlineOrFirst(deadline) => match topology.first_connect_until(slot) {
                Some(first) => (deadline.max(first + access.deadline), true, false),
                None => (deadline, false, false),
            },
        };
        let wanted =
            Wanted { call: Arc::clone(call), key, slot, action, cost, until, is_first, in_background };
        let ticket = Ticket::new(wanted, share);
        topology.submit(Arc::clone(&ticket));
        ticket.end_if_closed();
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
