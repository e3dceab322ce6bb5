//! Submits an operation to the connections, or refuses it when too many are pending.

use std::sync::Arc;
use std::time::Instant;

use crate::rules::decision::Degradation;
use crate::store::redis::pipeline::pending::{PendingOperation, PendingReply, ScriptRequest};
use crate::store::redis::routing::access::Access;
use crate::store::redis::routing::topology::Topology;
use crate::store::redis::script::call::PolicyCall;
use crate::store::redis::transport::failure::Failure;
use crate::store::redis::transport::slot;
use crate::store::request::Action;

/// The time limit of an operation.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// This moment: for background operations, which continue while the limiter is being closed.
    Deadline(Instant),
    /// This deadline, or longer while a server has never been connected to: for operations of callers.
    DeadlineOrFirst(Instant),
}

/// Submits an operation on a main key; it is answered by its deadline.
pub(crate) fn submit(
    access: &Access,
    topology: &Topology,
    call: &Arc<PolicyCall>,
    key: Vec<u8>,
    (action, cost): (Action, u64),
    until: Until,
) -> PendingReply {
    let Some(permit) = access.member.permit(key.len()) else {
        access.member.counters.shed.add(1);
        return PendingReply(Err(Failure::not_applied(Degradation::Shed)));
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
        ScriptRequest { call: Arc::clone(call), key, slot, action, cost, until, is_first, in_background };
    let operation = PendingOperation::new(wanted, permit);
    topology.submit(Arc::clone(&operation));
    operation.end_if_closed();
    PendingReply(Ok(operation))
}
