//! An operation that was given to the connections, or was refused at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use super::call::PolicyCall;
use super::failure::Failure;
use super::member::Member;
use super::slot;
use super::ticket::{Pending, Reply, Ticket, Wanted};
use super::topology::Topology;
use crate::decision::Degradation;
use crate::store::Action;

/// What will have its answer by its deadline.
#[derive(Debug)]
pub(super) enum Submitted {
    Pending(Pending),
    Refused(Failure),
}

impl Submitted {
    /// Asks something of a key, as Redis knows it, to be answered until then.
    pub(super) fn new(
        member: &Arc<Member>,
        topology: &Topology,
        call: &Arc<PolicyCall>,
        key: Vec<u8>,
        (action, cost): (Action, u64),
        deadline: Instant,
        in_background: bool,
    ) -> Self {
        let Some(share) = member.share(key.len()) else {
            member.counters.shed.add(1);
            return Self::Refused(Failure::not_applied(Degradation::Shed));
        };
        let slot = if topology.is_cluster() { slot::slot(&key) } else { 0 };
        let wanted = Wanted { call: Arc::clone(call), key, slot, action, cost, deadline, in_background };
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
