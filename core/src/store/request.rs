//! The requests of a limiter to its store, and the store's answers.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::rules::decision::Decision;
use crate::rules::general::KeyOperation;
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
    /// Whether each key may have numbers of its own.
    pub(crate) has_numbers_of_keys: bool,
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
    /// The part of each quota's capacity that a check, a peek or a reserve leaves for others, in percent: 0 to 99.
    pub(crate) headroom: u8,
    /// The reservation, for operations on one, or the time of a block.
    pub(crate) hold: Option<&'a Hold>,
    /// The numbers that decide in place of the policy's own.
    pub(crate) numbers: Option<&'a Numbers>,
}

/// A [`StoreRequest`] that can outlive its caller.
pub(crate) struct OwnedStoreRequest {
    pub(crate) action: Action,
    id: PolicyId,
    key: Box<[u8]>,
    cost: u64,
    headroom: u8,
    hold: Option<Hold>,
    numbers: Option<Numbers>,
}

impl OwnedStoreRequest {
    pub(crate) fn of(request: StoreRequest<'_>) -> Self {
        let StoreRequest { id, key, action, cost, headroom, hold, numbers } = request;
        Self { id, key: key.into(), action, cost, headroom, hold: hold.copied(), numbers: numbers.cloned() }
    }

    pub(crate) fn borrowed(&self) -> StoreRequest<'_> {
        let Self { action, id, key, cost, headroom, hold, numbers } = self;
        let (hold, numbers) = (hold.as_ref(), numbers.as_ref());
        StoreRequest { id: *id, key, action: *action, cost: *cost, headroom: *headroom, hold, numbers }
    }
}

/// Numbers that decide about some keys of a policy in place of the policy's own, as its store has prepared them. All numbers of
/// a policy share its keys' states. A copy is cheap.
#[derive(Clone)]
pub(crate) struct Numbers(Arc<dyn Any + Send + Sync>);

impl Numbers {
    pub(crate) fn new<T: Any + Send + Sync>(prepared: T) -> Self {
        Self(Arc::new(prepared))
    }

    /// What a store has prepared; `None` for the numbers of another kind of store.
    #[inline]
    pub(crate) fn of<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers")
    }
}

impl<'a> StoreRequest<'a> {
    /// The operation of this request on its key, at a time.
    #[inline]
    pub(crate) fn operation(&self, operation: Operation, now_us: u64) -> KeyOperation<'a> {
        KeyOperation { now_us, operation, cost: self.cost, headroom: self.headroom, hold: self.hold }
    }
}

/// The decision, and the number of units that a check or take spent. The decision on a commit, a cancel or a renew is allowed
/// when the reservation was there.
pub(crate) type Answer = (Decision, u64);
