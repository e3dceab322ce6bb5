//! The results of operations: decisions and usages.

mod parts;

use std::time::Duration;

pub use parts::DecisionParts;

/// Which part made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store decided.
    Store,
    /// The denial cache: the store has denied the key before and cannot admit it yet; see
    /// [`denial_cache_max`](crate::RedisOptions::denial_cache_max).
    DenialCache,
    /// Units that this process had leased; see [`Lease`](crate::Lease).
    Lease,
    /// The store could not decide: this process decided from the requests that it has seen for the key; see
    /// [`Outage::Fallback`](crate::Outage::Fallback).
    Fallback,
    /// The store could not decide, and the outage policy allows every request; see
    /// [`Outage::Allow`](crate::Outage::Allow).
    Allow,
    /// The store could not decide, and the outage policy denies every request; see [`Outage::Deny`](crate::Outage::Deny).
    Deny,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 6] =
        [Self::Store, Self::DenialCache, Self::Lease, Self::Fallback, Self::Allow, Self::Deny];

    /// Whether the store could not decide and the outage policy answered.
    pub const fn is_outage(self) -> bool {
        match self {
            Self::Store | Self::DenialCache | Self::Lease => false,
            Self::Fallback | Self::Allow | Self::Deny => true,
        }
    }

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenialCache => "denial_cache",
            Self::Lease => "lease",
            Self::Fallback => "fallback",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Why a decision may differ from what a healthy store would have answered for this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Degradation {
    /// The memory store or the local store is full of states in use: this key shares one state with all other keys that
    /// found no room.
    StoreFull,
    /// There is no connection to the server: it refuses, its name is not found, or it does not answer.
    Unreachable,
    /// The operation was sent and no reply came within the deadline; it may have been applied.
    Timeout,
    /// The deadline passed while the operation was queued, here or at the server, which then refused it.
    Late,
    /// Too many operations are queued already.
    Shed,
    /// The server is loading its data.
    Loading,
    /// The server is busy with a slow script of another client.
    Busy,
    /// The server has no memory left and may not evict.
    OutOfMemory,
    /// The server cannot write its data to disk, and refuses writes.
    Misconfigured,
    /// The server has fewer replicas than its settings require for a write.
    NoReplicas,
    /// The server has reached its maximum number of clients.
    MaxClients,
    /// The server is a replica, and its primary was not found.
    ReadOnly,
    /// The cluster does not serve the key's slot.
    ClusterDown,
    /// The server refuses the user, the password or the user's rights.
    Auth,
    /// The key of the state has a value of another type.
    WrongType,
    /// The server's reply does not match the command.
    Protocol,
    /// The server refused for another reason.
    Refused,
    /// The connection broke before the reply came: the server or the network closed or reset it. A command that was sent
    /// may have been applied.
    ConnectionLost,
    /// The operating system refuses a descriptor, memory or a thread, which the connection to the server needs.
    NoResources,
}

impl Degradation {
    /// Every degradation.
    pub const ALL: [Self; 19] = [
        Self::StoreFull,
        Self::Unreachable,
        Self::Timeout,
        Self::Late,
        Self::Shed,
        Self::Loading,
        Self::Busy,
        Self::OutOfMemory,
        Self::Misconfigured,
        Self::NoReplicas,
        Self::MaxClients,
        Self::ReadOnly,
        Self::ClusterDown,
        Self::Auth,
        Self::WrongType,
        Self::Protocol,
        Self::Refused,
        Self::ConnectionLost,
        Self::NoResources,
    ];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StoreFull => "store_full",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Late => "late",
            Self::Shed => "shed",
            Self::Loading => "loading",
            Self::Busy => "busy",
            Self::OutOfMemory => "out_of_memory",
            Self::Misconfigured => "misconfigured",
            Self::NoReplicas => "no_replicas",
            Self::MaxClients => "max_clients",
            Self::ReadOnly => "read_only",
            Self::ClusterDown => "cluster_down",
            Self::Auth => "auth",
            Self::WrongType => "wrong_type",
            Self::Protocol => "protocol",
            Self::Refused => "refused",
            Self::ConnectionLost => "connection_lost",
            Self::NoResources => "no_resources",
        }
    }
}

/// One quota's usage by a key, after the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The quota's limit, in units per period.
    pub limit: u64,
    /// Whole units that this quota would still admit now.
    pub remaining: u64,
    /// How long until nothing counts as used under this quota if nothing else arrives, in microseconds.
    pub reset_after_us: u64,
}

impl QuotaUsage {
    /// The usage of several quotas together: the least of the remaining units and the longest of the times.
    pub(crate) fn of_all(each: &[Self]) -> Self {
        let first = each.first().copied().unwrap_or(Self { limit: 0, remaining: 0, reset_after_us: 0 });
        each.iter().fold(first, |total, usage| Self {
            limit: total.limit.min(usage.limit),
            remaining: total.remaining.min(usage.remaining),
            reset_after_us: total.reset_after_us.max(usage.reset_after_us),
        })
    }
}

/// Each quota's usage where there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Several {
    pub(crate) each: Box<[QuotaUsage]>,
}

