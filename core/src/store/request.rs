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

/// Identifies a policy of a limiter. No other policy of the limiter ever has the same id, although a policy may take the slot of one
/// that was forgotten: the bits above the slot count the policies whose slots are used again. Ids are ordered by registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PolicyId(pub(crate) u64);

impl PolicyId {
    pub(crate) const SLOT_BITS: u32 = 20;
    pub(crate) const SLOTS: usize = (1 << Self::SLOT_BITS) - 1;

    pub(crate) fn new(serial: u64, slot: usize) -> Self {
        Self(serial << Self::SLOT_BITS | slot as u64)
    }

    /// Where stores keep the policy.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it has 20 bits")]
    pub(crate) fn slot(self) -> usize {
        self.0 as usize & ((1 << Self::SLOT_BITS) - 1)
    }

    /// The index in a table of the first policies, whose ids are their slots; beyond its end for others.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    pub(crate) fn serial(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }
}

/// Settings of a policy besides its quotas; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PolicyOptions {
    pub(crate) outage: Option<Outage>,
    pub(crate) lease: Option<Lease>,
    /// Whether each key may have its own effective quotas.
    pub(crate) has_quotas_of_keys: bool,
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
    /// The effective quotas, if they are not the policy's own.
    pub(crate) effective: Option<&'a PreparedQuotas>,
}

/// An operation of a request over several policies: a check or a reserve. All operations of the request are applied, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestCharge<'a> {
    pub(crate) request: StoreRequest<'a>,
    /// Whether its denial denies the whole request: not if its policy is in shadow.
    pub(crate) decides: bool,
    /// Whether a denial that is known in front of the store answers it: not if the decisions of a candidate are compared.
    pub(crate) uses_caches: bool,
}

/// Whether a request is admitted by the answers to its charges.
pub(crate) fn is_admitted(charges: &[RequestCharge<'_>], answers: &[Answer]) -> bool {
    charges.iter().zip(answers).all(|(charge, (decision, _))| decision.allowed || !charge.decides)
}

/// A [`StoreRequest`] that can outlive its caller.
pub(crate) struct OwnedStoreRequest {
    pub(crate) action: Action,
    id: PolicyId,
    key: Box<[u8]>,
    cost: u64,
    headroom: u8,
    hold: Option<Hold>,
    effective: Option<PreparedQuotas>,
}

impl OwnedStoreRequest {
    pub(crate) fn of(request: StoreRequest<'_>) -> Self {
        let StoreRequest { id, key, action, cost, headroom, hold, effective } = request;
        Self {
            id,
            key: key.into(),
            action,
            cost,
            headroom,
            hold: hold.copied(),
            effective: effective.cloned(),
        }
    }

    pub(crate) fn borrowed(&self) -> StoreRequest<'_> {
        let Self { action, id, key, cost, headroom, hold, effective } = self;
        let (hold, effective) = (hold.as_ref(), effective.as_ref());
        StoreRequest { id: *id, key, action: *action, cost: *cost, headroom: *headroom, hold, effective }
    }
}

/// A [`RequestCharge`] that can outlive its caller.
pub(crate) struct OwnedCharge {
    request: OwnedStoreRequest,
    decides: bool,
    uses_caches: bool,
}

impl OwnedCharge {
    pub(crate) fn of(charge: &RequestCharge<'_>) -> Self {
        let RequestCharge { request, decides, uses_caches } = *charge;
        Self { request: OwnedStoreRequest::of(request), decides, uses_caches }
    }

    pub(crate) fn borrowed(&self) -> RequestCharge<'_> {
        let Self { request, decides, uses_caches } = self;
        RequestCharge { request: request.borrowed(), decides: *decides, uses_caches: *uses_caches }
    }
}

/// The effective quotas of some keys of a policy in place of the policy's own, as its store has prepared them. All quotas of a policy share
/// the states of its keys. A copy is cheap.
#[derive(Clone)]
pub(crate) struct PreparedQuotas(Arc<dyn Any + Send + Sync>);

impl PreparedQuotas {
    pub(crate) fn new<T: Any + Send + Sync>(prepared: T) -> Self {
        Self(Arc::new(prepared))
    }

    /// The prepared form; `None` for that of another kind of store.
    #[inline]
    pub(crate) fn of<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for PreparedQuotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreparedQuotas")
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
