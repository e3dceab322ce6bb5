//! What a limiter asks of its store, and what the store answers.

use crate::rules::decision::Decision;
use crate::rules::transition::Operation;
use crate::store::lease_size::Lease;
use crate::store::outage::Outage;

/// A policy of a limiter, by the order in which it was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PolicyId(pub(crate) u32);

/// What holds for a policy besides its numbers; what is not said stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PolicyOptions {
    pub(crate) outage: Option<Outage>,
    pub(crate) lease: Option<Lease>,
}

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Apply(Operation),
    /// Forgets the key.
    Reset,
}

/// One operation on one key, as the limiter hands it to its store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreRequest<'a> {
    pub(crate) id: PolicyId,
    pub(crate) key: &'a [u8],
    pub(crate) action: Action,
    pub(crate) cost: u64,
}

/// The decision, and how many units a check or take has spent.
pub(crate) type Answer = (Decision, u64);
