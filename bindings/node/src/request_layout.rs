//! The layout of a request and of its answer in the arrays that this addon shares with JavaScript.
//!
//! `ts/exchange.ts` creates the arrays, and `SharedArrays` reads and writes them.

use napi_derive::napi;
use polylimit::Policy;

/// Indices of the `Float64Array`: the numbers of the newest answer, and those of a request that may have a fraction.
///
/// Times are in the unit of their name; `RetryAfterUs` is -1 for never. `Source` and `Degraded` are indices in their tables; `Degraded` is
/// -1 for an answer that is not degraded. `Ticket` is the number of a pending operation, or 0 when the answer is there.
#[napi]
pub enum Field {
    Kind,
    Ticket,
    Allowed,
    Remaining,
    RetryAfterUs,
    ResetAfterMs,
    DelayUs,
    Source,
    Degraded,
    Limit,
    Taken,
    Over,
    /// The rest of a decision: its cause, by its number from 1 up in its table (0 for none), times `DecisionFlag::Radix`, and the
    /// sum of its flags.
    Details,
    /// 1 when a commit, a cancel or a renew has found the reservation, and for every other usage; and 2 more for a commit that is
    /// repeated.
    Found,
    /// The number of quotas, decisions or findings. The numbers of a single quota are `Limit`, `Remaining`, `ResetAfterMs`, `Over`
    /// and `QuotaRetryAfterUs`.
    Quotas,
    /// How long the only quota denies the request of a decision: 0 when it admits it, -1 for never.
    QuotaRetryAfterUs,
    /// The HTTP status of the response to a denied request.
    Status,
    /// A bit for each header value that differs from the previous response; -1 when all names and values are given.
    Changed,
    /// A `GuardStep`.
    Step,
    /// The number of policies that the guard has decided.
    Items,
    /// 2 when the check of a guard holds reservations until the response is done, 1 when only an earlier check of the request does.
    Holds,
    /// The number of the newest check of a guard, which changes with each.
    Check,
    /// From here on the caller writes: the cost of the request.
    Cost,
    TimeoutMs,
    /// The headroom of the request, in percent.
    Headroom,
    FirstQuota,
}

/// The kind of the answer in the `Float64Array`.
#[napi]
pub enum AnswerKind {
    Decision,
    Usage,
    Ready,
    Decisions,
    Findings,
    /// The decision on a request by its attributes.
    Request,
    Configuration,
    /// A list of keys or an explanation, as JSON.
    Report,
    Failure,
}

/// What follows on the call of a guard.
#[napi]
#[derive(Clone, Copy)]
pub enum GuardStep {
    /// The request proceeds, or is denied with `Field::Status`; `Field::Items` is the number of policies.
    Done,
    /// `onOutage` is asked.
    Outage,
    /// `NativeCheck.settle` gives back what a denial does not use.
    Settle,
}

/// Of each of several quotas: limit, remaining, reset after, over and, in a decision, for how long the quota denies the request.
pub(crate) const NUMBERS_PER_QUOTA: usize = 5;
/// The length of the `Float64Array`.
pub(crate) const FIELD_COUNT: usize = Field::FirstQuota as usize + NUMBERS_PER_QUOTA * Policy::MAX_QUOTAS;

/// Indices of the `Int32Array`: the numbers of a request that are integers. Reading an integer is faster than converting one
/// from a floating-point number.
#[napi]
#[derive(Clone, Copy)]
pub enum RequestField {
    /// An `Operation`.
    Operation,
    /// The length of the key in the short key's buffer, in bytes; -1 when the key is an argument, -2 when the
    /// request of a guard has none.
    KeyLength,
    /// For a guard: -2 when its route is an argument, otherwise -1. For operations: the number under which the policy's name is interned; -1 for no policy, -2 when the name is an argument. In that case
    /// the addon writes the name's number here.
    Policy,
    /// The sum of a `RequestOption` for each option that the request names.
    Options,
}

/// The length of the `Int32Array`.
pub(crate) const REQUEST_FIELD_COUNT: usize = RequestField::Options as usize + 1;

/// The options of a request besides its policy.
#[napi]
pub enum RequestOption {
    /// `Field::Cost`.
    Cost = 1,
    /// `Field::Headroom`.
    Headroom = 2,
    /// The name of the plan is an argument.
    Plan = 4,
}

/// In `Field::Details`: what a decision is besides allowed or denied.
#[napi]
pub enum DecisionFlag {
    Crossed = 1,
    Elastic = 2,
    Shadowed = 4,
    /// Above the sum of all flags.
    Radix = 8,
}

/// The operations on one key.
#[napi]
pub enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
    Acquire,
    /// A check that fails unless the store answers without waiting.
    CheckSync,
}

/// A request, except for what is passed as an argument.
#[derive(Clone, Copy)]
pub(crate) struct RequestHeader {
    /// An [`Operation`].
    pub(crate) operation: i32,
    /// The length of the key in the short key's buffer; `None` when the key is an argument.
    pub(crate) short_key: Option<usize>,
    pub(crate) policy: PolicyRef,
    pub(crate) cost: Option<f64>,
    /// In percent.
    pub(crate) headroom: Option<f64>,
    /// Whether the name of a plan is an argument.
    pub(crate) has_plan: bool,
}

/// How a request names its policy.
#[derive(Clone, Copy)]
pub(crate) enum PolicyRef {
    /// Not at all: the limiter's only policy.
    None,
    /// By the number of an interned name.
    Interned(usize),
    /// By a name in the arguments.
    Argument,
}

/// In `RequestField::KeyLength`: the request of a guard has no key.
pub(crate) const NO_KEY: i32 = -2;
/// In `RequestField::Policy`: the request names no policy.
const NO_POLICY: i32 = -1;
/// In `RequestField::Policy`: the policy's name is not interned.
pub(crate) const NOT_INTERNED: i32 = -2;

impl PolicyRef {
    /// Reads `RequestField::Policy`.
    #[inline]
    pub(crate) fn from_number(number: i32) -> Self {
        match usize::try_from(number) {
            Ok(interned) => Self::Interned(interned),
            Err(_) if number == NO_POLICY => Self::None,
            Err(_) => Self::Argument,
        }
    }
}