/// The result of a check, a peek or an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision has to be looked at: a denied request must not proceed"]
pub struct Decision {
    /// The only quota's usage, or that of all quotas together.
    pub(crate) total: QuotaUsage,
    pub(crate) several: Option<Box<Several>>,
    /// How long an admitted request waits for its turn, or how long until a denied one would be admitted.
    pub(crate) wait_us: u64,
    pub(crate) allowed: bool,
    pub(crate) source: Source,
    pub(crate) degraded: Option<Degradation>,
}

impl Decision {
    /// A wait that never ends; all other waits are below 2^63.
    pub(crate) const NEVER: u64 = u64::MAX;

    /// Whether every quota of the policy admits the request.
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// The limit in units per period, the smallest of the quotas.
    pub fn limit(&self) -> u64 {
        self.total.limit
    }

    /// Whole units that can still be spent now, after this decision: the least over the quotas.
    pub fn remaining(&self) -> u64 {
        self.total.remaining
    }

    /// How long until the same request would be admitted if no other request arrives, in microseconds: exactly then and
    /// not one microsecond earlier. 0 when allowed; `None` means never: the cost exceeds what a quota can ever admit.
    pub fn retry_after_us(&self) -> Option<u64> {
        match self.wait_us {
            _ if self.allowed => Some(0),
            Self::NEVER => None,
            wait_us => Some(wait_us),
        }
    }

    /// [`retry_after_us`](Self::retry_after_us) as a duration.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_us().map(Duration::from_micros)
    }

    /// How long until nothing counts as used any more if no other request arrives, in microseconds: the longest over the
    /// quotas.
    pub fn reset_after_us(&self) -> u64 {
        self.total.reset_after_us
    }

    /// [`reset_after_us`](Self::reset_after_us) as a duration.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.total.reset_after_us)
    }

    /// How long this admitted request has to wait for its turn, in microseconds: leaky bucket only, otherwise 0.
    pub fn delay_us(&self) -> u64 {
        if self.allowed { self.wait_us } else { 0 }
    }

    /// [`delay_us`](Self::delay_us) as a duration.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us())
    }

    /// Which part made this decision.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Why this decision may differ from what a healthy store would have answered for this key; `None` when the store
    /// decided normally.
    pub fn degraded(&self) -> Option<Degradation> {
        self.degraded
    }

    /// Each quota's usage, in the policy's order.
    pub fn quotas(&self) -> &[QuotaUsage] {
        quotas(&self.total, self.several.as_deref())
    }

    /// The decision after the units of an admitted request were refunded: no delay is left, and the usage is that of the
    /// refund, unless an outage policy answered the refund in place of the store.
    pub fn refunded(mut self, left: Usage) -> Self {
        if self.allowed {
            self.wait_us = 0;
        }
        if !left.source().is_outage() || self.source.is_outage() {
            (self.total, self.several) = left.into_quotas();
        }
        self
    }

    /// The same decision, moved field by field. A function that is not inlined returns a decision in memory; where its
    /// result merges with one that is computed inline, this lets the compiler keep the latter in registers.
    #[inline]
    pub(crate) fn by_fields(self) -> Self {
        let Self { total: QuotaUsage { limit, remaining, reset_after_us }, .. } = self;
        let Self { several, wait_us, allowed, source, degraded, .. } = self;
        let total = QuotaUsage { limit, remaining, reset_after_us };
        Self { total, several, wait_us, allowed, source, degraded }
    }

    /// The usage, without the verdict.
    pub(crate) fn into_usage(self, taken: u64) -> Usage {
        let Self { total, several, source, degraded, .. } = self;
        Usage { total, several, taken, source, degraded }
    }
}

/// The result of a take, a charge, a refund or a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    total: QuotaUsage,
    several: Option<Box<Several>>,
    taken: u64,
    source: Source,
    degraded: Option<Degradation>,
}

impl Usage {
    /// The limit in units per period, the smallest of the quotas.
    pub fn limit(&self) -> u64 {
        self.total.limit
    }

    /// Whole units that can still be spent now: the least over the quotas.
    pub fn remaining(&self) -> u64 {
        self.total.remaining
    }

    /// How long until nothing counts as used any more if no other request arrives, in microseconds: the longest over the
    /// quotas.
    pub fn reset_after_us(&self) -> u64 {
        self.total.reset_after_us
    }

    /// [`reset_after_us`](Self::reset_after_us) as a duration.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.total.reset_after_us)
    }

    /// The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Which part gave this answer.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Why this answer may differ from what a healthy store would have given for this key; `None` when the store answered
    /// normally.
    pub fn degraded(&self) -> Option<Degradation> {
        self.degraded
    }

    /// Each quota's usage, in the policy's order.
    pub fn quotas(&self) -> &[QuotaUsage] {
        quotas(&self.total, self.several.as_deref())
    }

    /// Each quota's usage: all together, and each where there are several.
    pub(crate) fn into_quotas(self) -> (QuotaUsage, Option<Box<Several>>) {
        (self.total, self.several)
    }
}

fn quotas<'a>(total: &'a QuotaUsage, several: Option<&'a Several>) -> &'a [QuotaUsage] {
    several.map_or(std::slice::from_ref(total), |several| &several.each)
}
