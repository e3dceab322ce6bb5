//! The charges that a limiter starts in its store, and the store's answers.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::FutureExt;
use smallvec::SmallVec;

use crate::lease_size::Lease;
use crate::outage::Outage;
use polylimit_rules::decision::Decision;
use polylimit_rules::error::Error;
use polylimit_rules::general::KeyOperation;
use polylimit_rules::reservation::list::Hold;
use polylimit_rules::transition::Operation;

/// Identifies a policy of a limiter. No other policy of the limiter ever has the same id, although a policy may take the slot of one
/// that was forgotten: the bits above the slot count the policies whose slots are used again. Ids are ordered by registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId(pub u64);

impl PolicyId {
    pub(crate) const SLOT_BITS: u32 = 20;
    pub const SLOTS: usize = (1 << Self::SLOT_BITS) - 1;

    pub fn new(serial: u64, slot: usize) -> Self {
        Self(serial << Self::SLOT_BITS | slot as u64)
    }

    /// Where stores keep the policy.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it has 20 bits")]
    pub fn slot(self) -> usize {
        self.0 as usize & ((1 << Self::SLOT_BITS) - 1)
    }

    /// The index in a table of the first policies, whose ids are their slots; beyond its end for others.
    #[inline]
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    pub fn serial(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }
}

/// Settings of a policy besides its quotas; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicyOptions {
    pub outage: Option<Outage>,
    pub lease: Option<Lease>,
    /// Whether each key may have its own effective quotas.
    pub has_quotas_of_keys: bool,
}

/// An operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Apply(Operation),
    Reset,
}

/// One operation on one key, as the limiter passes it to its store. A request over several policies has one for each of them: all are
/// applied, or none.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    pub id: PolicyId,
    pub key: &'a [u8],
    pub action: Action,
    pub cost: u64,
    /// The part of each quota's capacity that a check, a peek or a reserve leaves for others, in percent: 0 to 99.
    pub headroom: u8,
    /// The reservation, for operations on one, or the time of a block.
    pub hold: Option<&'a Hold>,
    /// The effective quotas, if they are not the policy's own.
    pub effective: Option<&'a PreparedQuotas>,
    /// Whether its denial denies the whole request: not if its policy is in shadow.
    pub decides: bool,
    /// Whether a denial that is known in front of the store answers it: not if the decisions of a candidate are compared.
    pub uses_caches: bool,
}

impl<'a> Charge<'a> {
    /// A charge by the policy's own quotas, without headroom and without a reservation.
    #[inline]
    pub fn new(id: PolicyId, key: &'a [u8], action: Action, cost: u64) -> Self {
        Self {
            id,
            key,
            action,
            cost,
            headroom: 0,
            hold: None,
            effective: None,
            decides: true,
            uses_caches: true,
        }
    }

    /// The same key and cost, for a peek.
    #[must_use]
    pub fn peek(self) -> Self {
        Self { action: Action::Apply(Operation::Peek), hold: None, ..self }
    }

    /// The operation of this charge on its key, at a time.
    #[inline]
    pub fn operation(&self, operation: Operation, now_us: u64) -> KeyOperation<'a> {
        KeyOperation { now_us, operation, cost: self.cost, headroom: self.headroom, hold: self.hold }
    }
}

/// Whether a request is admitted by the answers to its charges.
pub fn is_admitted(charges: &[Charge<'_>], answers: &[StoreAnswer]) -> bool {
    charges.iter().zip(answers).all(|(charge, (decision, _))| decision.allowed || !charge.decides)
}

/// A [`Charge`] that can outlive its caller.
pub struct OwnedCharge {
    id: PolicyId,
    key: Box<[u8]>,
    action: Action,
    cost: u64,
    headroom: u8,
    hold: Option<Hold>,
    effective: Option<PreparedQuotas>,
    decides: bool,
    uses_caches: bool,
}

impl OwnedCharge {
    pub fn of(charge: &Charge<'_>) -> Self {
        let Charge { id, key, action, cost, headroom, hold, effective, decides, uses_caches } = *charge;
        let (hold, effective) = (hold.copied(), effective.cloned());
        Self { id, key: key.into(), action, cost, headroom, hold, effective, decides, uses_caches }
    }

    pub fn borrowed(&self) -> Charge<'_> {
        let &Self { id, ref key, action, cost, headroom, ref hold, ref effective, decides, uses_caches } =
            self;
        let (hold, effective) = (hold.as_ref(), effective.as_ref());
        Charge { id, key, action, cost, headroom, hold, effective, decides, uses_caches }
    }
}

/// The effective quotas of some keys of a policy in place of the policy's own, as its store has prepared them. All quotas of a policy share
/// the states of its keys. A copy is cheap.
#[derive(Clone)]
pub struct PreparedQuotas(Arc<dyn Any + Send + Sync>);

impl PreparedQuotas {
    pub fn new<T: Any + Send + Sync>(prepared: T) -> Self {
        Self(Arc::new(prepared))
    }

    /// The prepared form; `None` for that of another kind of store.
    #[inline]
    pub fn of<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for PreparedQuotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreparedQuotas")
    }
}

/// The decision, and the number of units that a check or take spent. The decision on a commit, a cancel or a renew is allowed
/// when the reservation was there.
pub type StoreAnswer = (Decision, u64);

/// The answers to charges that are started together, in their order.
pub type StoreAnswers = SmallVec<[StoreAnswer; 1]>;

/// The answer to a single charge.
pub fn only(answers: StoreAnswers) -> Result<StoreAnswer, Error> {
    answers.into_iter().next().ok_or_else(Error::no_answer)
}

/// How a caller waits for a store that does not answer at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The caller is an asynchronous task.
    Await,
    /// The caller is a thread that blocks: then no future of the limiter or its store is ever pending.
    Block,
}

/// The result of a future for a caller that [blocks](Wait::Block).
pub fn at_once<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    future.now_or_never().unwrap_or_else(|| Err(Error::no_answer()))
}
