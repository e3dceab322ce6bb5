//! What an operation answers.

use std::time::Duration;

use smallvec::SmallVec;

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store decided.
    Store,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 1] = [Self::Store];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
        }
    }
}

/// Why an answer is not what a healthy store would have answered for this key alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Degradation {
    /// The store is full of keys that are in use: this one shares a state with all others that found no place.
    StoreFull,
}

impl Degradation {
    /// Every degradation.
    pub const ALL: [Self; 1] = [Self::StoreFull];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StoreFull => "store_full",
        }
    }
}

/// One quota's own view of a key, after the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The quota's limit, in units per period.
    pub limit: u64,
    /// Whole units that this quota would still admit right now.
    pub remaining: u64,
    /// How long until nothing counts as used under this quota if nothing else arrives, in microseconds.
    pub reset_after_us: u64,
}

/// The views of a policy's quotas, in the policy's order.
pub(crate) type QuotaUsages = SmallVec<[QuotaUsage; 1]>;

/// The answer to a check, a peek or an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision has to be looked at: a denied request must not proceed"]
pub struct Decision {
    pub(crate) allowed: bool,
    pub(crate) retry_after_us: Option<u64>,
    pub(crate) delay_us: u64,
    pub(crate) usage: Usage,
}

impl Decision {
    /// Whether every quota of the policy admits the request.
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// Whole units that can still be spent right now, after this decision: the least over the quotas.
    pub fn remaining(&self) -> u64 {
        self.usage.remaining
    }

    /// How long until the same request, alone, would be admitted, in microseconds: exactly then and not one
    /// microsecond earlier. 0 when allowed; `None` is never: the cost exceeds what a quota can ever admit.
    pub fn retry_after_us(&self) -> Option<u64> {
        self.retry_after_us
    }

    /// [`retry_after_us`](Self::retry_after_us) as a duration.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_us.map(Duration::from_micros)
    }

    /// How long until nothing counts as used any more if nothing else arrives, in microseconds: the longest over the
    /// quotas.
    pub fn reset_after_us(&self) -> u64 {
        self.usage.reset_after_us
    }

    /// [`reset_after_us`](Self::reset_after_us) as a duration.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.usage.reset_after_us)
    }

    /// How long this admitted request has to wait for its turn, in microseconds: leaky bucket only, otherwise 0.
    pub fn delay_us(&self) -> u64 {
        self.delay_us
    }

    /// [`delay_us`](Self::delay_us) as a duration.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }

    /// Where the answer came from.
    pub fn source(&self) -> Source {
        self.usage.source
    }

    /// Why this is not what a healthy store would have answered for this key alone; `None` when it is.
    pub fn degraded(&self) -> Option<Degradation> {
        self.usage.degraded
    }

    /// Each quota's own view, in the policy's order.
    pub fn quotas(&self) -> &[QuotaUsage] {
        &self.usage.quotas
    }
}

/// The answer to a take, a charge, a refund or a reset: what is left after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub(crate) remaining: u64,
    pub(crate) reset_after_us: u64,
    pub(crate) taken: u64,
    pub(crate) source: Source,
    pub(crate) degraded: Option<Degradation>,
    pub(crate) quotas: QuotaUsages,
}

impl Usage {
    /// Whole units that can still be spent right now: the least over the quotas.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How long until nothing counts as used any more if nothing else arrives, in microseconds: the longest over the
    /// quotas.
    pub fn reset_after_us(&self) -> u64 {
        self.reset_after_us
    }

    /// [`reset_after_us`](Self::reset_after_us) as a duration.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after_us)
    }

    /// The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Where the answer came from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Why this is not what a healthy store would have answered for this key alone; `None` when it is.
    pub fn degraded(&self) -> Option<Degradation> {
        self.degraded
    }

    /// Each quota's own view, in the policy's order.
    pub fn quotas(&self) -> &[QuotaUsage] {
        &self.quotas
    }
}
