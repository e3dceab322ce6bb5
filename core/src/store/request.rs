//! The requests of a limiter to its store, and the store's answers.

use crate::rules::decision::Decision;
use crate::rules::reservation::list::Hold;
use crate::rules::transition::Operation;
use crate::store::lease_size::Lease;
use crate::store::outage::Outage;

/// Identifies a policy of a limiter, by the order of registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PolicyId(pub(crate) u32);

/// Settings of a policy besides its numbers; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PolicyOptions {
    pub(crate) outage: Option<Outage>,
    pub(crate) lease: Option<Lease>,
}

/// An operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Apply(Operation),
    Reset,
}

/// One operation on one key, as the limiter passes it to its store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreRequest<'a> {
    pub(crate) id: PolicyId,
    pub(crate) key: &'a [u8],
    pub(crate) action: Action,
    pub(crate) cost: u64,
    /// The reservation, for operations on one.
    pub(crate) hold: Option<&'a Hold>,
}

/// The decision, and the number of units that a check or take spent. The decision on a commit, a cancel or a renew is allowed
/// when the reservation was there.
pub(crate) type Answer = (Decision, u64);
