//! The destination of an operation: one server, wherever it is at the moment, or the owner of the key's slot.

use std::sync::Arc;
use std::time::Instant;

use crate::store::redis::config::target::Endpoints;
use crate::store::redis::pipeline::context::Context;
use crate::store::redis::pipeline::limits::Member;
use crate::store::redis::pipeline::pending::PendingOperation;
use crate::store::redis::pipeline::supervisor::ConnectionSupervisor;
use crate::store::redis::routing::cluster::Cluster;
use crate::store::redis::transport::connect::Address;

/// The connections of one runtime.
#[derive(Debug)]
pub(crate) enum Topology {
    One(ConnectionSupervisor),
    Cluster(Cluster),
}

impl Topology {
    /// Creates the connections; their tasks run on the current runtime.
    pub(crate) fn spawn(endpoints: &Endpoints, context: &Arc<Context>) -> Self {
        let (context, first_until) = (Arc::clone(context), context.first_connect_until());
        match Address::of(endpoints) {
            Ok(address) => Self::One(ConnectionSupervisor::spawn(address, context, None, first_until)),
            Err(seeds) => Self::Cluster(Cluster::spawn(seeds.into(), context, first_until)),
        }
    }

    /// Until when callers wait for the first connection to the slot's server; `None` after the first connection.
    #[inline]
    pub(crate) fn first_connect_until(&self, slot: u16) -> Option<Instant> {
        match self {
            Self::One(supervisor) => supervisor.first_connect_until(),
            Self::Cluster(cluster) => cluster.first_connect_until(slot),
        }
    }

    #[inline]
    pub(crate) fn submit(&self, operation: Arc<PendingOperation>) {
        match self {
            Self::One(supervisor) => supervisor.submit(operation),
            Self::Cluster(cluster) => cluster.submit(operation),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(crate) fn is_healthy(&self) -> bool {
        match self {
            Self::One(supervisor) => supervisor.is_healthy(),
            Self::Cluster(cluster) => cluster.is_healthy(),
        }
    }

    /// Closes all connections now, whatever their runtime does. Pending operations are answered with a failure.
    pub(crate) fn close(&self) {
        match self {
            Self::One(supervisor) => supervisor.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }

    /// Answers the pending operations of a limiter that is closed.
    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        match self {
            Self::One(supervisor) => supervisor.end_waiting(member),
            Self::Cluster(cluster) => cluster.end_waiting(member),
        }
    }

    /// Whether its tasks have ended, together with their runtime.
    pub(crate) fn is_dead(&self) -> bool {
        match self {
            Self::One(supervisor) => supervisor.is_dead(),
            Self::Cluster(cluster) => cluster.is_dead(),
        }
    }
}
