//! The contents of a checked document: every name is resolved, and every number is in bounds.

use std::sync::Arc;

use crate::attribute::Attribute;
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::calendar::KeyOptions;
use polylimit_store::lease_size::Lease;
use polylimit_store::outage::Outage;

/// A policy with all its settings in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentPolicy {
    /// The name, with the quotas that decide by default.
    pub(crate) policy: Policy,
    /// The plans by their names, each as a policy of the same name.
    pub(crate) plans: Vec<(Arc<str>, Policy)>,
    pub(crate) overrides: Vec<Override>,
    pub mode: Mode,
    /// `None`: the limiter's setting.
    pub outage: Option<Outage>,
    pub lease: Option<Lease>,
    pub(crate) calendar: CalendarAttributes,
    pub candidate: Option<Candidate>,
    pub elastic: Option<Elastic>,
    pub(crate) penalty: Option<Penalty>,
}

/// Whether a policy decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It decides.
    #[default]
    On,
    /// It admits everything and does not call the store.
    Off,
    /// It counts as if it decided, but admits everything.
    Shadow,
}

/// The attributes of a request that hold the calendar of a key and the group of the request. `A` is how an attribute is referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CalendarAttributes<A = Attribute> {
    pub(crate) zone: Option<A>,
    pub(crate) from: Option<A>,
    /// The name of the request's group.
    pub(crate) group: Option<A>,
}

/// The quotas of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) key: Box<[u8]>,
    pub(crate) numbers: OverrideQuotas,
    pub(crate) calendar: KeyOptions,
    /// The time from which it has no effect.
    pub(crate) until_us: Option<u64>,
}

/// Quotas, or the plan that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OverrideQuotas {
    /// The name of a plan.
    Plan(Arc<str>),
    /// Quotas, as a policy of the same name.
    Quotas(Policy),
}

/// Quotas that are tried for some keys before they apply to all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The quotas tried, as a policy of the same name.
    pub(crate) policy: Policy,
    /// The same quotas as the policy under which compared checks are counted, named `NAME~` and 8 hexadecimal digits.
    pub comparison: Policy,
    /// The share of the keys whose checks are compared, in thousandths.
    pub compare: u16,
    /// The share of the keys for which the candidate decides, in thousandths.
    pub(crate) enforce: u16,
}

/// The pool that serves requests which a policy denies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elastic {
    /// The index of the pool among the document's policies.
    pub pool: usize,
    /// The key under the pool.
    pub key: Box<[u8]>,
    /// Percent of the pool's units that are kept for others, 0 to 99.
    pub headroom: u8,
    /// Whether the pool is also charged for requests that the policy itself admits.
    pub counts_all: bool,
}
