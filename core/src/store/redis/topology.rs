//! Where a ticket goes: one server, wherever it is at the moment, or the owner of the key's slot.

use std::sync::Arc;
use std::time::Instant;

use super::cluster::Cluster;
use super::connect::Address;
use super::context::Context;
use super::link::Link;
use super::member::Member;
use super::target::Endpoints;
use super::ticket::Ticket;

/// The connections that belong to one runtime.
#[derive(Debug)]
pub(crate) enum Topology {
    One(Link),
    Cluster(Cluster),
}

impl Topology {
    /// Its tasks run on the current runtime.
    pub(crate) fn spawn(endpoints: &Endpoints, context: &Arc<Context>) -> Self {
        let (context, first_until) = (Arc::clone(context), context.first_connect_until());
        match Address::of(endpoints) {
            Ok(address) => Self::One(Link::spawn(address, context, None, first_until)),
            Err(seeds) => Self::Cluster(Cluster::spawn(seeds.into(), context, first_until)),
        }
    }

    /// Until when a first connection to the server of a slot is waited for; `None` where there has been one.
    #[inline]
    pub(crate) fn first_connect_until(&self, slot: u16) -> Option<Instant> {
        match self {
            Self::One(link) => link.first_connect_until(),
            Self::Cluster(cluster) => cluster.first_connect_until(slot),
        }
    }

    #[inline]
    pub(crate) fn submit(&self, ticket: Arc<Ticket>) {
        match self {
            Self::One(link) => link.submit(ticket),
            Self::Cluster(cluster) => cluster.submit(ticket),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(crate) fn is_healthy(&self) -> bool {
        match self {
            Self::One(link) => link.is_healthy(),
            Self::Cluster(cluster) => cluster.is_healthy(),
        }
    }

    /// Ends all connections now, whatever their runtime does. Whoever still waits for an answer is told that there is none.
    pub(crate) fn close(&self) {
        match self {
            Self::One(link) => link.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }

    /// Tells those that wait for an answer to a limiter that is closed.
    pub(crate) fn end_waiting(&self, member: &Arc<Member>) {
        match self {
            Self::One(link) => link.end_waiting(member),
            Self::Cluster(cluster) => cluster.end_waiting(member),
        }
    }

    /// Whether its tasks have ended, along with their runtime.
    pub(crate) fn is_dead(&self) -> bool {
        match self {
            Self::One(link) => link.is_dead(),
            Self::Cluster(cluster) => cluster.is_dead(),
        }
    }
}
